"""What a gateway is told about an open folder: its path, and an id that colleagues' clones share."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Final

from foretype_context.errors import GitError
from foretype_context.folder.git import repository_at

from foretype_wire.codec import scrub
from foretype_wire.messages import Workspace

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
    repository = repository_at(path)
    if repository is None:
        return None
    try:
        commits = repository.run("rev-list", "--max-parents=0", "HEAD", time_s=_GIT_TIMEOUT_S).decode("ascii").split()
    except (GitError, UnicodeDecodeError):
        return None  # no git, no commit, or a history too long to walk in time
    return commits[-1] if commits else None
