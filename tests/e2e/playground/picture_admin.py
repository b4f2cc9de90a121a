"""Make the pictures of docs/reports.md: a simulated company's week on the gateway's page, light and dark.

python tests/e2e/playground/picture_admin.py docs
"""

import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.playground.admin_support import WEEK, served
from e2e.playground.page_support import MISSING, Page


def main():
    if MISSING:
        sys.exit(f"picture_admin: {MISSING}")
    folder = Path(sys.argv[1])
    with (
        tempfile.TemporaryDirectory() as name,
        served(Path(name), developers=200, suggestions=2) as (url, key),
        closing(Page()) as page,
    ):
        for scheme, height in (("light", 900), ("dark", 900)):
            page.do("open", url=f"{url}/admin#reports?of={WEEK}", scheme=scheme, width=1180, height=height)
            page.until("document.activeElement?.id", "token")
            page.do("type", text=key)
            page.press("Enter")
            page.until("document.querySelectorAll('#part table').length > 3")
            page.do("screenshot", path=str(folder / f"admin-{scheme}.png"))


if __name__ == "__main__":
    main()
