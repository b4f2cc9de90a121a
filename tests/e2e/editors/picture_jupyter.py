"""Make the picture of docs/notebooks.md: a notebook in JupyterLab with a suggestion of the shipped model.

python tests/e2e/editors/picture_jupyter.py docs/jupyter.png
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.editors.jupyter_support import Lab
from e2e.lsp_support import gateway

CELLS = (
    ("markdown", "### Times of visits\nMilliseconds, one line each."),
    "import statistics\n\n\ndef read_times(path):\n    with open(path) as lines:\n        return [float(line) for line in lines if line.strip()]",
    "times = read_times('visits.txt')",
)
TYPED = "\nmedian = statistics.med"
HEIGHT = 440


def main():
    with tempfile.TemporaryDirectory() as name, gateway(Path(name), engine="embedded") as running:
        lab = Lab(Path(name), running.url)
        try:
            lab.open(*CELLS, name="visits.ipynb")
            lab.page.type(TYPED, delay_ms=60)
            lab.page.until(lambda: lab.page.ghost().strip(), "ghost text")
            lab.page.do("screenshot", path=sys.argv[1], height=HEIGHT)
        finally:
            lab.close()


if __name__ == "__main__":
    main()
