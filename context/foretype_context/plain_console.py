"""A console that prints nothing that a terminal acts on, made by :func:`foretype_context.terminal.console` alone."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from foretype_context.text.plain import plain

__all__ = ["PlainConsole"]


class PlainConsole(Console):
    """See the module."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)
