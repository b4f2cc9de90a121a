"""The next edit in JupyterLab and Notebook 7: our own server at its default from cell to cell, and a scripted one for what no rule says.

The numbers are those of the behaviours that `test_next_edit.py` tests in other editors.
"""

import json
import urllib.request
from contextlib import closing

import pytest
from e2e.editors.jupyter_support import MISSING, TOKEN, Lab, Stubbed
from e2e.lsp_support import gateway

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(400)]

ASK, SHOWN = "textDocument/copilotInlineEdit", "textDocument/didShowInlineEdit"
CHANGE = "notebookDocument/didChange"
JUMPED, ENDED, ACCEPT = "foretype/nextEditJumped", "foretype/nextEditEnded", "foretype.nextEdit.accept"
CELLS = (
    "count = 1\nlimit = count * 2",
    ("markdown", "words about count"),
    "print(count)",
    "total = count + limit\nshow(count, count)",
)
FOLLOWED = ("code", "size = 1\nlimit = size * 2")
# A busy kernel may take longer than the second that JupyterLab's menu waits for it.
PATIENT = {"@jupyterlab/completer-extension:manager": {"providerTimeout": 60_000}}
MODE = "jupyterapp.shell.currentWidget.content.mode"


class Notebook:
    """A page with a notebook, and what is said of its next edits."""

    def __init__(self, lab):
        self.lab, self.page = lab, lab.page
        self.name, self._before = "", {}

    def open(self, *cells, **more):
        self._before = {
            method: len(self.lab.told(method)) for method in (ASK, SHOWN, JUMPED, ENDED, "workspace/executeCommand")
        }
        self.name = self.lab.open(*cells, **{"focus": 0, **more})

    def told(self, method):
        """What the page said since the notebook was opened."""
        return self.lab.told(method)[self._before[method] :]

    def accepted(self):
        return [one["arguments"] for one in self.told("workspace/executeCommand") if one["command"] == ACCEPT]

    def reasons(self):
        return [one["reason"] for one in self.told(ENDED)]

    def until(self, satisfied, what):
        try:
            self.page.until(satisfied, what)
        except TimeoutError as never:
            said = f"drawn {self.page.drawn()}, {self.page.do('active')}, ended {self.reasons()}"
            raise TimeoutError(f"{never}; {said}") from None

    def until_pieces(self, cell, line, *pieces):
        self.until(lambda: self.page.pieces(cell, line) == list(pieces), f"{pieces} in line {line} of cell {cell}")

    def until_hint(self, hint):
        self.until(lambda: self.page.hint() == hint, f"the hint {hint!r}")

    def until_gone(self):
        self.until(lambda: self.page.drawn() == [], "nothing is drawn")

    def until_at(self, text, offset):
        """The keys go to a cell with this text, and the cursor is there."""
        self.until(
            lambda: self.page.do("active") == {"text": text, "offset": offset}, f"the cursor at {offset} of {text!r}"
        )

    def answered(self):
        """Until each question is answered, and there was one."""

        def done():
            asked = [one["id"] for one in self.lab.said("editor", ASK)]
            answers = self.lab.tapped.answers()
            return self.told(ASK) and all(answers[id] for id in asked)

        self.until(done, "every question is answered")

    def rests(self):
        """The page has said that the cursor rests where it was moved: before that it would have asked for a next edit."""
        before = len(self.lab.tapped.rested())
        keys = iter(["ArrowLeft", "ArrowRight"] * 100)

        def told():
            self.page.press(next(keys))
            self.page.do("evaluate", expression="new Promise((resolve) => setTimeout(resolve, 300))")
            return len(self.lab.tapped.rested()) > before

        self.until(told, "the cursor rests")

    def asks_nothing(self):
        before = len(self.told(ASK))
        self.rests()
        assert len(self.told(ASK)) == before
        assert self.page.drawn() == []

    def asks_nothing_of_the_last_change(self):
        """A question from before it may still be on its way."""
        self.rests()
        told = [message.get("method") for message in self.lab.tapped.messages("editor")]
        change = max(place for place, method in enumerate(told) if method == CHANGE)
        assert ASK not in told[change:]
        assert self.page.drawn() == []

    def replace_word(self, new):
        """Type over the word right of the cursor."""
        self.page.press("Control+Shift+ArrowRight")
        self.page.type(new, delay_ms=20)

    def rename(self):
        """Of `CELLS`: another name for `count`, and its first use changed by hand."""
        self.page.press("Control+Home")
        self.replace_word("size")
        self.answered()
        assert self.page.drawn() == []  # the declaration alone says nothing at the default
        self.page.press("ArrowDown", "Home", *["ArrowRight"] * len("limit = "))
        self.replace_word("size")

    def uri(self, cell):
        return self.lab.of(self.name)[0]["params"]["cellTextDocuments"][cell]["uri"]

    def offers(self, *edits, text=None):
        """Each (text, start line, start character, end line, end character, more) from 0; the next key asks."""
        made = []
        for new, line, start, end_line, end, *more in edits:
            places = {"start": {"line": line, "character": start}, "end": {"line": end_line, "character": end}}
            made.append({"text": new, "range": places, **(more[0] if more else {})})
        self.lab.answer(text, next=made)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    with gateway(folder, decode_s=0.002) as running, closing(Lab(folder, running.url)) as it:
        yield it


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    with closing(Stubbed(tmp_path_factory.mktemp("stub"), settings=PATIENT)) as it:
        yield it


