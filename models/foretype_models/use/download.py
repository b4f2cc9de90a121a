"""Fetching one large file over a network that may break, lie or be somebody's login page.

What has come stays in a `.part` file beside the target, with the server's word for its version (ETag), and the next attempt goes on
from there. Nothing gets the target's name before its size and its SHA-256 agree with what was asked for.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import filelock
import httpx
import msgspec
from foretype_context.authorities import trusted

from foretype_models.errors import UseError

_ATTEMPTS: Final = 6
"""In a row without a byte of progress."""
_ROOM_BYTES: Final = 64 << 20
_TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAGIC: Final = b"GGUF"
_WAIT_MOST_S: Final = 30.0

Report = Callable[[int, int | None], None]
"""Called with the bytes that are here, and those that there will be."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is fetched: the file may come from anywhere, for its digest says whether it is the right one."""

    url: str
    sha256: str
    size: int | None = None


class _Marker(msgspec.Struct, frozen=True):
    """What a `.part` file is a part of."""

    sha256: str
    etag: str = ""


class _Broken(Exception):
    """The connection broke or the server is busy: worth another attempt."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


def download(
    wanted: Wanted,
    target: Path,
    report: Report = lambda done, total: None,
    *,
    sleep: Callable[[float], None] = time.sleep,
    write: Callable[[BinaryIO, bytes], Any] = lambda file, data: file.write(data),
    free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> Path:
    """Fetch `wanted` to `target`; returns at once where it is there already. Blocking.

    Args:
        sleep, write, free: the clock, the disk, and the room on it.

    Raises:
        UseError: one sentence; what came stays for the next attempt, unless it is of no use.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(target.with_name(f".{target.name}.lock"), blocking=False):
            if target.is_file() and hash_file(target) == wanted.sha256:
                return target
            _fetch(wanted, target, report, sleep, write, free)
            return target
    except filelock.Timeout:
        raise UseError(f"{target.name} is being downloaded by another `foretype use`; wait for it") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UseError(
                f"the disk of {target.parent} is full; what came stays: make room and repeat, or give --folder"
            ) from error
        raise UseError(
            f"{target.parent} cannot be written to ({error.strerror or error}); give --folder DIR that this user may write to"
        ) from error


def hash_file(path: Path, report: Report = lambda done, total: None) -> str:
    """SHA-256 of a file, hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 22):
            digest.update(data)
            report(file.tell(), None)
    return digest.hexdigest()


def _fetch(wanted: Wanted, target: Path, report: Report, sleep: Any, write: Any, free: Any) -> None:
    part = _Part(target, wanted)
    if wanted.size is not None:
        missing, room = wanted.size - part.size(), free(target.parent)
        if room < missing + _ROOM_BYTES:
            raise UseError(
                f"{target.parent} has {room / 1e6:,.0f} MB free and {target.name} needs {(missing + _ROOM_BYTES) / 1e6:,.0f}; "
                "make room, or give --folder on another disk"
            )
    attempts, most = 0, part.size()
    with httpx.Client(timeout=_TIMEOUT, follow_redirects=True, max_redirects=5, verify=trusted()) as client:
        while True:
            try:
                if _attempt(client, wanted, part, report, write):
                    break
                reason = "the connection ended early"
                wait_s = 0.0
            except _Broken as error:
                reason, wait_s = str(error), error.wait_s
            attempts = 0 if part.size() > most else attempts + 1
            most = max(most, part.size())
            if attempts >= _ATTEMPTS:
                raise _unreachable(wanted.url, reason, part.size())
            sleep(max(wait_s, min(0.5 * 2**attempts, 10.0) if attempts else 0.0))
    part.finish(report)


class _Part:
    """The part of a file that is here."""

    def __init__(self, target: Path, wanted: Wanted) -> None:
        self.target, self.wanted = target, wanted
        self.path = target.with_name(f".{target.name}.part")
        self.marker_path = self.path.with_name(f"{self.path.name}.json")
        marker = self._marker()
        self.etag = ""
        if marker is None or marker.sha256 != wanted.sha256:
            self.drop()
        else:
            self.etag = marker.etag

    def _marker(self) -> _Marker | None:
        try:
            return msgspec.json.decode(self.marker_path.read_bytes(), type=_Marker)
        except (OSError, msgspec.MsgspecError, UnicodeError):
            return None

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def begin(self, etag: str) -> None:
        """Start from nothing, with this version of the server's file."""
        self.path.unlink(missing_ok=True)
        self.etag = etag
        self.marker_path.write_bytes(msgspec.json.encode(_Marker(self.wanted.sha256, etag)))

    def drop(self) -> None:
        for path in (self.path, self.marker_path):
            path.unlink(missing_ok=True)

    def finish(self, report: Report) -> None:
        """Give it its name, if it is what was asked for."""
        size, digest = self.size(), hash_file(self.path, report)
        if digest != self.wanted.sha256:
            self.drop()
            raise UseError(
                f"{_host(self.wanted.url)} sent another file than the catalogue knows (SHA-256 {digest[:12]}…, not "
                f"{self.wanted.sha256[:12]}…, {size:,} bytes); it was thrown away: try again, or another model"
            )
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(self.path, self.target)
        self.marker_path.unlink(missing_ok=True)


