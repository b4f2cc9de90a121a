"""Make the picture of docs/capacity.md: python tests/e2e/playground/picture_plan.py docs"""

import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.playground.page_support import MISSING, Page
from foretype_plan.page import page as page_of
from foretype_plan.scenario import Scenario


def main():
    if MISSING:
        sys.exit(f"picture_plan: {MISSING}")
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "plan.html"
        file.write_text(page_of(Scenario(developers=20_000.0)), "utf-8")
        with closing(Page()) as page:
            page.do("open", url=file.as_uri(), width=1180, height=900)
            page.until("document.querySelectorAll('#tiles div').length > 0")
            page.do("screenshot", path=str(Path(sys.argv[1]) / "plan.png"))


if __name__ == "__main__":
    main()