@pytest.fixture
def real(lab):
    yield Notebook(lab)
    assert lab.page.complaints() == []
    assert lab.tapped.errors() == []
    assert "ERROR" not in lab.log.read_text()


@pytest.fixture
def scripted(stub):
    stub.answer()
    yield Notebook(stub)
    assert stub.page.complaints() == []


@pytest.fixture
def page(scripted):
    return scripted.page


@pytest.mark.parametrize("app", ["lab/tree", "notebooks"])
def test_next_edit_03_a_rename_is_followed_from_cell_to_cell_by_tab_and_nothing_moves_before(real, app):
    page = real.page
    real.open(*CELLS, app=app)
    real.rename()
    typed = page.do("active")
    real.until_hint("→ next edit: cell 3, line 1 (Tab)")
    assert page.do("active") == typed == {"text": FOLLOWED[1], "offset": len("size = 1\nlimit = size")}
    assert page.cells() == [FOLLOWED, *[one if isinstance(one, tuple) else ("code", one) for one in CELLS[1:]]]
    page.until(lambda: len(real.told(SHOWN)) == 1, "the server is told that it is shown")
    page.press("Tab")
    real.until_at("print(count)", len("print("))
    real.until_pieces(2, 0, ("struck", "count"), ("added", "size"))
    assert page.hint() == ""
    real.until(lambda: real.told(JUMPED) == [{"id": real.told(SHOWN)[0]["item"]["data"]["id"]}], "the server is told")
    page.press("Tab")
    real.until_at("print(size)", len("print(size"))
    real.until_hint("→ next edit: cell 4, line 1 (Tab)")
    page.press("Tab")
    real.until_pieces(3, 0, ("struck", "count"), ("added", "size"))
    page.press("Tab")
    for uses in (1, 2):  # in the line below, where it is drawn without a jump
        real.until(lambda uses=uses: [kind for kind, _ in page.pieces(3, 1)] == ["struck", "added"], f"use {uses}")
        page.press("Tab")
        real.until(lambda uses=uses: page.active().count("size") == 1 + uses, f"use {uses} is changed")
    real.until_gone()
    assert page.cells() == [
        FOLLOWED,
        CELLS[1],
        ("code", "print(size)"),
        ("code", "total = size + limit\nshow(size, size)"),
    ]
    real.until(lambda: len(real.accepted()) == len(real.told(SHOWN)) == 4, "the server is told")
    assert real.reasons() == []
    real.lab.agrees(real.name)


