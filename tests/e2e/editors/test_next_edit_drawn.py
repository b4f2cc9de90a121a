"""What is drawn of a next edit is what is applied, whatever its shape: a server that says what a file lists stands in for ours.

Our own engine replaces one name at a time; a model, and other engines behind the same method, do not.
"""

import sys
from pathlib import Path

import pytest
from e2e.editors.next_edit_support import EDITORS, InEmacs, offering
from e2e.editors.terminal_support import available

pytestmark = pytest.mark.timeout(400)

STUB = Path(__file__).parent / "stub_lsp.py"
SOURCE = "# start?\nalpha beta\ngamma\ndelta\n"
CHANGED = SOURCE.replace("?", "!")
NEOVIMS = pytest.mark.parametrize("started", ["neovim", "neovim_old"], indirect=True)


def at(first, column, last, end, text, **more):
    """A next edit."""
    return {
        "range": {"start": {"line": first, "character": column}, "end": {"line": last, "character": end}},
        "text": text,
        **more,
    }


SHAPES = {
    "inserted": (at(1, 5, 1, 5, " one"), ("alpha beta", "alpha one beta")),
    "deleted": (at(1, 5, 1, 10, ""), ("alpha beta", "alpha")),
    "a_line_deleted": (at(1, 0, 2, 0, ""), ("alpha beta\n", "")),
    "the_last_line_deleted": (at(3, 0, 4, 0, ""), ("delta\n", "")),
    "lines_inserted": (at(2, 0, 2, 0, "new\nlines\n"), ("gamma", "new\nlines\ngamma")),
    "lines_inserted_at_the_end": (at(4, 0, 4, 0, "new\nlines\n"), ("delta\n", "delta\nnew\nlines\n")),
    "several_lines_replaced": (at(1, 0, 3, 0, "one\ntwo three\n"), ("alpha beta\ngamma\n", "one\ntwo three\n")),
    "from_the_middle_of_a_line": (at(1, 5, 2, 2, "-\n-"), ("alpha beta\ngamma", "alpha-\n-mma")),
    "lines_joined": (at(1, 10, 2, 0, ""), ("beta\ngamma", "betagamma")),
    "a_whole_line_with_the_same_tail": (at(1, 0, 1, 10, "alpha two beta"), ("alpha beta", "alpha two beta")),
    "more_lines_with_the_same_ends": (at(1, 0, 4, 0, "alpha beta\nnu\ndelta\n"), ("gamma", "nu")),
}


@pytest.fixture(scope="module", params=EDITORS)
def started(request, tmp_path_factory):
    """One start of each editor for all tests of this file."""
    kind = available(EDITORS[request.param])
    folder = tmp_path_factory.mktemp(f"{request.param}_drawn")
    offering(folder / "offered.json")
    with kind(folder, SOURCE, (sys.executable, STUB, folder / "offered.json")) as it:
        yield it


@pytest.fixture
def offered(started):
    """The editor with a file, and a function that changes it, upon which the server offers this."""
    started.afresh(SOURCE)

    def changed(*edits, text=CHANGED, **more):
        offering(started.folder / "offered.json", *edits, **more)
        started.exclaimed(0)
        started.until_text(text)
        return started

    started.offered = changed
    yield started
    offering(started.folder / "offered.json")


def taken(editor, text):
    """Take what is shown, which is drawn as what comes of it; then take it back."""
    before = editor.text()
    if editor.until_seen().hint:
        editor.press("Tab")
        editor.until(lambda: editor.seen() and editor.seen().text)
        assert editor.text() == before
    assert editor.seen().text == text
    editor.press("Tab")
    editor.until_text(text)
    editor.undo()
    editor.until_text(before)
    editor.until_accepted()


@pytest.mark.parametrize("shape", SHAPES)
def test_next_edit_07_drawn_is_applied(offered, shape):
    edit, replaced = SHAPES[shape]
    editor = offered.offered(edit)
    taken(editor, CHANGED.replace(*replaced))


def editor_counts_characters(editor):
    """lsp-mode offers UTF-32 first, and takes it for granted."""
    return isinstance(editor, InEmacs)


def test_next_edit_07_columns_are_the_protocols(started, offered):
    source = SOURCE.replace("alpha", "älpha 😀")
    started.afresh(source)
    first = 8 if editor_counts_characters(started) else 9  # the pair of UTF-16 is one character
    editor = offered.offered(at(1, first, 1, first + 4, "ômega"), text=source.replace("?", "!"))
    taken(editor, source.replace("?", "!").replace("beta", "ômega"))


