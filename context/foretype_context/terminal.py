"""The one way to a terminal: what is printed is clean (:mod:`foretype_context.text.plain`), and is text.

Rich's markup and emoji codes are not interpreted: a name may hold brackets and colons. Styles come from our own code, as objects.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from foretype_context.text.plain import ACTS, one_line, plain

if TYPE_CHECKING:  # what an editor starts prints lines at most
    from rich.console import Console

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
    from foretype_context.plain_console import PlainConsole

    given: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, **options}
    return PlainConsole(**given)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return (
        f"\\u{code:04x}"
        if code < 0x10000
        else f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    )
