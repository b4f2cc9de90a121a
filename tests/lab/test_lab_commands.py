"""The laboratory's commands: every group that its package registers is one, and stands beside those that ship."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import typer
from foretype_lab.processes import environment
from typer.core import TyperGroup
from typer.main import get_command

LAB = Path(__file__).parents[2] / "lab"
GROUPS = tomllib.loads((LAB / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["foretype.commands"]
SHIPPED = {
    "bench": "foretype_eval.cli:bench",
    "eval": "foretype_eval.cli:app",
    "models": "foretype_models.cli:app",
}


def names(target: str) -> set[str]:
    module, _, attribute = target.partition(":")
    group = getattr(import_module(module), attribute)
    assert isinstance(group, typer.Typer)
    command = get_command(group)
    assert isinstance(command, TyperGroup)
    return set(command.list_commands(None))


@pytest.mark.parametrize("group", SHIPPED)
def test_no_command_of_the_laboratory_hides_one_that_ships(group: str) -> None:
    assert not names(GROUPS[group]) & names(SHIPPED[group])


def test_the_laboratory_registers_the_groups_that_ship_and_no_other() -> None:
    assert GROUPS.keys() == SHIPPED.keys()


def test_a_checkout_that_installed_nothing_runs_them_as_a_module() -> None:
    command = [sys.executable, "-P", "-m", "foretype_lab", "bench", "prefill", "no-such-recording"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment())
    assert done.returncode == 2 and "no-such-recording" in done.stderr


def test_the_commands_about_models_load_nothing_heavy() -> None:
    code = "import sys; import foretype_lab.model_commands; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert not {"torch", "numpy", "gguf", "openvino", "transformers"} & set(done.stdout.split())
