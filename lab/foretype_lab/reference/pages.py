"""The pages, by the names of their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from foretype_lab.reference.commands import commands_page
from foretype_lab.reference.endings import endings_page
from foretype_lab.reference.files import files_page
from foretype_lab.reference.fleet import fleet_page
from foretype_lab.reference.metrics import metrics_page
from foretype_lab.reference.settings import options_page, settings_page

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands_page,
    "endings.md": endings_page,
    "files.md": files_page,
    "fleet.md": fleet_page,
    "metrics.md": metrics_page,
    "options.md": options_page,
    "settings.md": settings_page,
}
