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


def history(folder: Path, name: str, *texts: str) -> Path:
    """A repository in `folder`, made where there is none, in which the file `name` was so, one commit after the other."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    for text in texts:
        (folder / name).write_text(text, "utf-8")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "x")
    return folder
