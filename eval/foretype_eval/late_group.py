"""A group of commands that are imported one by one: a command does not wait for the libraries of the others.

It stands here and not beside `foretype` itself, since `bench all --against` runs today's measuring rooms on a commit's other ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from foretype_context.errors import ForetypeError
from foretype_context.terminal import say
from rich.markup import escape
from typer.core import TyperGroup
from typer.main import get_command


def late_group(help: str, late: Mapping[str, str], remedy: str) -> typer.Typer:
    """Commands by name, each `module:function`; `remedy` helps where one cannot be imported.

    What a command raises of ours, or of the system, is told in one sentence, with status 2.
    """
    kind = type("Group", (_LateGroup,), {"late": late, "remedy": remedy})
    group = typer.Typer(cls=kind, no_args_is_help=True, add_completion=False, help=help)
    group.callback()(lambda: None)  # typer makes a group only of what has commands, or this
    return group


class _LateGroup(TyperGroup):
    late: ClassVar[Mapping[str, str]] = {}
    remedy: ClassVar[str] = ""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order in which they are written down."""
        return list(self.late)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.late and cmd_name not in self.commands:
            self.commands[cmd_name] = self._load(cmd_name)
        return self.commands.get(cmd_name)

    def _load(self, name: str) -> Any:
        module, _, attribute = self.late[name].partition(":")
        single = typer.Typer(add_completion=False)
        try:
            single.command(name)(_telling(getattr(import_module(module), attribute)))
        except ImportError as error:
            reason = f"{type(error).__name__}: {error}"

            def unavailable() -> None:
                say(f"error: {name} is not available ({reason})\nremedy: {self.remedy}", err=True)
                raise typer.Exit(1)

            settings = {"ignore_unknown_options": True, "allow_extra_args": True}
            help_text = escape(f"Not available: {self.remedy}")
            single.command(name, help=help_text, context_settings=settings, add_help_option=False)(unavailable)
        return get_command(single)


def _telling(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def told(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except BrokenPipeError:  # whoever read what is printed has gone, and wants no more
            raise
        except (ForetypeError, OSError) as error:
            from foretype_eval.console import fail

            fail(str(error) or type(error).__name__)

    return told
