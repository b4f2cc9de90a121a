"""The next edit in Neovim 0.12, Neovim 0.7 and Emacs, with our own server and the engine that needs no model: twelve behaviours.

The names end with what other editors' users have complained about (docs/next-edit.md lists the behaviours).
"""

import pytest
from e2e.editors.next_edit_support import EDITORS, FAR, FAR_ROWS, NEAR, QUESTION
from e2e.editors.terminal_support import available
from e2e.lsp_support import server_command

pytestmark = pytest.mark.timeout(400)

RESTED = "foretype/cursorRested"
CONFIGURED = "workspace/didChangeConfiguration"
WIDTH, VALUES = (0, 9), (0, 10)
RENAMED = NEAR.replace("width", "breadth", 1)
FIRST = NEAR.replace("width", "breadth", 2)
ALL = NEAR.replace("width", "breadth")
MORE = {
    "emacs": """
(add-hook 'python-mode-hook (lambda () (setq-local completion-at-point-functions
  (list (lambda () (list (save-excursion (skip-syntax-backward "w_") (point)) (point) '("breath" "breadth" "breach") :exclusive 'no))))))
"""
}


@pytest.fixture(scope="module", params=EDITORS)
def started(request, served, tmp_path_factory):
    """One start of each editor for all tests of this file."""
    kind = available(EDITORS[request.param])
    folder = tmp_path_factory.mktemp(request.param)
    command = server_command("--gateway", served.url, log=folder / "lsp.log")
    with kind(folder, NEAR, command, config=MORE.get(request.param, "")) as it:
        yield it


@pytest.fixture(scope="module")
def eager(started):
    started.command("eagerness", "medium")  # a renamed declaration suffices
    return started


@pytest.fixture
def editor(eager):
    eager.afresh(NEAR)
    return eager


@pytest.fixture
def refusing(editor):
    """For a test that refuses something: the others are not to pay for it."""
    yield editor
    editor.forgiven()


def test_with_the_settings_that_ship_a_rename_waits_for_one_use_that_is_changed_by_hand(started):
    started.go(*WIDTH)
    started.word("breadth")
    started.until_text(RENAMED)
    started.go(3)
    assert started.last_edits() == []
    assert started.seen() is None
    started.go(1, 11)
    started.word("breadth")
    started.until_text(FIRST)
    started.go(1, 9)
    started.until_seen()
    started.taken()
    started.until_text(ALL)


def test_next_edit_01_tab_in_the_indentation_indents(editor):
    assert editor.renamed("breadth", *WIDTH).text == FIRST
    editor.go(1, 4)
    editor.insert()
    assert editor.seen()
    editor.press("Tab")
    editor.until_text(RENAMED.replace("    size", "    \tsize"))
    assert editor.messages.accepted() == []


def test_next_edit_02_one_key_ends_it_and_the_next_tab_is_a_tab(refusing):
    editor = refusing
    editor.renamed("breadth", *WIDTH)
    editor.press(editor.end_key)
    editor.until_gone()
    editor.go(3, 8)
    editor.insert()
    editor.press("Tab")
    editor.until_text(RENAMED.replace("    return", "    retu\trn"))
    editor.until(lambda: editor.messages.reasons() == ["rejected"])
    assert editor.messages.accepted() == []


@pytest.mark.parametrize(("source", "place"), [(NEAR, WIDTH), (FAR, VALUES)], ids=["near", "far"])
def test_next_edit_03_cursor_and_viewport_never_move_without_a_key(editor, source, place):
    editor.afresh(source)
    editor.go(*place)
    editor.word("everything")
    editor.until_text(source[: place[1]] + "everything" + source[source.index(",)"[source is FAR], place[1]) :])
    before = editor.view()
    editor.until_seen()
    assert editor.view() == before
    assert editor.last_edits()
    assert editor.view() == before


def test_next_edit_03_the_first_tab_jumps_and_the_second_applies(editor):
    editor.afresh(FAR)
    assert editor.renamed("everything", *VALUES).hint == f"→ next edit: line {FAR_ROWS + 1} ↓ ({editor.tab_name})"
    before = editor.text()
    editor.press("Tab")
    editor.until(lambda: editor.at() == (FAR_ROWS, 11))
    assert editor.text() == before
    assert editor.until_seen().text == FAR.replace("values", "everything")
    editor.press("Tab")
    editor.until_text(FAR.replace("values", "everything"))
    assert len(editor.messages.told("foretype/nextEditJumped")) == 1
    editor.until_accepted()
    editor.back()
    editor.until(lambda: editor.at()[0] == 0)  # where the jump began


def test_next_edit_04_nothing_is_offered_after_undo(editor):
    editor.renamed("breadth", *WIDTH)
    editor.undone(NEAR)
    assert editor.last_edits() == []
    assert editor.seen() is None


def test_next_edit_04_what_was_taken_back_is_not_offered_again(editor):
    editor.renamed("breadth", *WIDTH)
    editor.press("Tab")
    editor.until_text(FIRST)
    editor.undone(RENAMED)
    assert editor.last_edits() == []
    assert editor.seen() is None


def test_next_edit_05_another_change_moves_it_and_one_undo_restores(editor):
    editor.renamed("breadth", *WIDTH)
    editor.line_above(0, "# note")
    editor.until_text("# note\n" + RENAMED)
    editor.until(lambda: editor.messages.answered() and editor.seen() and editor.messages.reasons() == ["typed"])
    editor.go(1, 4)  # in the indentation Tab would indent
    editor.taken()
    editor.until_text("# note\n" + FIRST)
    editor.undo()
    editor.until_text("# note\n" + RENAMED)


