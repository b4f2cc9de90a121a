"""What is run in the environment of vLLM has all it imports there."""

from __future__ import annotations

import subprocess
import sys


def test_serve_says_what_it_takes() -> None:
    code = "from foretype_client.commands.cli import main; main()"
    said = subprocess.run(
        [sys.executable, "-c", code, "serve", "--help"], capture_output=True, text=True, timeout=300, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "Usage:" in said.stdout, said.stderr
