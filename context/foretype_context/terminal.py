"""The one way to a terminal: what is printed is clean (:mod:`foretype_context.text.plain`), and is text.

Rich's markup and emoji codes are not interpreted: a name may hold brackets and colons. Styles come from our own code, as objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from foretype_context.text.plain import ACTS, one_line, plain

__all__ = ["console", "one_line", "plain", "say", "say_json"]


def say(text: object = "", *, err: bool = False) -> None:
    """Prints a line."""
    typer.echo(plain(str(text)), err=err)


def say_json(value: object, *, indent: int = 0) -> None:
    """Prints JSON: nothing is lost, for what a terminal acts on is written as an escape."""
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent or None)
    typer.echo(ACTS.sub(_escape, text))


def console(**options: Any) -> Console:
    """A console that prints text as it is: without markup, emoji codes or highlighting, and never what a terminal acts on."""
    given: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, **options}
    return _Plain(**given)


class _Plain(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return (
        f"\\u{code:04x}"
        if code < 0x10000
        else f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    )
