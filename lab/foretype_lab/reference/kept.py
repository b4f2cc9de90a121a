"""`tests/promises.json`: every promise with a test that misses it. `make promises` writes it anew, `make check` compares it.

A promise goes by a line under `### Removed` in CHANGELOG.md that begins with its kind and names it, as in "- metric: `foretype_a`,
`foretype_b`; nobody read them." The name of a command stands for its options too, that of a table for its fields.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from foretype_lab.reference.promises import promises

Kept = dict[str, dict[str, str]]
"""Tests by kind and name of a promise, as `tests/room/test_file.py::test_name`; empty where only `make check` would miss it."""

_SECTION: Final = re.compile(r"^### Removed\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_LINE: Final = re.compile(r"^- ([\w ]+): ((?:.|\n(?!- |\n))*)", re.MULTILINE)
_NAME: Final = re.compile(r"`([^`]+)`")


def read(path: Path) -> Kept:
    return msgspec.json.decode(path.read_bytes(), type=Kept)


def removed(changelog: str) -> dict[str, set[str]]:
    """Names by kind of what is said to be gone."""
    found: dict[str, set[str]] = {}
    for section in _SECTION.findall(changelog):
        for kind, told in _LINE.findall(section):
            found.setdefault(kind, set()).update(_NAME.findall(told))
    return found


def gone(kept: Kept, now: Mapping[str, list[str]], said: Mapping[str, set[str]]) -> list[str]:
    """What is no more and no line says so, as "kind: name"."""
    return [
        f"{kind}: {name}"
        for kind, names in kept.items()
        for name in sorted(set(names) - set(now.get(kind, ())))
        if not _is_said(kind, name, said)
    ]


def new(kept: Kept, now: Mapping[str, list[str]]) -> list[str]:
    """What the file has not."""
    return [f"{kind}: {name}" for kind, names in now.items() for name in names if name not in kept.get(kind, {})]


def renewed(kept: Kept, now: Mapping[str, list[str]], said: Mapping[str, set[str]]) -> Kept:
    """With what is new, without a test yet, and without what is said to be gone."""
    unsaid = set(gone(kept, now, said))
    whole = {kind: kept.get(kind, {}) | {one: kept.get(kind, {}).get(one, "") for one in now[kind]} for kind in now}
    return {
        kind: {
            name: whole[kind][name] for name in sorted(whole[kind]) if name in now[kind] or f"{kind}: {name}" in unsaid
        }
        for kind in whole
    }


def _is_said(kind: str, name: str, said: Mapping[str, set[str]]) -> bool:
    of_commands = said.get("command", set()) if kind == "option" else set[str]()
    return any(name == one or name.startswith((f"{one} ", f"{one}.")) for one in said.get(kind, set()) | of_commands)


def main(path: Path, changelog: Path) -> None:
    kept = read(path) if path.exists() else {}
    found = renewed(kept, promises(), removed(changelog.read_text("utf-8")))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
