"""A console that prints nothing that a terminal acts on, made by :func:`foretype_context.terminal.console` alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from foretype_context.text.plain import plain

_PIPE_COLUMNS: Final = 1000
"""Where nobody looks at columns, a row of a table is one line: for `grep`, for a log, for `exec` without a terminal."""


class PlainConsole(Console):
    """See the module."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        said = options.get("width") is not None or self._environ.get("COLUMNS", "").isdigit()
        if not self.is_terminal and not said:
            self.width = _PIPE_COLUMNS

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)
