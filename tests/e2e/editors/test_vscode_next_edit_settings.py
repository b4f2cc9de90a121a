"""VS Code with the settings that ship: what a next edit waits for, in a file and from cell to cell of a notebook."""

import json
import time

import pytest
from e2e.editors.test_vscode import MISSING
from e2e.editors.test_vscode_next_edit import ASK, FAR, FAR_LINE, SHOWN, SILENT_S, Window
from e2e.lsp_support import INLINE

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

CELLS = ("width = 1\nprint(width)", "area = width * 2\n", "# width\nprint(area, width)\n")


def notebook(*texts):
    own = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    cells = [{**own, "id": f"c{at}", "source": text.splitlines(keepends=True)} for at, text in enumerate(texts)]
    return json.dumps(
        {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    )


@pytest.fixture(scope="module")
def window(served, tmp_path_factory):
    with Window(tmp_path_factory.mktemp("vscode"), served.url, {}) as it:
        yield it


def followed(window):
    """A name was changed, and at one of two more places by hand, with the cursor behind it; the text."""
    text = FAR.replace("    return count\n", "    print(count)\n    return count\n")
    window.open(text)
    window.rename()
    asked = len(window.told(ASK))
    window.go(1, 1)
    window.until(lambda: len(window.told(ASK)) > asked, "it is asked")
    window.quiet()
    window.go(FAR_LINE, 11)
    window.press("Control+d")
    window.type("total", delay_ms=20)
    return text


def is_drawn_and_taken(window, text):
    window.until(lambda: window.pieces(FAR_LINE + 1) == [("struck", "count"), ("added", "total")], "the edit")
    window.press("Tab")
    window.saves(text.replace("count", "total"))


def test_a_rename_is_shown_once_it_was_followed_at_one_place_by_hand(window):
    text = followed(window)
    window.press("ArrowLeft")  # where no inline suggestion is
    is_drawn_and_taken(window, text)


def asks(window, method, position, *keys):
    """Keys, and the question of this place that they bring."""
    asked = len(window.told(method))
    window.press(*keys)
    window.until(
        lambda: [one["position"] for one in window.told(method)[asked:]][-1:] == [position], f"{method} of {position}"
    )


def moved_while_a_suggestion_was_on_its_way(window):
    hold = window.script.with_suffix(".hold")
    behind, left = ({"line": FAR_LINE - 1, "character": at} for at in (15, 14))
    hold.touch()
    try:
        asks(window, INLINE, behind, "Backspace", "l")
        asks(window, ASK, left, "ArrowLeft")
    finally:
        hold.unlink()


def test_a_suggestion_that_was_on_its_way_when_the_cursor_moved_gives_way(window):
    text = followed(window)
    moved_while_a_suggestion_was_on_its_way(window)
    is_drawn_and_taken(window, text)


def test_a_suggestion_that_was_on_its_way_when_the_cursor_moved_is_not_drawn_where_it_was(window):
    followed(window)
    window.script.write_text("[]")  # no next edit takes its place
    try:
        moved_while_a_suggestion_was_on_its_way(window)
        asked = window.tapped.asked()[-1]
        window.until(lambda: asked in window.tapped.suggested(), "the suggestion")
        end_s = time.monotonic() + SILENT_S
        while time.monotonic() < end_s:
            assert window.it.ghost() == ""
    finally:
        window.script.unlink()


def test_it_goes_on_from_cell_to_cell_of_a_notebook(window):
    file = window.it.work / "cells.ipynb"
    file.write_text(notebook(*CELLS))
    window.it.file = file
    window.it.open(file)
    window.it.do("cell")
    shown = len(window.told(SHOWN))
    window.press("Control+Home", "Control+d")
    window.type("size", delay_ms=20)
    window.press("ArrowDown", "Home", *("ArrowRight",) * 6, "Control+d")
    window.type("size", delay_ms=20)
    window.press("ArrowLeft")
    window.until(lambda: window.hint() == "→ next edit: cell 2, line 1 (Tab)", "the hint names the cell")
    assert window.it.do("active") == "size = 1print(size)"
    window.press("Tab")
    window.until(lambda: window.it.do("active").startswith("area ="), "the first Tab goes to the cell")
    window.until(lambda: ["struck", "width"] in window.it.do("drawn")[0]["pieces"], "it is drawn there")
    window.press("Tab")
    window.until(
        lambda: window.hint() == "→ next edit: cell 3, line 2 (Tab)",
        "the second one applies it, and the next is offered",
    )
    window.press("Control+z")
    window.until(lambda: "width" in window.it.do("active"), "one undo restores")
    window.press("Control+Shift+z")
    window.until(lambda: "size" in window.it.do("active"), "and back")
    window.press("Alt+j")
    wanted = ["size = 1\nprint(size)", "area = size * 2\n", CELLS[2]]
    window.until(lambda: window.it.cells(file) == wanted, f"saved as {wanted}")
    assert len(window.told(SHOWN)) >= shown + 2
