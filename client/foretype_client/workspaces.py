"""What a gateway is told about an open folder: its path, and an id that colleagues' clones share."""

from __future__ import annotations

import os
import subprocess
from hashlib import blake2b
from pathlib import Path
from typing import Final

from foretype_client.frames import scrub
from foretype_client.wire import Workspace

__all__ = ["workspace_of"]

_GIT_TIMEOUT_S: Final = 2.0


def workspace_of(root: Path) -> Workspace:
    """The workspace at `root`. Runs git once and blocks for that; call it in a thread.

    `repository` is BLAKE2b-128 of the id of the root commit (the oldest, where histories were joined), or of the
    absolute path where there is no repository or no git.
    """
    path = Path(os.path.abspath(root))
    identity = _root_commit(path) or str(path)
    digest = blake2b(identity.encode("utf-8", "surrogateescape"), digest_size=16)
    return Workspace(root=scrub(str(path)), repository=digest.hexdigest())


def _root_commit(path: Path) -> str | None:
    command = ["git", "-C", str(path), "rev-list", "--max-parents=0", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, timeout=_GIT_TIMEOUT_S, check=True, text=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None  # no git, no repository, no commit, or a history too long to walk in time
    commits = result.stdout.split()
    return commits[-1] if commits else None
