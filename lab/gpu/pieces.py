"""What is carried to a machine without a network: files cut into pieces here, put together there. The standard library alone.

`manifest.json` has the bytes and the SHA-256 of each file and piece, and goes with every call.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
ROOM_BYTES = 1 << 30
"""Stays free on the machine's disk, for what is unpacked."""


class CarryError(Exception):
    """Nothing can begin: a sentence that says what is missing, and what to do."""


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cut(files: Iterable[Path], folder: Path, piece_bytes: int) -> dict[str, Any]:
    """Writes the pieces of files, and the manifest, which it returns: by file `bytes`, `sha256` and `pieces`, which have them too."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, Any] = {}
    for file in files:
        pieces: dict[str, Any] = {}
        with file.open("rb") as stream:
            while data := stream.read(piece_bytes):
                name = f"{file.name}.{len(pieces):02}"
                (folder / name).write_bytes(data)
                pieces[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        manifest[file.name] = {"bytes": file.stat().st_size, "sha256": digest(file), "pieces": pieces}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
    return manifest


def loads(manifest: dict[str, Any], most_bytes: int) -> list[list[str]]:
    """Names of the pieces that go together in one call, in the order of the files; each goes where there is room for it first."""
    made: list[tuple[int, list[str]]] = []
    for file in manifest.values():
        for name, piece in file["pieces"].items():
            at = next((at for at, (size, _) in enumerate(made) if size + piece["bytes"] <= most_bytes), len(made))
            size, names = made.pop(at) if at < len(made) else (0, [])
            made.insert(at, (size + piece["bytes"], [*names, name]))
    return [names for _, names in made]


def take(folder: Path, state: Path) -> dict[str, list[str]]:
    """Takes over the pieces that have come, and puts together each file whose pieces are all there.

    Returns:
        By file, what it waits for, a sentence each; nothing where it lies whole in `state`.

    Raises:
        CarryError: no manifest, or no room on the disk.
    """
    manifest = _manifest(folder, state)
    waits: dict[str, list[str]] = {}
    for name, file in manifest.items():
        if is_whole(state, name, file["sha256"]):
            waits[name] = []
            continue
        said = [_taken(folder / one, state / "pieces" / one, piece) for one, piece in file["pieces"].items()]
        waits[name] = [one for one in said if one]
        if not waits[name]:
            waits[name] = _together(state, name, file)
    return waits


def is_whole(state: Path, name: str, sha256: str) -> bool:
    """Whether a file was put together, of these bytes."""
    mark = state / f"{name}.sha256"
    return mark.is_file() and mark.read_text("utf-8") == sha256


def _manifest(folder: Path, state: Path) -> dict[str, Any]:
    (state / "pieces").mkdir(parents=True, exist_ok=True)
    given, kept = folder / MANIFEST, state / MANIFEST
    if given.is_file():
        shutil.copyfile(given, kept)
    try:
        return json.loads(kept.read_text("utf-8"))
    except FileNotFoundError:
        raise CarryError(f"{given}: not there; lab/gpu/pack.py makes it, and it goes with every call") from None
    except ValueError as error:
        raise CarryError(f"{given}: is no manifest ({error}); carry it again") from error


def _taken(come: Path, kept: Path, piece: dict[str, Any]) -> str:
    """Why a piece is not there; empty where it is."""
    if kept.is_file() and digest(kept) == piece["sha256"]:
        return ""
    if not come.is_file():
        return f"{come.name} has not come"
    found = digest(come)
    if found != piece["sha256"]:
        return f"{come.name} has SHA-256 {found[:12]}…, not {piece['sha256'][:12]}…: carry it again"
    _room_for(kept.parent, piece["bytes"])
    shutil.copyfile(come, kept)
    return ""


def _together(state: Path, name: str, file: dict[str, Any]) -> list[str]:
    _room_for(state, file["bytes"])
    partial = state / f"{name}.part"
    with partial.open("wb") as out:
        for piece in file["pieces"]:
            with (state / "pieces" / piece).open("rb") as stream:
                shutil.copyfileobj(stream, out)
    if digest(partial) != file["sha256"]:
        return [f"{name} is not what its pieces should make: pack it again"]
    partial.replace(state / name)
    (state / f"{name}.sha256").write_text(file["sha256"], "utf-8")
    for piece in file["pieces"]:
        (state / "pieces" / piece).unlink()
    return []


def _room_for(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + ROOM_BYTES:
        raise CarryError(
            f"{folder}: {free >> 20} MiB are free, {size + ROOM_BYTES >> 20} MiB are needed; name another folder in FORETYPE_GPU"
        )
