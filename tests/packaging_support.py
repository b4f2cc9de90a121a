"""pip, for the tests of what is installed (tests/packaging, whose name as a package is another one's)."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
