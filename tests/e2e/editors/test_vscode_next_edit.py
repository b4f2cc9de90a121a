"""VS Code shows the edit that the last ones call for: twelve behaviours, in one window, with the real server and its own rules.

What no rule says yet (several lines, another file, an answer for another version) is answered by a script in its place.
"""

import json
import shlex
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from e2e.editors.session_support import Tapped, whole
from e2e.editors.test_vscode import MISSING, QUIET
from e2e.editors.vscode_support import VsCode
from e2e.lsp_support import NOTHING_UNASKED, gateway

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

SETTINGS = {
    **QUIET,
    "editor.minimap.enabled": False,
    "editor.occurrencesHighlight": "off",
    "editor.autoIndent": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
}
ASK, SHOWN, ENDED = "textDocument/copilotInlineEdit", "textDocument/didShowInlineEdit", "foretype/nextEditEnded"
ACCEPT, JUMPED = "foretype.nextEdit.accept", "foretype/nextEditJumped"
PATIENCE_S = 180.0
STARTS_S = 120.0
FILL = "".join(f"    step_{i} = factor * {i}\n" for i in range(60))
NEAR = "def scale(values, factor):\n    count = len(values)\n    print(count)\n    return factor\n"
FAR = f"def scale(values, factor):\n    count = len(values)\n{FILL}    return count\n"
FAR_LINE = 63
SNIPPETS = {"loop": {"scope": "python", "prefix": "looping", "body": ["for ${1} in ${2}:", "\tpass$0"]}}
COOL_DOWN_S = 5.5
SILENT_S = 3.0
"""Longer than the rules take to answer, where nothing must come."""


