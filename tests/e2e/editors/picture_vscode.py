"""Make the pictures of docs/editors.md: VS Code with a next edit by the server's own rules, near and far.

python tests/e2e/editors/picture_vscode.py docs
"""

import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.editors.test_vscode_next_edit import Window
from e2e.lsp_support import gateway

SOURCE = '''import statistics


def slowest(path, share=0.95):
    with open(path) as lines:
        read = [float(line) for line in lines]
    read.sort()
    limit = int(len(lines_left(read)) * share)
    return read[limit:]


def lines_left(values):
    """Without what was cut off by the clock."""
    return [value for value in values if value < 3600]


def summary(path):
    read = slowest(path)
    return {
        "count": len(read),
        "mean": statistics.mean(read),
        "median": statistics.median(read),
        "worst": max(read),
    }
'''
SIZE = {"width": 760, "height": 420}


def main():
    folder = Path(sys.argv[1]).resolve()
    with (
        tempfile.TemporaryDirectory() as name,
        gateway(Path(name)) as running,
        closing(Window(Path(name) / "vscode", running.url)) as window,
    ):
        window.it.do("size", **SIZE)
        window.it.do("focus")
        window.until(lambda: "ready" in (window.it.do("status") or ""), "the status item says ready")
        window.press("Control+b")  # the side bar
        window.open(SOURCE, 6, 10)
        window.press("Control+d")
        window.type("times", delay_ms=60)
        window.until(lambda: window.pieces(7) != [], "an edit that is near")
        window.it.do("screenshot", path=str(folder / "vscode-next-edit-near.png"))
        window.open(SOURCE, 12, 6)
        window.press("Control+d")
        window.type("in_time", delay_ms=60)
        window.until(lambda: window.hint() != "", "the way to one that is far")
        window.it.do("screenshot", path=str(folder / "vscode-next-edit-far.png"))


if __name__ == "__main__":
    main()
