"""Sessions of a hundred keys in JupyterLab: nothing is lost, nothing is put in that was not shown, the server has the page's cells.

FORETYPE_SESSIONS says how many (3 where it is not set).
"""

import json
import os
import random
import time

import pytest
from e2e.editors.jupyter_support import MISSING, Lab
from e2e.editors.session_support import Session
from e2e.lsp_support import gateway

SESSIONS = int(os.environ.get("FORETYPE_SESSIONS", "3"))
KEYS = 100
# Backspace in the indentation takes one blank.
PLAIN = {
    "@jupyterlab/notebook-extension:tracker": {"codeCellConfig": {"autoClosingBrackets": False, "indentUnit": "1"}}
}
# JupyterLab's own menu would offer words of the cell, and with a 😀 above JupyterLab 4.6 puts what is chosen there a character too far:
# an error on its page, with the extension or without. What ranks a menu's sources is a user's file: of another's default nothing is kept.
MENU = {"availableProviders": {"CompletionProvider:kernel": 550, "CompletionProvider:context": -1}}
SETTLED_S = 30.0
pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    menu = folder / "config/lab/user-settings/@jupyterlab/completer-extension/manager.jupyterlab-settings"
    menu.parent.mkdir(parents=True)
    menu.write_text(json.dumps(MENU))
    with gateway(folder, decode_s=0.005, prefill_s=0.0005) as running:
        it = Lab(folder, running.url, settings=PLAIN)
        it.jupyter.add_kernel("silent", "python")  # Tab opens the kernel's menu where there is no suggestion
        try:
            yield it
        finally:
            it.close()


class InCell:
    """What a session needs of an editor, for the active cell."""

    own_indentation = False

    def __init__(self, page):
        self._page = page

    def type(self, text):
        self._page.type(text)

    def press(self, key):
        if key == "Enter":  # what the page indents by itself is taken back, blank by blank
            self._page.press("Enter")
            active = self._page.do("active")
            self._page.press(*["Backspace"] * len(active["text"][: active["offset"]].rpartition("\n")[2]))
        else:
            self._page.press({"BSpace": "Backspace", "Right": "ArrowRight", "Word": "Alt+ArrowRight"}.get(key, key))

    def buffer(self):
        return self._page.active()

    def ghost(self):
        return self._page.ghost()

    def caught_up(self):
        """A key is pressed when the page has taken it."""


class InNotebook(Session):
    """Tab takes a suggestion, indents, or does nothing where there is none: JupyterLab has it for its menu behind a word."""

    def _tab(self):
        before = self._editor.ghost()
        self._editor.press("Tab")
        line = self.left.rpartition("\n")[2]
        end_s = time.monotonic() + 180
        while True:
            text = self._editor.buffer()
            blanks = [(self.left + " " * count, self.right) for count in range(5)] if not line.strip() else []
            fitting = [pair for pair in [(self.left, self.right), *blanks, *self._allowed()] if "".join(pair) == text]
            if fitting:
                break
            assert time.monotonic() < end_s, f"Tab made {text!r} of {self.text!r}, where {before!r} was shown"
        if fitting[0] == (self.left, self.right) and before:
            time.sleep(0.2)
            assert self._editor.ghost() != before, f"Tab does nothing where {before!r} is shown"
        self.left, self.right = fitting[0]


@pytest.mark.parametrize("seed", range(SESSIONS))
def test_a_hundred_keys_leave_what_was_typed_and_accepted_and_the_server_has_the_cells(lab, seed):
    rng = random.Random(seed)
    name = lab.open(
        "import os\n\ndef total(values, start=0):\n    ",
        ("markdown", "# Text"),
        "x = 1\n",
        app=rng.choice(["lab/tree", "notebooks"]),
        kernel="silent",
    )
    session = InNotebook(InCell(lab.page), lab.tapped, rng, left="x = 1\n")
    session.play(KEYS)
    lab.agrees(name)
    assert lab.tapped.settled(SETTLED_S) == []
    assert lab.tapped.errors() == []
    assert lab.page.complaints() == []
    assert "ERROR" not in lab.log.read_text()
