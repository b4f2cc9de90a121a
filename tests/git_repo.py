"""Git in a folder of a test's own, with an identity that no machine has to have."""

import subprocess
from pathlib import Path

_SETTINGS = {
    "user.name": "t",
    "user.email": "t@example.org",
    "commit.gpgsign": "false",
    "init.defaultBranch": "main",
    "protocol.file.allow": "always",  # submodules of folders
}
_OPTIONS = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]


def git(repo: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repo), *_OPTIONS, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
