"""Make the pictures of docs/notebooks.md: a suggestion of the shipped model in JupyterLab, and a next edit, its hint and then its drawing.

python tests/e2e/editors/picture_jupyter.py docs        jupyter.png and next-edit-jupyter.png
"""

import base64
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.editors.jupyter_support import CHROMIUM, Lab
from e2e.lsp_support import gateway

CELLS = (
    ("markdown", "### Times of visits\nMilliseconds, one line each."),
    "import statistics\n\n\ndef read_times(path):\n    with open(path) as lines:\n        return [float(line) for line in lines if line.strip()]",
    "times = read_times('visits.txt')",
)
TYPED = "\nmedian = statistics.med"
HEIGHT = 440

RENAMED = (
    "values = read_times('visits.txt')\nfirst = values[0]",
    ("markdown", "### How long visits take\nIn milliseconds."),
    "statistics.median(values)",
    "print(max(values) - first)",
)
PART = {"x": 300, "y": 96, "width": 752, "height": 231}
PAGE = '<html><body style="margin:0;background:#bdbdbd">{}</body></html>'
PANEL = '<img style="display:block;margin:0 0 6px" src="data:image/png;base64,{}">'


@contextmanager
def opened(cells, name, engine, **more):
    with (
        tempfile.TemporaryDirectory() as folder,
        gateway(Path(folder), engine=engine) as running,
        closing(Lab(Path(folder), running.url)) as lab,
    ):
        lab.open(*cells, name=name, **more)
        yield lab.page


def suggestion(docs):
    with opened(CELLS, "visits.ipynb", "embedded") as page:
        page.type(TYPED, delay_ms=60)
        page.until(lambda: page.ghost().strip(), "ghost text")
        page.do("screenshot", path=str(docs / "jupyter.png"), height=HEIGHT)


def next_edit(docs):
    with opened(RENAMED, "visits.ipynb", "scripted", focus=0) as page, tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for moves in (("Control+Home",), ("ArrowDown", "Home", *["ArrowRight"] * len("first = "))):
            page.press(*moves, "Control+Shift+ArrowRight")
            page.type("times", delay_ms=40)
        page.until(page.hint, "the hint")
        panels = [page.do("screenshot", path=str(folder / "hint.png"), **PART)]
        page.press("Tab")
        page.until(lambda: page.pieces(2, 0), "the drawing")
        panels.append(page.do("screenshot", path=str(folder / "drawing.png"), **PART))
        html = folder / "page.html"
        html.write_text(
            PAGE.format("".join(PANEL.format(base64.b64encode(Path(one).read_bytes()).decode()) for one in panels))
        )
        size = f"--window-size={PART['width']},{2 * PART['height'] + 6}"
        options = ("--headless", "--no-sandbox", "--hide-scrollbars", size)
        subprocess.run(
            [CHROMIUM, *options, f"--screenshot={docs / 'next-edit-jupyter.png'}", html.as_uri()], check=True
        )


def main():
    docs = Path(sys.argv[1]).resolve()
    suggestion(docs)
    next_edit(docs)


if __name__ == "__main__":
    main()
