"""Make the picture of docs/capacity.md: python tests/e2e/playground/picture_simulate.py docs RESULT.json …"""

import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.playground.page_support import MISSING, Page
from foretype_plan.simulation.page import page as page_of
from foretype_plan.simulation.page import read_result


def main():
    if MISSING:
        sys.exit(f"picture_simulate: {MISSING}")
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "simulated.html"
        file.write_text(page_of([read_result(Path(one)) for one in sys.argv[2:]]), "utf-8")
        with closing(Page()) as page:
            page.do("open", url=file.as_uri(), width=1180, height=1400)
            page.until("document.querySelectorAll('.uplot').length > 0")
            page.do("screenshot", path=str(Path(sys.argv[1]) / "simulate.png"))


if __name__ == "__main__":
    main()
