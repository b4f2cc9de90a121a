"""What is run in the environment of vLLM has all it imports there."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", [["serve"], ["bench", "engine"], ["models", "parity"]], ids=" ".join)
def test_a_command_says_what_it_takes(command: list[str]) -> None:
    code = "from foretype_client.commands.cli import main; main()"
    said = subprocess.run(
        [sys.executable, "-c", code, *command, "--help"], capture_output=True, text=True, timeout=300, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "Usage:" in said.stdout, said.stderr
