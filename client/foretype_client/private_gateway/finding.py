"""The private gateway: where it is announced, and whether it lives. Nothing is started here (:mod:`.starting`).

A process id proves nothing, since ids are used again: a gateway counts as alive when it answers on the port it wrote
and accepts the token it wrote.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
import platformdirs
from foretype_wire.announcement import FILE_NAME, Announcement

PROFILE_NAME: Final = "private.toml"
"""Of the profile that the user chose, in the state directory."""

FETCH_REMEDY: Final = "`foretype models fetch`"
"""What a gateway is refused with whose model ships as an adapter and is not made on this machine yet."""

_HEALTH_TIMEOUT_S: Final = 2.0
_HEALTH_ATTEMPTS: Final = 3
_HEALTH_BYTES_MAX: Final = 1 << 16
_NOBODY: Final = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    RecursionError,
    HTTPException,
    asyncio.LimitOverrunError,
    msgspec.MsgspecError,
)
"""Nobody listens there, or somebody who is no gateway; or the record is none."""


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
    with suppress(*_NOBODY):
        for _ in range(_HEALTH_ATTEMPTS - 1):
            with suppress(TimeoutError):  # it lives on a machine that is busy: not a reason for a second one
                return await _authorized(record)
        return await _authorized(record)
    return False


async def _authorized(record: Announcement) -> bool:
    """One question, by the standard library: an HTTP client and the certificates that it opens were a tenth of an editor's start."""
    async with asyncio.timeout(_HEALTH_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(record.host, record.port)
        try:
            host = record.base.removeprefix("http://")
            lines = ("GET /healthz HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {record.token}")
            writer.write("\r\n".join((*lines, "Connection: close", "", "")).encode("ascii"))
            response = HTTPResponse(cast("Any", _Received(await _head(reader))))
            response.begin()
            body = await _body(reader, response.length)
        finally:
            writer.close()
    return response.status == 200 and msgspec.json.decode(body, type=_Health).authorized


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        raise HTTPException("it hung up") from error


async def _body(reader: asyncio.StreamReader, told: int | None) -> bytes:
    """Until the connection's end, where its length is not told."""
    try:
        return await reader.readexactly(_HEALTH_BYTES_MAX if told is None else min(told, _HEALTH_BYTES_MAX))
    except asyncio.IncompleteReadError as error:
        return error.partial


class _Received(NamedTuple):
    """As much of a socket as `HTTPResponse` asks for: what has come already."""

    head: bytes

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self.head)