class Window:
    """VS Code, and what of the next edit is on its screen."""

    def __init__(self, folder: Path, url: str, settings: dict):
        folder.mkdir(exist_ok=True)
        self.script = folder / "script.json"
        program = Path(__file__).parent / "next_edit_script.py"
        server = (sys.executable, "-m", "foretype_lsp", "--gateway", url)
        command = shlex.join(map(str, (sys.executable, program, self.script, folder / "tap.jsonl", *server)))
        launcher = folder / "foretype"
        launcher.write_text(f'#!/bin/sh\nshift\nexec {command} "$@"\n')
        launcher.chmod(0o755)
        files = {".vscode/own.code-snippets": json.dumps(SNIPPETS)}
        self.it = VsCode(
            folder,
            NEAR,
            {**SETTINGS, "foretype.server.path": str(launcher), **settings},
            files=files,
        )
        self.tapped = Tapped(folder / "tap.jsonl")
        self._refusals = 0
        self._names = map("case_{}.py".format, count())
        self.press, self.type, self.close = self.it.press, self.it.type, self.it.close

    def __enter__(self):
        try:
            self.it.do("focus")
            self.until(lambda: "ready" in (self.it.do("status") or ""), "the status item says ready", STARTS_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def until(self, satisfied, what, deadline_s=PATIENCE_S):
        try:
            self.it.until(satisfied, what, deadline_s)
        except TimeoutError as never:
            raise TimeoutError(f"{never}; cursor {self.it.do('cursor')}, drawn {self.drawn()}") from None

    def open(self, text, line=1, column=1):
        """A file of its own with `text`, and the cursor."""
        file = self.it.work / next(self._names)
        file.write_text(text)
        self.it.file = file
        self.it.open(file)
        self.it.do("focus")
        self.go(line, column)

    def go(self, line, column):
        self.it._pick("Control+g", f"{line}:{column}")
        self.until(lambda: self.at() == (line, column), f"the cursor is at {line}:{column}")

    def saves(self, wanted):
        """The buffer becomes this text, and is saved. What a key does may come later than the key."""

        def saved():
            self.press("Control+s")
            time.sleep(0.2)
            return self.it.file.read_text() == wanted

        self.until(saved, f"saved as {wanted!r}")

    def run(self, title):
        """Run a command of ours by its title, once the palette has found it."""
        self.it._pick("F1", f"Foretype: {title}", title)

    def at(self):
        cursor = self.it.do("cursor")
        return cursor["line"], cursor["column"]

    def rename(self, new="total"):
        """Type another name over the one in line 2."""
        self.go(2, 6)
        self.press("Control+d")
        self.type(new, delay_ms=20)

    def renamed(self, text):
        """A file with `text`, in which the name was changed."""
        self.open(text)
        self.rename()

    def drawn(self):
        """Lines on screen with anything of a next edit."""
        return [
            line
            for line in self.it.do("drawn")
            if line["below"] or line["hint"] or any(kind != "kept" for kind, _ in line["pieces"])
        ]

    def pieces(self, line):
        """What of a line is struck and added."""
        found = [one["pieces"] for one in self.drawn() if one["line"] == line]
        return [(kind, text) for kind, text in (found[0] if found else []) if kind != "kept"]

    def hint(self):
        return "".join(line["hint"] for line in self.drawn())

    def promised(self):
        """The text, as the screen says that it will be."""
        made = []
        for line in self.it.do("drawn"):
            text = "".join(text for kind, text in line["pieces"] if kind != "struck")
            gone = line["pieces"] and all(kind == "struck" for kind, _ in line["pieces"])
            made += [*([] if gone else [text]), *("" if one == " " else one for one in line["below"])]
        return "\n".join(made)

    def told(self, method):
        """Parameters of what the editor said."""
        return [one["params"] for one in self.tapped.messages("editor") if one.get("method") == method]

    def ends(self):
        """How the last one ended that was not accepted."""
        ended = self.told(ENDED)
        return ended[-1]["reason"] if ended else None

    def accepted(self):
        return [one["arguments"] for one in self.told("workspace/executeCommand") if one["command"] == ACCEPT]

    def answered(self):
        """Until each question for a next edit has its answer."""

        def done():
            asked = [one["id"] for one in self.tapped.messages("editor") if one.get("method") == ASK]
            answers = self.tapped.answers()
            return all(answers[id] for id in asked)

        self.until(done, "every question is answered")

    def cool(self):
        """After a refusal there is silence for a while."""
        if any(one["reason"] == "rejected" for one in self.told(ENDED)[self._refusals :]):
            time.sleep(COOL_DOWN_S)
        self._refusals = len(self.told(ENDED))

    def quiet(self):
        """Nothing comes."""
        time.sleep(SILENT_S)
        self.answered()
        assert self.drawn() == []

    def asks(self, *edits):
        """Something was typed: the cursor moves to the left, and the question that this asks is answered by the script."""
        self.quiet()
        self.scripted(*edits)
        self.press("ArrowLeft")

    def scripted(self, *edits):
        """What the next questions are answered with; each (text, start line, start column, end line, end column), from 1."""
        whole(
            self.script,
            [
                {
                    "text": text,
                    "range": {
                        "start": {"line": line - 1, "character": column - 1},
                        "end": {"line": end_line - 1, "character": end_column - 1},
                    },
                    **(more[0] if more else {}),
                }
                for text, line, column, end_line, end_column, *more in edits
            ],
        )


@pytest.fixture(scope="module")
def only_window(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vscode")
    # A completion wins over a next edit, so that none comes unasked.
    with (
        gateway(folder, more=NOTHING_UNASKED) as served,
        Window(folder / "code", served.url, {"foretype.nextEdit.eagerness": "medium"}) as it,
    ):
        yield it


@pytest.fixture
def window(only_window):
    yield only_window
    only_window.script.unlink(missing_ok=True)
    only_window.cool()
    assert only_window.it.do("notifications") == []


def test_next_edit_01_tab_in_the_indentation_indents(window):
    window.renamed(NEAR)
    window.until(lambda: window.pieces(3) == [("struck", "count"), ("added", "total")], "the edit")
    window.go(3, 3)
    window.until(lambda: window.pieces(3) != [], "it is still there")
    window.press("Tab")
    window.until(lambda: window.at() == (3, 5), "the cursor is a stop further")
    window.saves(NEAR.replace("count =", "total =").replace("    print", "      print"))
    window.renamed(FAR)
    window.until(lambda: window.hint() == f"→ next edit: line {FAR_LINE} ↓ (Tab)", "the hint")
    window.go(2, 2)
    window.until(lambda: window.hint() == f"→ next edit: line {FAR_LINE} ↓ (Alt+J)", "the hint names another key")


def test_next_edit_02_one_escape_ends_it_and_the_next_tab_is_a_tab(window):
    window.renamed(NEAR)
    window.until(lambda: window.pieces(3) != [], "the edit")
    window.press("Escape")
    window.until(lambda: window.drawn() == [], "it is gone")
    window.press("Tab")
    window.saves(NEAR.replace("count =", "total    ="))
    window.until(lambda: window.ends() == "rejected", "the server knows")


def test_next_edit_03_cursor_and_viewport_never_move_without_a_key(window):
    window.renamed(FAR)
    typed = {"line": 2, "column": 10, "top": 1}
    window.until(lambda: window.it.do("cursor") == typed, "the cursor is behind what was typed")
    window.until(lambda: window.hint() != "", "the hint")
    window.answered()
    time.sleep(SILENT_S)
    assert window.it.do("cursor") == typed
    window.press("Tab")
    window.until(lambda: window.at() == (FAR_LINE, 12), "the first Tab jumps")
    window.until(lambda: window.pieces(FAR_LINE) == [("struck", "count"), ("added", "total")], "it is drawn there")
    assert window.it.do("cursor")["top"] > 1
    window.until(lambda: len(window.told(JUMPED)) > 0, "the server is told")
    window.press("Tab")
    window.saves(FAR.replace("count", "total"))


def test_next_edit_04_what_was_deleted_or_undone_is_not_offered_again(window):
    window.renamed(NEAR)
    window.until(lambda: window.pieces(3) != [], "the edit")
    window.press("Tab")
    window.until(lambda: window.at() == (3, 16), "it is applied")
    window.press("Control+z")
    window.until(lambda: "print(count)" in window.it.do("text"), "it is undone")
    window.quiet()
    window.press("ArrowDown")
    window.quiet()
    window.renamed(NEAR)
    window.until(lambda: window.pieces(3) != [], "the edit")
    window.press("Tab")
    window.until(lambda: window.at() == (3, 16), "it is applied")
    window.press(*("Backspace",) * 5)
    window.until(lambda: "print()" in window.it.do("text"), "what came is deleted")
    window.quiet()


def test_next_edit_05_another_edit_drops_it_wrong_versions_are_never_applied_and_one_undo_restores(window):
    window.renamed(NEAR)
    window.until(lambda: window.pieces(3) != [], "the edit")
    window.press("Control+Home", "Enter")
    window.until(lambda: window.ends() == "typed", "it is dropped")
    window.until(lambda: window.hint() or window.pieces(4) != [], "it is offered anew")
    window.go(3, 10)
    window.until(lambda: window.pieces(4) == [("struck", "count"), ("added", "total")], "where it is now")
    renamed = "\n" + NEAR.replace("count =", "total =")
    window.press("Tab")
    window.saves("\n" + NEAR.replace("count", "total"))
    window.press("Control+z")
    window.saves(renamed)
    shown = len(window.told(SHOWN))
    window.scripted(("wrong", 1, 1, 1, 4, {"version": 1}))
    window.press("Control+End")
    window.type("x = 1")
    window.quiet()
    assert len(window.told(SHOWN)) == shown


def test_next_edit_06_typing_along_shrinks_it(window):
    window.renamed(FAR)
    window.until(lambda: window.hint() != "", "the hint")
    window.press("Tab")
    window.until(lambda: window.pieces(FAR_LINE) == [("struck", "count"), ("added", "total")], "it is drawn there")
    shown = len(window.told(SHOWN))
    window.type("to", delay_ms=50)
    window.until(lambda: window.pieces(FAR_LINE) == [("struck", "count"), ("added", "tal")], "what is left")
    assert len(window.told(SHOWN)) == shown
    window.press("Tab")
    window.saves(FAR.replace("count", "total"))
    window.until(lambda: len(window.accepted()) > 0, "the server is told")


WHOLE = "def f(a):\n    one = a\n    two = one\n    return two"
DRAWN = {
    "insertion": ("one, ", 3, 11, 3, 11),
    "deletion": ("", 3, 8, 3, 14),
    "at the end of the file": ("\n\n\ndef g():\n    pass", 4, 15, 4, 15),
    "several lines": ("    two = one + 1\n    three = 3\n    four = 4\n    return four", 3, 1, 4, 15),
    "fewer lines": ("    return one", 3, 1, 4, 15),
    "a line before": ("    zero = 0\n", 3, 1, 3, 1),
    "no ASCII": ("print('😀')\n    ", 4, 5, 4, 5),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_next_edit_07_what_is_drawn_is_what_is_applied(window, kind):
    window.open(WHOLE, 2, 12)
    text, line, column, end_line, end_column = DRAWN[kind]
    window.type("b")
    window.asks((text, line, column, end_line, end_column))
    window.until(lambda: window.drawn() != [], "the edit")
    promised = window.promised()
    before = WHOLE.replace("one = a", "one = ab")
    offsets = [
        sum(len(row) + 1 for row in before.split("\n")[: y - 1]) + x - 1
        for y, x in ((line, column), (end_line, end_column))
    ]
    assert promised == before[: offsets[0]] + text + before[offsets[1] :]
    window.press("Tab")
    window.saves(promised)


def test_next_edit_08_rejected_stays_rejected_even_after_a_click(window):
    window.renamed(NEAR)
    window.until(lambda: window.pieces(3) != [], "the edit")
    window.press("Escape")
    window.until(lambda: window.drawn() == [], "it is gone")
    window.it.do("click", line=3)
    window.until(lambda: window.at()[0] == 3, "the cursor is there")
    window.quiet()
    window.press("Control+End")
    asked = len(window.told(ASK))
    window.type("x = 1", delay_ms=20)
    window.until(lambda: len(window.told(ASK)) > asked, "it is asked again")
    window.quiet()


def test_next_edit_09_menu_snippet_and_others_tab_win(window):
    text = NEAR.replace("print(count)", "print(count)\n    alpha_") + "alpha_one = alpha_two = 1\n"
    window.open(text)
    window.rename()
    window.until(lambda: window.pieces(3) != [], "the edit")
    window.go(4, 11)
    window.until(lambda: window.hint() != "", "it is above now")
    window.press("Control+Space")
    window.until(lambda: window.it.do("menu"), "the menu")
    window.press("Tab")
    window.saves(text.replace("count =", "total =").replace("    alpha_\n", "    alpha_one\n"))

    window.open("x = 1\n\n", 2, 1)
    window.type("looping")
    window.press("Control+Space")
    window.until(lambda: window.it.do("menu"), "the menu")
    window.scripted(("other", 1, 1, 1, 2))
    window.press("Tab")
    window.until(lambda: "for  in" in window.it.do("text") and window.hint() != "", "snippet and edit")
    at = window.at()
    window.press("Tab")
    window.until(lambda: window.at() == (2, at[1] + len(" in ")), "the snippet's next place")
    assert window.it.do("text").startswith("x = 1\n")


def test_next_edit_10_everything_is_reached_by_the_keyboard_alone(window):
    window.renamed(FAR)
    window.until(lambda: window.hint() != "", "the hint")
    window.run("Go to the Next Edit")
    window.until(lambda: window.pieces(FAR_LINE) != [], "it is there")
    assert window.at() == (FAR_LINE, 12)
    window.run("Accept the Next Edit")
    window.saves(FAR.replace("count", "total"))
    window.renamed(FAR)
    window.until(lambda: window.hint() != "", "the hint")
    window.press("Alt+j")
    window.until(lambda: window.pieces(FAR_LINE) != [], "it is there")
    window.press("Alt+j")
    window.saves(FAR.replace("count", "total"))


def test_next_edit_10_the_palette_dismisses_it_too(window):
    window.renamed(FAR)
    window.until(lambda: window.hint() != "", "the hint")
    window.run("Dismiss the Next Edit")
    window.until(lambda: window.drawn() == [], "it is gone")
    window.until(lambda: window.ends() == "rejected", "it was refused")


def test_next_edit_11_no_tail_is_doubled_and_no_mark_is_left(window):
    text = NEAR.replace("print(count)", "print(count, count)\n    values[count:count]")
    window.open(text)
    window.rename("count_all")
    for done in range(len(window.accepted()), len(window.accepted()) + 4):
        window.until(lambda: window.drawn() != [], "an edit")
        if window.hint():
            window.press("Tab")
            window.until(lambda: not window.hint(), "it is drawn in place")
        window.press("Tab")
        window.until(lambda done=done: len(window.accepted()) > done, "it is accepted")
    window.saves(text.replace("count", "count_all"))
    window.quiet()


def test_next_edit_12_off_means_off_eagerness_is_kept_and_in_other_files_it_jumps_first(window):
    other = window.it.work / "other.py"
    other.write_text("import case\n\nname = '😀'; case.count()\n")
    window.open(NEAR)
    window.type("#")
    window.asks(("total", 3, 19, 3, 24, {"uri": other.as_uri(), "version": None}))
    window.until(lambda: window.hint() == "→ next edit: other.py, line 3 (Alt+J)", "the hint names the file")
    window.press("End")
    window.until(lambda: window.hint() == "→ next edit: other.py, line 3 (Tab)", "the hint names the file")
    window.press("Tab")
    window.until(lambda: window.it.do("tab") == "other.py", "the file is open")
    window.until(lambda: window.pieces(3) == [("struck", "count"), ("added", "total")], "the edit, in its place")
    assert window.at() == (3, 18)  # as VS Code counts: in UTF-16 it is the nineteenth
    assert other.read_text() == "import case\n\nname = '😀'; case.count()\n"
    window.it.file = other
    window.press("Tab")
    window.saves("import case\n\nname = '😀'; case.total()\n")
    window.script.unlink()

    switched(window, to=False)
    window.open(NEAR)
    asked = len(window.told(ASK))
    window.rename()
    window.quiet()
    assert len(window.told(ASK)) == asked
    switched(window, to=True)
    eager(window, "low")
    window.open(ALIKE)
    like_edits(window)
    window.quiet()
    eager(window, "medium")
    window.open(ALIKE)
    like_edits(window)
    window.until(lambda: window.drawn() != [], "what two examples say")
    # An edit that is left where it is offered would be offered from the files of the tests after this one.
    window.press("Escape")
    window.until(lambda: window.drawn() == [], "turned away")


LEVELS = ("low", "medium", "high")
ALIKE = "first = load(alpha)\nsecond = load(beta)\nthird = load(gamma)\n"


def like_edits(window):
    """The same second argument, by hand, twice."""
    for line in (1, 2):
        window.go(line, len(ALIKE.splitlines()[line - 1]))
        window.type(", True", delay_ms=20)
    window.go(2, 3)


def switched(window, *, to):
    """Switch next edits, and wait until the server is told: the settings change later than the command ends."""
    window.run("Switch Next Edits On or Off")
    told = "workspace/didChangeConfiguration"
    window.until(
        lambda: [one["settings"]["foretype"]["nextEdit"]["enabled"] for one in window.told(told)][-1:] == [to], "told"
    )


def eager(window, level):
    window.press("F1")
    window.it.do("palette", shown=True)
    window.type("Foretype: Choose How Eager Next Edits Are")
    window.it.do("picked", text="Choose How Eager")
    window.press("Enter")
    window.until(lambda: len(window.it.do("rows")) == len(LEVELS), "the levels")
    window.type(level)
    window.it.do("picked", text=level)
    window.press("Enter")
    window.it.do("palette", shown=False)


def test_an_inline_suggestion_and_a_next_edit_are_never_both_on_screen(window):
    window.renamed(NEAR)
    window.until(lambda: window.pieces(3) != [], "the edit")
    assert window.it.ghost() == ""
    window.press("End", "Alt+\\")
    window.until(lambda: window.it.ghost() != "", "the suggestion that was asked for")
    window.until(lambda: window.drawn() == [], "and it alone")


def test_the_editors_own_rename_still_works(window):
    file = window.it.work / "own.js"
    file.write_text("function scale(values) {\n  const count = values.length;\n  return count;\n}\nscale([]);\n")
    window.it.file = file
    window.it.open(file)
    window.it.do("focus")
    window.go(2, 9)
    window.press("End")
    window.type(" ")
    window.asks(("total", 3, 10, 3, 15))
    window.until(lambda: window.pieces(3) != [], "a next edit")
    window.go(2, 11)
    window.press("F2")
    window.until(lambda: window.it.do("renaming"), "the editor's own rename")
    window.type("amount")  # over the name, which is selected there
    window.press("Enter")
    window.until(lambda: "return amount" in window.it.do("text"), "renamed")
    window.until(lambda: window.drawn() == [], "no next edit of a text that is gone")
