"""Git in a folder of a test's own, with an identity that no machine has to have."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SETTINGS = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]


def git(repo: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repo), *_SETTINGS, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
