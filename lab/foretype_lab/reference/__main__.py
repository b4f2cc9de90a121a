"""Write `docs/reference/`: `python -m foretype_lab.reference FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from foretype_lab.reference.pages import PAGES


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), "utf-8")


main(Path(sys.argv[1]))
