"""The pages, by the names of their files; those of endings and of folders are made here."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from foretype_backend.admission.outcomes import CODES, FINISHES, HTTP_STATUS, Reason

from foretype_lab.errors import LabError
from foretype_lab.reference.commands import commands_page
from foretype_lab.reference.documented import described
from foretype_lab.reference.metrics import metrics_page
from foretype_lab.reference.settings import fleet_page, options_page, settings_page

_ROOT: Final = Path(__file__).parents[3]
_ROOMS: Final = ("context", "wire", "client", "lsp_server", "retrieval", "backend", "models", "plan", "eval", "lab")


def endings_page() -> str:
    """As Markdown, in the order in which the code has them."""
    said = described(Reason)
    lines = [
        "# How a request ends\n",
        (
            "`reason` is the label of `foretype_requests_total`. A refusal is explicit on the wire and silent in the editor; one that may"
            " come again carries `retry_after_ms`, over HTTP `Retry-After`.\n"
        ),
        "| reason | WebSocket | HTTP | |",
        "|---|---|--:|---|",
    ]
    for reason in Reason:
        told = f"`done`, `{FINISHES[reason]}`" if reason in FINISHES else f"`error`, `{CODES[reason]}`"
        lines.append(f"| `{reason}` | {told} | {HTTP_STATUS.get(reason, 200)} | {said[reason.value]} |")
    return "\n".join(lines) + "\n"


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
            raise LabError(f"{folder}/__init__.py does not say what its folder holds")
        yield folder, " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands_page,
    "endings.md": endings_page,
    "files.md": files_page,
    "fleet.md": fleet_page,
    "metrics.md": metrics_page,
    "options.md": options_page,
    "settings.md": settings_page,
}
