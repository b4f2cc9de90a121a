"""Every command of `foretype` with its arguments and options, as `--help` knows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from foretype_client.commands.cli import app
from typer.core import TyperGroup
from typer.main import get_command

_OF_A_CHECKOUT: Final = "foretype_lab."
_HIDDEN: Final = ("--help", "--install-completion", "--show-completion")


def commands_page() -> str:
    """As Markdown. What a checkout adds is left out: lab/README.md has it."""
    parts = [
        "# Commands\n",
        "What `foretype COMMAND --help` says. Every command ends with 0 when it is done and with 2 for bad input.\n",
    ]
    for name, command in every_command():
        told, _, _ = (command.help or "").partition("\n\nArgs:")
        context = command.context_class(command)
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        parts.append(f"## {name}\n\n```\n{usage}\n```\n\n{_plain(told)}\n")
        rows = [row for one in command.params if (row := _row(one))]
        if rows:
            parts.append("\n".join(["| | default | |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def every_command() -> Iterator[tuple[str, Any]]:
    """Each command by its whole name, but those that a checkout adds and the hidden ones."""
    return _leaves("foretype", get_command(app))


def is_shown(parameter: Any) -> bool:
    """Whether `--help` tells of it."""
    return not getattr(parameter, "hidden", False) and parameter.opts[0] not in _HIDDEN


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(command, TyperGroup):
        module = getattr(command.callback, "__module__", "")
        if not command.hidden and not module.startswith(_OF_A_CHECKOUT):
            yield name, command
        return
    context = command.context_class(command)
    for one in command.list_commands(context):
        found = command.get_command(context, one)
        if found is not None:
            yield from _leaves(f"{name} {one}", found)


def _row(parameter: Any) -> str:
    if not is_shown(parameter):
        return ""
    named = parameter.opts[0] if parameter.param_type_name == "option" else parameter.name.upper()
    told: str = getattr(parameter, "help", None) or ""
    return f"| `{named}` | {_default(parameter)} | {_plain(told)} |"


def _default(parameter: Any) -> str:
    default: Any = parameter.default
    if parameter.required:
        return "needed"
    if default is True and parameter.secondary_opts:
        return f"or `{parameter.secondary_opts[0]}`"
    if callable(default) or isinstance(default, Path) or default in (None, True, False, (), [], ""):
        return ""
    return f"`{default}`"


def _plain(text: str) -> str:
    return " ".join(text.replace("\b", "").split()).replace("|", "\\|")
