"""Which folder holds what, from the first sentence of each package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from foretype_lab.errors import UndocumentedError

_ROOT: Final = Path(__file__).parents[3]
_ROOMS: Final = ("context", "wire", "client", "lsp_server", "retrieval", "backend", "models", "plan", "eval", "lab")


def files_page() -> str:
    """As Markdown, from the ground floor up."""
    parts = [
        "# Where things are\n",
        (
            "Every folder of code with what it says of itself, from the ground floor up; `pyproject.toml` (`[tool.importlinter]`) says who"
            " may import whom, [architecture](../architecture.md) how they work together. Tests lie in `tests/` under the same names.\n"
        ),
    ]
    for room in _ROOMS:
        rows = [f"| `{folder}` | {said} |" for folder, said in _packages(_ROOT / room)]
        parts.append("\n".join([f"## {room}\n", "| folder | |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _packages(room: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(room.glob("foretype_*/**/__init__.py"), key=lambda path: path.parent.parts):
        folder = path.parent.relative_to(_ROOT).as_posix()
        if "migrations" in path.parts:
            continue
        text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        if not text:
            raise UndocumentedError(f"{folder}/__init__.py does not say what its folder holds")
        yield folder, " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")
