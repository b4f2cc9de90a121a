"""Make the pictures of docs/capacity.md: the plan's page, and with results that of a simulation, too.

python tests/e2e/playground/picture_plan.py docs [RESULT.json …]
"""

import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.playground.page_support import MISSING, Page
from foretype_plan.page import page as page_of
from foretype_plan.scenario import Scenario
from foretype_plan.simulation.page import page as simulated
from foretype_plan.simulation.page import read_result


def main():
    if MISSING:
        sys.exit(f"picture_plan: {MISSING}")
    folder, *results = map(Path, sys.argv[1:])
    pages = {"plan": (page_of(Scenario(developers=20_000.0)), 900, "#tiles div")}
    if results:
        pages["simulate"] = (simulated([read_result(one) for one in results]), 1400, ".uplot")
    with tempfile.TemporaryDirectory() as name, closing(Page()) as page:
        for called, (text, height, drawn) in pages.items():
            file = Path(name) / f"{called}.html"
            file.write_text(text, "utf-8")
            page.do("open", url=file.as_uri(), width=1180, height=height)
            page.until(f"document.querySelectorAll('{drawn}').length > 0")
            page.do("screenshot", path=str(folder / f"{called}.png"))


if __name__ == "__main__":
    main()
