"""Make the pictures of docs/editors.md: VS Code with a next edit by the server's own rules, near and far.

python tests/e2e/editors/picture_vscode.py docs
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.editors.next_edit_support import InVsCode
from e2e.lsp_support import gateway, server_command

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
    with tempfile.TemporaryDirectory() as name, gateway(Path(name)) as running:
        settings = {"foretype.nextEdit.eagerness": "medium", "editor.inlineSuggest.enabled": False}
        code = Path(name) / "vscode"
        code.mkdir()
        with InVsCode(code, SOURCE, server_command("--gateway", running.url), config=settings) as window:
            window.it.do("size", **SIZE)
            window.press("Control+b")  # the side bar
            for row, column, new, file in ((5, 9, "times", "near"), (11, 5, "in_time", "far")):
                window.afresh(SOURCE)
                window.renamed(new, row, column)
                window.it.do("screenshot", path=str(folder / f"vscode-next-edit-{file}.png"))


if __name__ == "__main__":
    main()
