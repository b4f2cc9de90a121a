import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import foretype_client.commands.cli
import pytest
import typer
from foretype_client.commands.cli import app
from foretype_eval.late_group import late_group
from imports import imported
from typer.testing import CliRunner


def greet(name: str) -> None:
    """Greets somebody."""
    typer.echo(f"hello {name}")


group = typer.Typer(help="A group.")


@group.command()
def first() -> None:
    """The first."""
    typer.echo("first")


@group.command()
def second() -> None:
    typer.echo("second")


added = typer.Typer()


@added.command("second")
def replaced() -> None:
    typer.echo("another second")


@added.command()
def third() -> None:
    typer.echo("third")


not_a_command = 5

late = late_group("A late group.", {"greet": f"{__name__}:greet", "lost": "foretype_no_such_package:lost"}, "buy it")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint(name, value, "foretype.commands")
        for name, value in {
            "greet": f"{__name__}:greet",
            "group": f"{__name__}:group",
            "late": f"{__name__}:late",
            "lsp": "foretype_no_such_package.cli:app",
            "broken": f"{__name__}:not_a_command",
            "complete": "another:command",
        }.items()
    ]
    module = type(sys)(__name__)
    vars(module).update(greet=greet, group=group, late=late, not_a_command=not_a_command)
    monkeypatch.setitem(sys.modules, __name__, module)
    monkeypatch.setattr(foretype_client.commands.cli, "entry_points", lambda group: points)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_commands_of_other_packages_are_functions_or_typer_apps(registered: None) -> None:
    assert run("greet", "you").stdout == "hello you\n"
    assert run("group", "second").stdout == "second\n"


def test_help_lists_everything_and_shows_what_is_missing_with_its_remedy(registered: None) -> None:
    result = run("--help")
    assert result.exit_code == 0
    for text in ("demo", "complete", "explain", "doctor", "Greets somebody", "A group", "pip install 'foretype[lsp]'"):
        assert text in result.stdout


def test_a_command_whose_extra_is_missing_says_what_to_install(registered: None) -> None:
    result = run("lsp", "--stdio", "--whatever", "x")
    assert result.exit_code == 1
    assert "foretype lsp is not available" in result.stderr
    assert "remedy: pip install 'foretype[lsp]'" in result.stderr


def test_a_registration_that_is_no_command_breaks_nothing_else(registered: None) -> None:
    assert run("broken").exit_code == 1
    assert run("greet", "you").exit_code == 0


def test_own_commands_cannot_be_replaced_by_another_package(registered: None) -> None:
    assert "FILE:LINE:COL" in run("complete", "--help").stdout


def test_two_packages_that_register_one_group_make_one(registered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    vars(sys.modules[__name__])["added"] = added
    points = foretype_client.commands.cli.entry_points(group="foretype.commands")
    points += [EntryPoint("group", f"{__name__}:{one}", "foretype.commands") for one in ("added", "not_a_command")]
    assert (run("group", "third").stdout, run("group", "first").stdout) == ("third\n", "first\n")
    done = run("group", "second")
    assert done.stdout == "second\n", "a command that is there is replaced by no other package"
    assert "adds to foretype group is left out (TypeError: 5 is neither" in done.stderr


def test_a_command_of_a_group_that_cannot_be_imported_takes_no_other_with_it(registered: None) -> None:
    assert run("late", "greet", "you").stdout == "hello you\n"
    listed = run("late", "--help")
    assert listed.exit_code == 0 and "Greets somebody" in listed.stdout and "Not available: buy it" in listed.stdout
    lost = run("late", "lost", "--whatever")
    assert lost.exit_code == 1
    assert "error: lost is not available (ModuleNotFoundError" in lost.stderr and "remedy: buy it" in lost.stderr
    assert run("late", "nothing").exit_code == 2


def test_what_another_package_adds_to_a_late_group_is_listed_and_replaces_nothing(
    registered: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = typer.Typer()
    more.command("greet")(second)
    more.command("third")(third)
    vars(sys.modules[__name__])["more"] = more
    points = foretype_client.commands.cli.entry_points(group="foretype.commands")
    points.append(EntryPoint("late", f"{__name__}:more", "foretype.commands"))
    assert (run("late", "third").stdout, run("late", "greet", "you").stdout) == ("third\n", "hello you\n")
    assert "third" in run("late", "--help").stdout


def test_an_unknown_command_is_a_usage_error(registered: None) -> None:
    result = run("complet")
    assert result.exit_code == 2
    assert "No such command 'complet'. Did you mean 'complete'?" in result.stderr
    assert "Did you mean" not in run("zzz").stderr


def test_the_version_is_printed() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout.split()[0]) == (0, "foretype")


def test_listing_the_command_line_costs_no_import_of_another_room() -> None:
    others = ("foretype_backend", "foretype_lsp", "starlette", "pygls", "tiktoken", "httpx")
    assert imported("import foretype_client.commands.cli", *others) == []


def test_a_bench_waits_for_the_libraries_of_no_other_command() -> None:
    script = (
        "from foretype_client.commands.cli import app\n"
        "try: app(['bench', 'load', '--no-such-option'])\n"
        "except SystemExit as end: assert end.code == 2\n"
    )
    assert imported(script, "sqlalchemy", "alembic", "scipy", "pygls", "torch", "foretype_eval.ab") == []


def test_every_command_is_there_with_the_local_extra_alone() -> None:
    # What only `dev`, `fleet`, `tiers`, `report`, `otel` and `train` bring; `make run` installs none of it.
    script = (
        "import sys; from importlib.metadata import distribution\n"
        "for name in ('redis', 'zmq', 'matplotlib', 'torch', 'transformers', 'opentelemetry', 'hypothesis', 'pytest', 'yaml', 'ray'):\n"
        "    sys.modules[name] = None\n"
        "commands = [one for one in distribution('foretype').entry_points if one.group.startswith('foretype')]\n"
        "assert commands\n"
        "for one in commands: one.load()\n"
        "from foretype_eval import cli\n"
        "from typer.main import get_command\n"
        "for group in map(get_command, (cli.app, cli.bench)):\n"
        "    for name in group.list_commands(None):\n"
        "        assert 'Not available' not in (group.get_command(None, name).help or ''), name\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