def _attempt(client: httpx.Client, wanted: Wanted, part: _Part, report: Report, write: Any) -> bool:
    """One request; true when the whole file is here. Raises _Broken, UseError, OSError."""
    have = part.size()
    headers = {"Accept-Encoding": "identity"}
    if have:
        # Without a strong validator the digest alone says in the end whether two halves belong together.
        headers |= {"Range": f"bytes={have}-"} | ({"If-Range": part.etag} if part.etag else {})
    try:
        with client.stream("GET", wanted.url, headers=headers) as response:
            total = _accept(response, wanted, part)
            if total is not None and total < 0:
                return True
            return _receive(response, wanted, part, total, report, write)
    except httpx.TooManyRedirects as error:
        raise UseError(f"{_host(wanted.url)} sends from address to address without an end; try again later") from error
    except httpx.ProxyError as error:
        raise UseError(
            f"the proxy refused the way to {_host(wanted.url)} ({error}); check HTTPS_PROXY, with user:password@ if it wants them"
        ) from error
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise UseError(
            f"{wanted.url} is no address that can be fetched ({error}); check HF_ENDPOINT and HTTPS_PROXY"
        ) from error
    except httpx.HTTPError as error:
        raise _Broken(str(error) or type(error).__name__) from error


def _accept(response: httpx.Response, wanted: Wanted, part: _Part) -> int | None:
    """Look at the head of an answer, and start anew where it is not the rest of what is here.

    Returns:
        The bytes of the whole file as far as they are known; -1 where the file is complete.
    """
    host, status, have = _host(str(response.url)), response.status_code, part.size()
    schemes = [str(one.url.scheme) for one in (*response.history, response)]
    if "http" in schemes[schemes.index("https") :] if "https" in schemes else False:
        raise UseError(
            f"{host}: the way leads from https to http; nothing was fetched: check the network and HF_ENDPOINT"
        )
    if status in _LATER:
        raise _Broken(f"{host} answered {status}", _retry_after_s(response))
    if status == 407:
        raise UseError("the proxy wants a login; set HTTPS_PROXY=http://user:password@host:port and repeat")
    if status == 416 and have:
        if wanted.size in (None, have):
            return -1
        part.drop()
        raise _Broken(f"{host} has a shorter file than what is here")
    if (
        response.headers.get("content-type", "").startswith("text/html") and status in (200, 203, 206, 511)
    ) or status == 511:
        raise _portal(host)
    if status not in (200, 206):
        raise UseError(
            f"{host} answered {status} for {wanted.url}; see whether the file is still there, or take another model"
        )
    _check_linked(response, wanted)
    if status == 206 and have and _start_of(response) == have:
        return _total_of(response, have, wanted)
    if status == 206:  # a part of something, from elsewhere
        part.drop()
        raise _Broken(f"{host} sent another part than was asked for")
    part.begin(_strong(response.headers.get("etag", "")))
    return _total_of(response, 0, wanted)


def _receive(
    response: httpx.Response, wanted: Wanted, part: _Part, total: int | None, report: Report, write: Any
) -> bool:
    done = part.size()
    with part.path.open("ab") as file:
        for data in response.iter_raw():  # as it comes: what a chunk waits for is lost where the connection breaks
            if done < len(_MAGIC) and not data.startswith(_MAGIC[done : done + len(data)]):
                part.drop()
                raise _portal(_host(str(response.url)))
            if wanted.size is not None and done + len(data) > wanted.size:
                part.drop()
                raise UseError(
                    f"{_host(wanted.url)} sends more than the {wanted.size:,} bytes of {part.target.name}; it was thrown away: "
                    "try again, or another model"
                )
            write(file, data)
            done += len(data)
            report(done, total)
    return done > 0 and (total is None or done == total)


def _check_linked(response: httpx.Response, wanted: Wanted) -> None:
    """The Hub says before the download which digest its file has."""
    for one in (*response.history, response):
        said = one.headers.get("x-linked-etag", "").strip('"')
        if len(said) == 64 and said != wanted.sha256:
            raise UseError(
                f"{_host(wanted.url)} has another file than the catalogue knows (SHA-256 {said[:12]}…, not "
                f"{wanted.sha256[:12]}…); nothing was downloaded: update Foretype, or take another model"
            )


def _total_of(response: httpx.Response, have: int, wanted: Wanted) -> int | None:
    length = response.headers.get("content-length", "")
    total = have + int(length) if length.isdecimal() else wanted.size
    if wanted.size is not None and total != wanted.size:
        raise UseError(
            f"{_host(wanted.url)} announces {total:,} bytes and the catalogue says {wanted.size:,}; nothing was downloaded: "
            "update Foretype, or take another model"
        )
    return total


def _start_of(response: httpx.Response) -> int | None:
    unit, _, rest = response.headers.get("content-range", "").partition(" ")
    first = rest.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdecimal() else None


def _strong(etag: str) -> str:
    """A weak validator says nothing about bytes."""
    return "" if etag.startswith("W/") else etag


def _retry_after_s(response: httpx.Response) -> float:
    said = response.headers.get("retry-after", "")
    return min(float(said), _WAIT_MOST_S) if said.isdecimal() else 0.0


def _host(url: str) -> str:
    with suppress(httpx.InvalidURL):
        return httpx.URL(url).netloc.decode("ascii", "replace").rpartition("@")[2] or url
    return url


def _portal(host: str) -> UseError:
    return UseError(
        f"a web page came in place of the file from {host}, as from the login page of a network or a proxy; "
        "log in with a browser, or set HTTPS_PROXY, and repeat"
    )


def _unreachable(url: str, reason: str, have: int) -> UseError:
    stays = f"; the {have / 1e6:,.0f} MB that came stay, and the next attempt goes on from there" if have else ""
    return UseError(
        f"{_host(url)} cannot be reached ({reason}): check the network, or set HTTPS_PROXY (HF_ENDPOINT for a mirror){stays}"
    )
