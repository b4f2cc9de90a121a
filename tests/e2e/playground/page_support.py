"""The playground in a headless Chromium."""

import os
import shutil
import time
from pathlib import Path

from e2e.browser import Browser

MODULES = Path(__file__).resolve().parents[3] / "editors/playground"
CHROMIUM = os.environ.get("FORETYPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
MISSING = None
if not (MODULES / "node_modules/playwright-core").is_dir() or not (MODULES / "node_modules/axe-core").is_dir():
    MISSING = "needs playwright-core and axe-core: (cd editors/playground && npm install)"
elif CHROMIUM is None or shutil.which("node") is None:
    MISSING = "needs node and Chromium on the path (or FORETYPE_CHROMIUM)"


class Page(Browser):
    """Driven by drive.mjs."""

    def __init__(self):
        super().__init__(Path(__file__).parent / "drive.mjs", CHROMIUM, FORETYPE_PLAYGROUND=str(MODULES))

    def evaluate(self, expression):
        return self.do("evaluate", expression=expression)

    def until(self, expression, wanted=True):
        end_s = time.monotonic() + 180
        while (got := self.evaluate(expression)) != wanted:
            assert time.monotonic() < end_s, f"{expression} is {got!r}, not {wanted!r}"
            time.sleep(0.02)

    def text(self):
        """What the editor holds, on the screen, without what is only drawn there."""
        return self.evaluate(
            "[...document.querySelectorAll('.cm-line')].map((line) => { const copy = line.cloneNode(true);"
            " copy.querySelectorAll('.ghost, .next-new, .next-way').forEach((one) => one.remove()); return copy.textContent; }).join('\\n')"
        )