def test_next_edit_07_lines_that_end_as_in_windows(started, offered):
    started.afresh(SOURCE.replace("\n", "\r\n"))
    editor = offered.offered(at(2, 0, 2, 0, "new\r\nlines\r\n"))
    taken(editor, CHANGED.replace("gamma", "new\nlines\ngamma"))


def test_next_edit_05_an_edit_of_another_version_is_not_shown(offered):
    editor = offered.offered(at(1, 5, 1, 10, "", version=100_000))
    assert editor.last_edits() != []
    assert editor.seen() is None
    editor.press("Tab")
    assert editor.messages.accepted() == []


def test_next_edit_05_an_edit_that_does_not_fit_is_not_shown(offered):
    editor = offered.offered(at(90, 5, 90, 10, "-"))
    assert editor.last_edits() != []
    editor.caught_up()
    assert editor.seen() is None
    assert editor.text() == CHANGED
    assert editor.it.complaints() in ([], [""])


def test_next_edit_12_another_file_is_gone_to_first(offered):
    other = offered.file.with_name("other.py")
    other.write_text(SOURCE)
    editor = offered.offered(at(3, 1, 3, 5, "owntown", uri=other.as_uri(), version=None))
    assert editor.until_seen().hint == f"→ next edit: other.py:4 ({editor.tab_name})"
    first = editor.file
    editor.press("Tab")
    editor.until(lambda: editor.shown_file() == other)
    assert editor.text() == SOURCE
    editor.until(lambda: editor.at() == (3, 1))
    taken(editor, SOURCE.replace("delta", "downtown"))
    editor.visit(first)
    assert editor.text() == CHANGED


def test_next_edit_12_where_only_the_place_is_known_tab_goes_there_and_no_further(offered):
    editor = offered.offered(at(3, 2, 3, 2, "", jumpOnly=True))
    assert editor.until_seen().hint == f"→ next edit: line 4 ↓ ({editor.tab_name})"
    editor.press("Tab")
    editor.until(lambda: editor.at() == (3, 2))
    editor.until_gone()
    assert editor.text() == CHANGED
    assert editor.messages.accepted() == []


def test_next_edit_09_a_suggestion_at_the_cursor_comes_first(offered):
    editor = offered
    offering(editor.folder / "offered.json", at(1, 5, 1, 10, ""), text="INLINE", replaces=0)
    editor.loud()
    try:
        editor.at_end_of(0)
        editor.type("!")
        editor.until(lambda: editor.it.ghost())
        assert editor.seen() is None
        editor.press("Tab")
        editor.until(lambda: "start?!INLINE" in editor.text())
        assert editor.messages.accepted() == []
    finally:
        editor.at_rest()
        editor.settle()


@NEOVIMS
def test_next_edit_09_nothing_is_accepted_behind_another_window(offered):
    editor = offered.offered(at(1, 5, 1, 10, ""))
    editor.until_seen()
    over = "{relative = 'editor', row = 0, col = 0, width = 40, height = 8, noautocmd = true}"
    window = editor.ask(f"vim.api.nvim_open_win(vim.api.nvim_create_buf(false, true), false, {over})")
    editor.press("Tab")
    editor.caught_up()
    assert editor.text() == CHANGED
    assert editor.messages.accepted() == []
    editor.ask(f"vim.api.nvim_win_close({window}, true) or 1")
    editor.press("Tab")
    editor.until_text(CHANGED.replace("alpha beta", "alpha"))


@pytest.mark.parametrize("started", ["neovim"], indirect=True)
def test_next_edit_09_a_snippet_keeps_its_tab(offered):
    editor = offered
    offering(editor.folder / "offered.json", at(1, 5, 1, 10, ""))
    editor.at_end_of(0)
    editor.ask("vim.snippet.expand('(${1:one}, ${2:two})') or 1")
    editor.until(lambda: editor.text() == SOURCE.replace("?", "?(one, two)"))
    editor.type("un")
    editor.press("Tab")
    editor.type("deux")
    editor.until_text(SOURCE.replace("?", "?(un, deux)"))
    assert editor.seen() is None
    assert editor.messages.accepted() == []
