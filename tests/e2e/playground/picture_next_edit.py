"""Make the picture of docs/editors.md: the playground with a next edit, the way to it and then its drawing.

python tests/e2e/playground/picture_next_edit.py docs        next-edit-playground.png
"""

import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.lsp_support import gateway
from e2e.playground.page_support import MISSING, Page
from e2e.playground.test_page_next_edit import SHOWN, WAY, Editor

SOURCE = '''"""Of boxes, in metres."""


def volume(width, height, depth):
    """In cubic metres."""
    if depth < 0:
        raise ValueError(depth)
    if height < 0:
        raise ValueError(height)
    return width * height * depth


print(volume(1, 2, 3))
'''


def main():
    if MISSING:
        sys.exit(f"picture_next_edit: {MISSING}")
    with (
        tempfile.TemporaryDirectory() as name,
        gateway(Path(name), prefill_s=60.0) as running,
        closing(Page()) as page,
    ):
        editor = Editor(page, f"http://127.0.0.1:{running.port}/playground")
        editor.rename(SOURCE, 3, "width", "breadth")
        editor.seen()
        assert page.evaluate(WAY)
        page.press("Tab")
        page.until("document.querySelectorAll('.next-new').length > 0")
        assert page.evaluate(SHOWN)
        page.do("screenshot", path=str(Path(sys.argv[1]) / "next-edit-playground.png"))


if __name__ == "__main__":
    main()