def test_next_edit_06_typing_along_shrinks_it(editor):
    editor.renamed("breadth", *WIDTH)
    editor.go(1, 11)
    editor.overtype("br")
    editor.until_text(RENAMED.replace("= width", "= br"))
    editor.until(lambda: editor.seen() and editor.seen().text == FIRST)
    editor.type("ea")
    editor.until_text(RENAMED.replace("= width", "= brea"))
    assert editor.until_seen().text == FIRST
    editor.press("Tab")
    editor.until_text(FIRST)
    assert editor.messages.reasons() == []


def test_next_edit_06_typed_to_its_end_it_is_gone_and_typed_elsewhere_too(editor):
    editor.renamed("breadth", *WIDTH)
    editor.go(1, 11)
    editor.overtype("breadth")
    editor.until_text(FIRST)
    editor.until(lambda: editor.messages.reasons() == ["typed"])
    editor.afresh(NEAR)
    editor.renamed("breadth", *WIDTH)
    editor.go(1, 11)
    editor.overtype("bx")
    editor.until_text(RENAMED.replace("= width", "= bx"))
    editor.until(lambda: editor.messages.reasons() == ["typed"])
    assert editor.messages.accepted() == []


def test_next_edit_07_what_is_drawn_is_applied_at_the_end_of_the_file(editor):
    editor.afresh(NEAR + "last = area")
    drawn = editor.renamed("surface", 0, 4)
    assert drawn.hint or drawn.text
    editor.taken()
    editor.until(lambda: editor.text().rstrip("\n") == NEAR.replace("area", "surface") + "last = surface")


def test_next_edit_08_what_was_refused_is_not_offered_again_even_where_the_cursor_goes(editor):
    editor.renamed("breadth", *WIDTH)
    editor.command("dismiss")
    editor.until_gone()
    refused = editor.file
    forgiving = refused.with_name("forgiving.py")
    forgiving.write_text("def area(length):\n    return length\n", "utf-8")
    editor.messages.afresh()
    editor.visit(forgiving)
    editor.go(0, 9)
    editor.word("extent")
    editor.until(lambda: "extent" in editor.text())
    editor.asked_again()
    editor.press("Tab")
    editor.until(lambda: editor.messages.accepted())
    editor.visit(refused)
    editor.go(1, 11)
    editor.messages.afresh()
    editor.command("jump")
    assert editor.last_edits() == []
    assert editor.seen() is None
    assert editor.text() == RENAMED


def test_next_edit_09_a_menu_and_a_selection_come_first(editor):
    editor.renamed("breadth", *WIDTH)
    editor.press(*editor.select_keys)
    editor.until_gone()
    editor.press(editor.end_key)
    editor.afresh(NEAR + "# breach breadth\n")
    editor.renamed("brea", *WIDTH)
    editor.go(0, 13)
    editor.insert()
    assert editor.seen()
    editor.press(*editor.menu_keys)
    editor.until(lambda: editor.menu())
    editor.until_gone()
    editor.press("Tab")
    editor.press(editor.end_key)
    editor.until(lambda: not editor.menu())
    assert "size = width * height" in editor.text()
    assert editor.messages.accepted() == []


def test_next_edit_09_tab_is_what_it_was_where_nothing_is_shown(editor, request):
    editor.own_tab()
    request.addfinalizer(editor.no_own_tab)
    editor.press("Tab")
    editor.until(lambda: editor.own_tabs() == 1)
    editor.renamed("breadth", *WIDTH)
    editor.press("Tab")
    editor.until_text(FIRST)
    editor.until_seen()
    editor.press("Tab")
    editor.until_text(ALL)
    assert editor.last_edits() == []
    assert editor.own_tabs() == 1
    editor.press("Tab")
    editor.until(lambda: editor.own_tabs() == 2)


def test_next_edit_10_commands_do_what_the_keys_do(editor):
    editor.afresh(FAR)
    editor.renamed("everything", *VALUES)
    editor.command("jump")
    editor.until(lambda: editor.at()[0] == FAR_ROWS)
    editor.command("accept")
    editor.until_text(FAR.replace("values", "everything"))
    editor.until_accepted()


def test_next_edit_11_a_chain_leaves_the_text_as_the_rename_would_and_nothing_else(editor):
    editor.renamed("breadth", *WIDTH)
    editor.press("Tab")
    editor.until_text(FIRST)
    assert editor.until_seen().text == ALL
    editor.press("Tab")
    editor.until_text(ALL)
    assert editor.last_edits() == []
    assert editor.seen() is None
    assert editor.it.complaints() in ([], [""])


def test_next_edit_12_off_means_off_and_the_eagerness_is_told(editor):
    editor.command("toggle")
    editor.until(lambda: editor.messages.told(CONFIGURED))
    assert editor.messages.told(CONFIGURED)[-1]["settings"]["foretype"]["nextEdit"]["enabled"] is False
    editor.go(*WIDTH)
    editor.word("breadth")
    editor.until_text(RENAMED)
    rested = len(editor.messages.told(RESTED))
    editor.press("Left")
    editor.until(lambda: len(editor.messages.told(RESTED)) > rested)  # later than anything would be asked
    assert editor.messages.told(QUESTION) == []
    editor.command("eagerness", "medium")
    editor.until(lambda: len(editor.messages.told(CONFIGURED)) == 2)
    assert editor.messages.told(CONFIGURED)[-1]["settings"]["foretype"]["nextEdit"]["eagerness"] == "medium"
    editor.command("toggle")
    editor.until(lambda: len(editor.messages.told(CONFIGURED)) == 3)
    editor.appended(3, " ")
    editor.until_seen()
