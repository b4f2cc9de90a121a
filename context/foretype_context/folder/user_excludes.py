"""The file in which a user keeps what git leaves out in all repositories: `core.excludesFile`.

It is looked up in the files of configuration that are the user's or the machine's, read as data. That of a repository may be
anybody's: it names no file here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from foretype_context.folder.small_files import read_small

_CONFIG_BYTES: Final = 1 << 20
_FILES_MAX: Final = 20
_SYSTEM: Final = "/etc/gitconfig"
_SECTION: Final = re.compile(r"\[\s*([\w.-]+)\s*(\"(?:[^\"\\]|\\.)*\")?\s*\]")
_ENTRY: Final = re.compile(r"([a-z][\w-]*)\s*=\s*(.*)", re.IGNORECASE)
_PIECE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"?|(\\.)|([#;].*)|([^"\\#;]+)')
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n", "t": "\t", "b": "\b"}


def user_excludes(look_at: Callable[[Path], None]) -> Path | None:
    """The user's file, whether it exists or not; None where none is wanted. A relative name is one in the work tree.

    Args:
        look_at: told of each file before it is read.
    """
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    files = [] if os.environ.get("GIT_CONFIG_NOSYSTEM") else [os.environ.get("GIT_CONFIG_SYSTEM", _SYSTEM)]
    one = os.environ.get("GIT_CONFIG_GLOBAL")
    files += [f"{home}/git/config", os.path.expanduser("~/.gitconfig")] if one is None else [one]
    found = f"{home}/git/ignore"
    seen = set[str]()
    for file in filter(None, files):
        for name, value in _settings(Path(file), look_at, seen):
            if name == "core.excludesfile":
                found = value
    return None if found in ("", os.devnull) else Path(os.path.expanduser(found))


def _settings(file: Path, look_at: Callable[[Path], None], seen: set[str]) -> Iterator[tuple[str, str]]:
    """Names in small letters, and values, the last of which counts. What is included on a condition is not read."""
    look_at(file)
    try:
        real = os.path.realpath(file)
        if real in seen or len(seen) >= _FILES_MAX:  # one that includes itself
            return
        seen.add(real)
        text = read_small(file, _CONFIG_BYTES, links=True).decode("utf-8-sig", "surrogateescape")
    except (OSError, ValueError):
        return
    text = re.sub(r"^\s*[#;].*", "", text.replace("\r\n", "\n"), flags=re.MULTILINE)
    section = ""
    for line in text.replace("\\\n", "").split("\n"):
        line = line.strip()
        if head := _SECTION.match(line):
            section = head[1].lower() + (head[2] or "")
            line = line[head.end() :].lstrip()
        entry = _ENTRY.match(line)
        if entry is None:
            continue
        name, value = f"{section}.{entry[1].lower()}", _value(entry[2])
        if name == "include.path" and value:
            yield from _settings(file.parent / os.path.expanduser(value), look_at, seen)
        yield name, value


def _value(written: str) -> str:
    """What is meant: without quotes, the blanks at its end and a comment."""
    said, sure = "", 0
    for quoted, escape, comment, plain in (piece.groups("") for piece in _PIECE.finditer(written)):
        if comment:
            break
        said += plain or _ESCAPE.sub(lambda one: _ESCAPED.get(one[1], one[1]), quoted or escape)
        sure = sure if plain else len(said)
    return said[:sure] + said[sure:].rstrip()
