"""What of next edits is VS Code's alone: its menu, snippets and renames, its second key, its palette. A server that says what a file lists
stands in for ours; what is as in other editors is in test_next_edit.py and test_next_edit_drawn.py.
"""

import sys

import pytest
from e2e.editors.next_edit_support import ENDED, FAR, FAR_ROWS, SHOWN, InVsCode, at, offering
from e2e.editors.terminal_support import available
from e2e.editors.test_next_edit_drawn import STUB

pytestmark = pytest.mark.timeout(300)

NEAR = "count = 1\nprint(count)\n    return count\n"
EDIT = at(1, 6, 1, 11, "total")
AWAY = at(FAR_ROWS, 11, FAR_ROWS, 17, "everything")


@pytest.fixture(scope="module")
def only_window(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vscode")
    offering(folder / "offered.json")
    with available(InVsCode)(folder, NEAR, (sys.executable, STUB, folder / "offered.json")) as it:
        yield it


@pytest.fixture
def window(only_window):
    yield only_window
    offering(only_window.folder / "offered.json")
    assert only_window.it.complaints() == []


def offered(window, text, edit, row=0, typed="#", **more):
    """A file with this text, and this edit, once something was typed at the end of a line."""
    offering(window.folder / "offered.json")
    window.afresh(text)
    window.at_end_of(row)
    offering(window.folder / "offered.json", edit, **more)
    window.type(typed)
    return window.until_seen()


def test_next_edit_01_in_the_indentation_the_hint_names_another_key(window):
    assert offered(window, FAR, AWAY, row=1).hint == f"→ next edit: line {FAR_ROWS + 1} ↓ (Tab)"
    window.go(1, 2)
    window.until(lambda: window.hint() == f"→ next edit: line {FAR_ROWS + 1} ↓ (Alt+J)")


def test_next_edit_06_typing_along_shrinks_it(window):
    offered(window, NEAR, EDIT)
    window.go(1, 6)
    window.type("to", delay_ms=50)
    window.until(lambda: window.until_drawn() == NEAR.replace("= 1", "= 1#").replace("(count", "(total"))
    assert len(window.messages.told(SHOWN)) == 1
    window.press("Tab")
    window.until_text(NEAR.replace("= 1", "= 1#").replace("(count", "(total"))
    window.until_accepted()


def test_next_edit_09_the_menu_has_its_tab(window):
    text = NEAR + "alpha\nalpha_one = alpha_two = 1\n"
    offered(window, text, EDIT, row=3, typed="_")
    assert window.hint() == "→ next edit: line 2 ↑ (Tab)"
    window.press("Control+Space")
    window.until(lambda: window.it.do("menu"))
    window.press("Tab")
    window.until_text(text.replace("alpha\n", "alpha_one\n"))
    assert window.messages.accepted() == []


def test_next_edit_09_a_snippet_has_its_tab(window):
    offering(window.folder / "offered.json")
    window.afresh("x = 1\n\n")
    window.go(1)
    window.type("looping")
    window.press("Control+Space")
    window.until(lambda: window.it.do("menu"))
    offering(window.folder / "offered.json", at(0, 0, 0, 1, "other"))
    window.press("Tab")
    window.until(lambda: "for  in" in window.it.do("text") and window.hint() != "")
    row, column = window.at()
    window.press("Tab")
    window.until(lambda: window.at() == (row, column + len(" in ")))  # the snippet's next place
    assert window.it.do("text").startswith("x = 1\n")


def test_next_edit_10_one_key_does_both(window):
    offered(window, FAR, AWAY)
    window.press("Alt+j")
    window.until(lambda: window.at() == (FAR_ROWS, 11))
    window.until(lambda: not window.hint() and window.drawn())
    window.press("Alt+j")
    window.until_text(FAR.replace("):", "):#").replace("return values", "return everything"))


def test_next_edit_10_the_palette_dismisses_it_too(window):
    offered(window, FAR, AWAY)
    window.command("dismiss")
    window.until_gone()
    window.until(lambda: [one["reason"] for one in window.messages.told(ENDED)] == ["rejected"])


def test_an_inline_suggestion_and_a_next_edit_are_never_both_on_screen(window):
    offered(window, NEAR, EDIT)
    assert window.it.ghost() == ""
    offering(window.folder / "offered.json", EDIT, text="2", replaces=0)
    window.press("Alt+\\")
    window.until(lambda: window.it.ghost() != "")  # what was asked for, and it alone
    window.until_gone()


def test_the_editors_own_rename_still_works(window):
    file = window.it.work / "own.js"
    window.it.edit(file, "function scale(values) {\n  const count = values.length;\n  return count;\n}\nscale([]);\n")
    window.at_end_of(1)
    offering(window.folder / "offered.json", at(2, 9, 2, 14, "total"))
    window.type(" ")
    window.until_seen()
    window.go(1, 10)
    window.press("F2")
    window.until(lambda: window.it.do("renaming"))  # the editor's own
    window.type("amount")  # over the name, which is selected there
    window.press("Enter")
    window.until(lambda: "return amount" in window.it.do("text"))
    window.until_gone()  # no next edit of a text that is gone