def test_next_edit_04_05_one_undo_restores_and_nothing_is_offered_after_it(real):
    page = real.page
    real.open(*CELLS)
    real.rename()
    real.until_hint("→ next edit: cell 3, line 1 (Tab)")
    page.press("Tab", "Tab")
    real.until_at("print(size)", len("print(size"))
    page.press("Control+z")
    real.until(lambda: page.active() == "print(count)", "restored")
    assert page.cells()[0] == FOLLOWED
    real.until_gone()
    real.asks_nothing_of_the_last_change()
    real.lab.agrees(real.name)


def test_an_inline_suggestion_and_a_next_edit_are_never_both_on_screen(real):
    page = real.page
    real.open(*CELLS)
    real.rename()
    real.until_hint("→ next edit: cell 3, line 1 (Tab)")
    assert page.ghost() == ""
    page.press("End", "Alt+\\")
    real.until(lambda: page.ghost() != "", "the suggestion that was asked for")
    real.until_gone()
    real.until(lambda: real.reasons() == ["replaced"], "the server is told")
    page.press("Tab")
    real.until(lambda: page.active().startswith(FOLLOWED[1]) and page.active() != FOLLOWED[1], "the suggestion")
    assert real.accepted() == []


def test_an_inline_suggestion_that_is_there_keeps_the_next_edit_away(scripted, page):
    scripted.open("value = ")
    scripted.offers(("other", 0, 0, 0, 5), text="23")
    page.type("1")
    page.until_ghost("23")
    scripted.answered()
    page.press("Tab")
    scripted.until(lambda: scripted.told("workspace/executeCommand") != [], "the suggestion is accepted")
    methods = [one.get("method") for one in scripted.lab.tapped.messages("editor")]
    assert SHOWN not in methods[: methods.index("workspace/executeCommand")]
    assert page.active() == "value = 123"


def test_next_edit_06_typing_along_shrinks_it_and_no_suggestion_takes_its_place(scripted, page):
    scripted.open("x = 1\nvalue = count")
    scripted.offers(("size", 1, 8, 1, 13))
    page.press("Control+Home", "End")
    page.type("0")
    scripted.until_pieces(0, 1, ("struck", "count"), ("added", "size"))
    scripted.offers(("size", 1, 8, 1, 13), text="23")
    page.press("ArrowDown", "End", "Control+Shift+ArrowLeft")
    scripted.until_gone()  # while something is selected
    page.type("s")
    scripted.until_pieces(0, 1, ("added", "ize"))
    asked = len(scripted.lab.tapped.asked())
    page.type("i")
    scripted.until_pieces(0, 1, ("added", "ze"))
    scripted.until(
        lambda: len(scripted.lab.tapped.asked()) > asked and not scripted.lab.tapped.unanswered(), "answered"
    )
    scripted.rests()
    scripted.until(lambda: len(scripted.told(SHOWN)) == 1, "the server is told")
    assert page.ghost() == ""
    page.press("End", "Tab")
    scripted.until_at("x = 10\nvalue = size", len("x = 10\nvalue = size"))
    scripted.until(lambda: len(scripted.accepted()) == 1, "the server is told")
    assert scripted.reasons() == []


def test_next_edit_05_another_change_drops_it_and_wrong_versions_are_never_shown(scripted, page):
    scripted.open("x = 1\nvalue = count", "y = 2")
    scripted.offers(("size", 1, 8, 1, 13))
    page.press("Control+Home", "End")
    page.type("0")
    scripted.until_pieces(0, 1, ("struck", "count"), ("added", "size"))
    scripted.offers(("size", 1, 8, 1, 13, {"version": 0}), ("wrong", 0, 0, 0, 1))
    asked = len(scripted.told(ASK))
    page.type("0")
    scripted.until(lambda: scripted.reasons() == ["typed"], "it is dropped")
    scripted.until(lambda: len(scripted.told(ASK)) > asked, "it is asked again")
    scripted.answered()
    scripted.rests()
    scripted.until(lambda: len(scripted.told(SHOWN)) == 1, "the server is told")
    assert page.drawn() == []
    scripted.offers(("size", 0, 0, 0, 1, {"uri": scripted.uri(1), "version": 1}))
    page.type("0")
    scripted.answered()
    scripted.rests()
    scripted.until(lambda: len(scripted.told(SHOWN)) == 1, "the server is told")
    assert page.drawn() == []


