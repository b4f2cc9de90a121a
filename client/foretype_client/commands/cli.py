"""The command `foretype`: sub-commands of this package, and those that other packages register.

A sub-command is an entry point of the group `foretype.commands`: a `typer.Typer`, or a function that typer can make a
command of. Each is imported when it is used (or listed), and one that cannot be imported, because its extra is not
installed, is shown with what to install and breaks nothing else. Two packages may register the same group: it then has the
sub-commands of both, and of two with one name that of this project.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import typer
from foretype_context.terminal import say
from foretype_wire.garbage_collection import spare_start_and_end
from typer.core import TyperGroup
from typer.main import get_command

_GROUP: Final = "foretype.commands"

_OWN: Final = {
    "quickstart": "foretype_client.commands.quickstart:quickstart",
    "demo": "foretype_client.commands.demo:demo",
    "playground": "foretype_client.commands.playground:playground",
    "complete": "foretype_client.commands.complete:complete",
    "explain": "foretype_client.commands.explain:explain",
    "doctor": "foretype_client.commands.doctor:doctor",
    "privacy": "foretype_client.commands.privacy:app",
}

_EXTRAS: Final = {
    "serve": "gateway,embedded",
    "tenants": "gateway",
    "keys": "gateway",
    "usage": "gateway",
    "config": "gateway",
    "fleet": "fleet",
    "status": "gateway",
    "lsp": "lsp",
    "bench": "eval",
    "eval": "eval",
    "models": "local",
    "use": "local",
    "index": "retrieval",
    "search": "retrieval",
}
"""Which extra of this project brings a command that other folders of it register."""


class Commands(TyperGroup):
    """Finds sub-commands by entry point, lazily; see the module's docstring."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._registered: dict[str, list[EntryPoint]] = {}
        for point in _sorted_points():
            self._registered.setdefault(point.name, []).append(point)

    def list_commands(self, ctx: Any) -> list[str]:
        """Own commands first, then the others in alphabetical order."""
        return [*_OWN, *sorted(set(self._registered) - set(_OWN))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and (cmd_name in _OWN or cmd_name in self._registered):
            self.commands[cmd_name] = self._load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer does it, which proposes what is like a misspelt name among the commands that are loaded: load those."""
        names = self.list_commands(ctx)
        if args and args[0] not in names:
            from difflib import get_close_matches

            for name in get_close_matches(args[0], names):
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def _load(self, name: str) -> Any:
        if name in _OWN:
            module, _, attribute = _OWN[name].partition(":")
            return _command_of(name, getattr(import_module(module), attribute))
        first, *others = self._registered[name]
        try:
            command = _command_of(name, first.load())
        except Exception as error:  # noqa: BLE001 - whatever its import raises is told, and takes no other command with it
            return _unavailable(name, first, error)
        for point in others:
            try:
                _join(command, _command_of(name, point.load()))
            except Exception as error:  # noqa: BLE001 - as above
                said = f"{type(error).__name__}: {error}"
                say(f"note: what {_named(point)} adds to foretype {name} is left out ({said})", err=True)
        return command


def _command_of(name: str, target: Any) -> Any:
    if isinstance(target, typer.Typer):
        command = get_command(target)
    elif callable(target):
        single = typer.Typer(add_completion=False)
        single.command(name)(target)
        command = get_command(single)
    else:
        raise TypeError(f"{target!r} is neither a typer.Typer nor a function")
    command.name = name
    return command


def _join(group: Any, other: Any) -> None:
    """What a group lacks is the other's. Neither is asked for a command before somebody wants it."""
    own_names, own_command = group.list_commands, group.get_command

    def names(ctx: Any) -> list[str]:
        return list(dict.fromkeys([*own_names(ctx), *other.list_commands(ctx)]))

    def command(ctx: Any, cmd_name: str) -> Any:
        return own_command(ctx, cmd_name) or other.get_command(ctx, cmd_name)

    group.list_commands, group.get_command = names, command


def _sorted_points() -> list[EntryPoint]:
    """Our own first. A distribution's name is in a file that is parsed anew at each look: once for each, then."""
    points = list(entry_points(group=_GROUP))
    one_of_each = {id(point.dist): point for point in points}
    known = {dist: _ours(point) for dist, point in one_of_each.items()}
    return sorted(points, key=lambda point: not known[id(point.dist)])


def _ours(point: EntryPoint) -> bool:
    return point.dist is None or point.dist.name == "foretype"


def _named(point: EntryPoint) -> str:
    return point.value if point.dist is None else point.dist.name


def _unavailable(name: str, point: EntryPoint, error: Exception) -> Any:
    if _ours(point):
        remedy = f"pip install 'foretype[{_EXTRAS.get(name, 'local')}]'"
    else:
        remedy = f"reinstall {_named(point)}, which provides it"
    reason = f"{type(error).__name__}: {error}"

    from rich.markup import escape

    def unavailable() -> None:
        say(f"error: foretype {name} is not available ({reason})\nremedy: {remedy}", err=True)
        raise typer.Exit(1)

    stub = typer.Typer(add_completion=False)
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    help_text = escape(f"Not available: {remedy}")
    stub.command(name, help=help_text, context_settings=settings, add_help_option=False)(unavailable)
    command = get_command(stub)
    command.name = name
    return command


app: typer.Typer = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Inline code completion that a team runs itself.",
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True)) -> None:  # pyright: ignore[reportUnusedFunction]
    if version:
        from foretype_client.commands.shared import release

        say(f"foretype {release()}")
        raise typer.Exit


def main() -> None:
    """Entry point of the command `foretype`."""
    spare_start_and_end()
    app(prog_name="foretype")
