"""The private gateway: where it is announced, and whether it lives. Nothing is started here (:mod:`.starting`).

A process id proves nothing, since ids are used again: a gateway counts as alive when it answers on the port it wrote
and accepts the token it wrote.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx
import msgspec
import platformdirs
from foretype_wire.announcement import FILE_NAME, Announcement

__all__ = ["PROFILE_NAME", "chosen_profile", "default_state_dir", "find_gateway"]

PROFILE_NAME: Final = "private.toml"
"""Of the profile that the user chose, in the state directory."""

_HEALTH_TIMEOUT_S: Final = 2.0
_HEALTH_ATTEMPTS: Final = 3


def default_state_dir() -> Path:
    """The user's state directory, e.g. `~/.local/state/foretype`."""
    return platformdirs.user_state_path("foretype")


def chosen_profile(state_dir: Path) -> Path | None:
    """The profile that the user chose for their private gateway; None where that serves the shipped model."""
    path = state_dir / PROFILE_NAME
    return path if path.is_file() else None


async def find_gateway(state_dir: Path) -> Announcement | None:
    """The live private gateway of this user, or None. Starts nothing and removes nothing."""
    record = await asyncio.to_thread(_read, state_dir / FILE_NAME)
    if record is None or not _may_run(record.pid):
        return None
    return record if await _answers(record) else None


def _read(path: Path) -> Announcement | None:
    try:
        with path.open("rb") as file:
            if not _is_own(os.fstat(file.fileno())):
                return None
            return msgspec.json.decode(file.read(), type=Announcement)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None  # not there, half a file, or not ours: all mean that there is nobody to join


def _is_own(status: os.stat_result) -> bool:
    """Whether this user alone can have written it: a record of somebody else would lead source code to them."""
    if sys.platform == "win32":  # no such bits; the directory is in the user's profile
        return True
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _may_run(pid: int) -> bool:
    """False only if no process has this id; an id in use proves nothing."""
    if pid <= 0:
        return False
    if sys.platform == "win32":  # there, kill(pid, 0) ends the process
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return False  # another user's process, so not this user's gateway
    return True


class _Health(msgspec.Struct):
    """What `/healthz` says; `authorized` is the gateway's word that it takes the token that was sent."""

    authorized: bool = False


async def _answers(record: Announcement) -> bool:
    """Whether the gateway of this record is on its port: it is healthy, and it takes this record's token."""
    headers = {"Authorization": f"Bearer {record.token}"}
    try:
        async with httpx.AsyncClient(timeout=_HEALTH_TIMEOUT_S, trust_env=False) as client:
            for _ in range(_HEALTH_ATTEMPTS - 1):
                with suppress(
                    httpx.TimeoutException
                ):  # it lives on a machine that is busy: not a reason for a second one
                    return _authorized(await client.get(f"{record.base}/healthz", headers=headers))
            return _authorized(await client.get(f"{record.base}/healthz", headers=headers))
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def _authorized(response: httpx.Response) -> bool:
    return response.status_code == 200 and msgspec.json.decode(response.content, type=_Health).authorized