WHOLE = "def f(a):\n    one = a\n    two = one\n    return two"
DRAWN = {
    "insertion": ("one, ", 2, 10, 2, 10),
    "deletion": ("", 2, 7, 2, 13),
    "at the end of the cell": ("\n\n\ndef g():\n    pass", 3, 14, 3, 14),
    "several lines": ("    two = one + 1\n    three = 3\n    four = 4\n    return four", 2, 0, 3, 14),
    "fewer lines": ("    return one", 2, 0, 3, 14),
    "a line before": ("    zero = 0\n", 2, 0, 2, 0),
    "no ASCII": ("print('😀')\n    ", 3, 4, 3, 4),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_next_edit_07_what_is_drawn_is_what_is_applied_and_lines_stay_where_they_are(scripted, kind, page):
    scripted.open(WHOLE, "after = 1")
    text, line, start, end_line, end = DRAWN[kind]
    scripted.offers(DRAWN[kind])
    page.press("Control+Home", "ArrowDown", "End")
    tops = "[...document.querySelectorAll('.jp-Cell .cm-line')].slice(0, 4).map((line) => line.getBoundingClientRect().top)"
    before = page.do("evaluate", expression=tops)
    page.type("b")
    scripted.until(lambda: page.drawn() != [], "the edit")
    assert page.do("evaluate", expression=tops) == before
    typed = WHOLE.replace("one = a", "one = ab")
    offsets = [sum(len(row) + 1 for row in typed.split("\n")[:y]) + x for y, x in ((line, start), (end_line, end))]
    wanted = typed[: offsets[0]] + text + typed[offsets[1] :]
    assert page.promised(0) == wanted
    page.press("Tab")
    scripted.until(lambda: page.active() == wanted, "applied")
    page.press("Control+z")
    scripted.until(lambda: page.active() == typed, "one undo restores")


def test_next_edit_01_tab_in_the_indentation_indents(scripted, page):
    scripted.open("def f():\n    x = 1\n    return count", "print(count)")
    scripted.offers(("size", 2, 11, 2, 16), ("size", 0, 6, 0, 11, {"uri": scripted.uri(1), "version": 0}))
    page.press("Control+Home", "End")
    page.type(" ")
    scripted.until_pieces(0, 2, ("struck", "count"), ("added", "size"))
    page.press("ArrowDown", "Home", "Home", "Tab")
    scripted.until(lambda: page.active() == "def f(): \n        x = 1\n    return count", "indented")
    scripted.until_pieces(0, 2, ("struck", "count"), ("added", "size"))  # asked for anew
    page.press("End", "Tab")
    scripted.until_hint("→ next edit: cell 2, line 1 (Tab)")
    page.press("Home")  # behind the blanks
    scripted.until_hint("→ next edit: cell 2, line 1 (Alt+J)")
    scripted.until(lambda: len(scripted.accepted()) == 1, "the server is told")


def test_next_edit_01_where_a_jump_has_put_the_cursor_tab_applies_in_the_indentation_too(scripted, page):
    scripted.open("x = 1", "    count")
    scripted.offers(("size", 0, 4, 0, 9, {"uri": scripted.uri(1), "version": 0}))
    page.type("0")
    scripted.until_hint("→ next edit: cell 2, line 1 (Tab)")
    page.press("Tab")
    scripted.until_at("    count", 4)
    scripted.until_pieces(1, 0, ("struck", "count"), ("added", "size"))
    page.press("Tab")
    scripted.until_at("    size", 8)


def test_next_edit_02_08_escape_ends_it_alone_and_then_all_keys_are_jupyters_until_something_is_typed(scripted, page):
    scripted.open("x = 1", "print(count)")
    scripted.offers(("size", 0, 6, 0, 11, {"uri": scripted.uri(1), "version": 0}))
    page.type("0")
    scripted.until_hint("→ next edit: cell 2, line 1 (Tab)")
    page.press("Escape")
    scripted.until_gone()
    scripted.until(lambda: scripted.reasons() == ["rejected"], "the server is told")
    assert page.do("evaluate", expression=MODE) == "edit"
    page.press("Home", "Tab")
    scripted.until(lambda: page.active() == "    x = 10", "indented")
    scripted.until_hint("→ next edit: cell 2, line 1 (Alt+J)")  # that is typed, too
    page.press("Escape")
    scripted.until_gone()
    page.focus(1)
    scripted.asks_nothing()
    page.press("Escape")
    scripted.until(lambda: page.do("evaluate", expression=MODE) == "command", "Jupyter's own Escape")
    assert scripted.accepted() == [] and scripted.told(JUMPED) == []


def test_next_edit_03_a_cell_that_was_never_on_screen_is_jumped_to(scripted, page):
    scripted.open("x = 1", *[f"step_{at} = {at}\n\n" for at in range(60)], "def f():\n    print(count)")
    scripted.offers(("size", 1, 10, 1, 15, {"uri": scripted.uri(61), "version": 0}))
    page.type("0")
    scripted.until_hint("→ next edit: cell 62, line 2 (Tab)")
    page.press("Tab", "Tab")  # the second waits for what the first does
    scripted.until_at("def f():\n    print(size)", len("def f():\n    print(size"))
    view = "jupyterapp.shell.currentWidget.content.activeCell.editor.editor"
    cursor = f"{view}.coordsAtPos({view}.state.selection.main.head)"
    screen = "document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect()"
    inside = f"{cursor}.top >= {screen}.top && {cursor}.bottom <= {screen}.bottom"
    scripted.until(lambda: page.do("evaluate", expression=inside), "it is on the screen")
    scripted.lab.agrees(scripted.name)


def test_next_edit_03_what_was_moved_away_from_is_gone(scripted, page):
    scripted.open("x = 1\n\n\n\n\n\n\n", "print(count)")
    page.press("Control+Home", "End")
    scripted.offers(("size", 0, 6, 0, 11, {"uri": scripted.uri(1), "version": 0}))
    page.type("0")
    scripted.until_hint("→ next edit: cell 2, line 1 (Tab)")
    for line in (1, 2, 3):
        page.press("ArrowDown")
        scripted.until(lambda line=line: [one["line"] for one in page.drawn()] == [line], f"the hint in line {line}")
    page.press("ArrowDown")
    scripted.until_gone()
    scripted.until(lambda: scripted.reasons() == ["moved"], "the server is told")


def test_next_edit_03_another_cell_is_a_move_and_nothing_is_shown_outside_of_cells(scripted, page):
    scripted.open("x = 1", "print(count)")
    scripted.offers(("size", 0, 6, 0, 11, {"uri": scripted.uri(1), "version": 0}))
    page.type("0")
    scripted.until_hint("→ next edit: cell 2, line 1 (Tab)")
    page.press("ArrowDown")
    scripted.until_pieces(1, 0, ("struck", "count"), ("added", "size"))
    page.do("evaluate", expression="document.activeElement.blur()")
    scripted.until_gone()
    scripted.until(lambda: scripted.reasons() == ["hidden"], "the server is told")


def test_next_edit_08_a_place_to_look_at_is_jumped_to_and_nothing_else(scripted, page):
    scripted.open("x = 1", "print(count)")
    scripted.offers(("", 0, 6, 0, 6, {"uri": scripted.uri(1), "version": 0, "jumpOnly": True}))
    page.type("0")
    scripted.until_hint("→ next edit: cell 2, line 1 (Tab)")
    page.press("Tab")
    scripted.until_at("print(count)", 6)
    scripted.until_gone()
    scripted.until(lambda: len(scripted.told(JUMPED)) == 1, "the server is told")
    assert scripted.accepted() == [] and scripted.reasons() == []


def test_next_edit_09_the_menu_has_its_keys(scripted, page):
    scripted.open("alpha_one = alpha_two = 1", "alpha_")
    page.kernel()
    page.press("Shift+Enter")
    ran = "jupyterapp.shell.currentWidget.content.widgets[0].model.executionCount"
    scripted.until(lambda: page.do("evaluate", expression=ran) == 1, "it was run")
    page.focus(1)
    scripted.offers(("other", 0, 0, 0, 5, {"uri": scripted.uri(0), "version": 0}))
    page.press("Home", "End")
    page.press("Backspace")
    scripted.until_hint("→ next edit: cell 1, line 1 (Tab)")
    page.execute("completer:invoke-notebook")
    menu = "document.querySelectorAll('.jp-Completer:not(.lm-mod-hidden) .jp-Completer-item').length"
    scripted.until(lambda: page.do("evaluate", expression=menu) > 1, "the menu")
    page.press("Escape")
    scripted.until(lambda: page.do("evaluate", expression=menu) == 0, "the menu is closed")
    assert page.hint() != "" and scripted.reasons() == []
    page.execute("completer:invoke-notebook")
    scripted.until(lambda: page.do("evaluate", expression=menu) > 1, "the menu")
    page.press("Tab", "Enter")
    scripted.until(lambda: page.active().startswith("alpha_"), "the menu's item")
    assert scripted.told(JUMPED) == [] and scripted.accepted() == []


def test_next_edit_10_alt_j_and_the_commands_do_what_tab_and_escape_do(scripted, page):
    scripted.open("x = 1", "print(count)", "print(count)")
    edits = [("size", 0, 6, 0, 11, {"uri": scripted.uri(at), "version": 0}) for at in (1, 2)]
    scripted.offers(*edits)
    page.press("Home")
    page.type(" ")
    scripted.until_hint("→ next edit: cell 2, line 1 (Alt+J)")
    page.press("Alt+j", "Alt+j")
    scripted.until_hint("→ next edit: cell 3, line 1 (Tab)")
    page.execute("foretype:next-edit-take")
    scripted.until_at("print(count)", 6)
    scripted.answered()  # a second answer would be drawn in the place of the first, and between them nothing is there to dismiss
    scripted.until_pieces(2, 0, ("struck", "count"), ("added", "size"))
    page.execute("foretype:next-edit-dismiss")
    scripted.until(lambda: scripted.reasons() == ["rejected"], "refused")
    assert page.cells()[1:] == [("code", "print(size)"), ("code", "print(count)")]


@pytest.fixture
def options(stub):
    """Writes the user's options; there are none afterwards."""

    def write(**options):
        url = f"{stub.jupyter.url}lab/api/settings/foretype-jupyter:plugin?token={TOKEN}"
        body = json.dumps({"raw": json.dumps({"options": options})}).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PUT"), timeout=180).close()

    yield write
    write()


@pytest.mark.parametrize("off", [{"enabled": False}, False])
def test_next_edit_12_off_means_off(scripted, options, off, page):
    options(nextEdit=off)
    scripted.open("x = 1", "print(count)")
    scripted.offers(("size", 0, 6, 0, 11, {"uri": scripted.uri(1), "version": 0}))
    told = [
        one["settings"]["foretype"]["nextEdit"] for one in scripted.lab.told("workspace/didChangeConfiguration")[-1:]
    ]
    assert told == [off]
    page.type("0")
    scripted.asks_nothing()
    assert scripted.told(ASK) == []
