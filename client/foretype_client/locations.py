"""Places in files of this machine, as a person names them: read once, and never what must not be sent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from foretype_context.folder.exclude import MAX_CURRENT_BYTES, reason_to_exclude
from foretype_context.folder.small_files import read_small
from foretype_context.syntax.document import Document, Snapshot
from foretype_context.text.strings import plain_line_ends

from foretype_client.errors import InputError

_HEAD_BYTES: Final = 8192


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file: `line` and `column` count from 1, `column` in characters; the one behind the last is allowed."""

    path: Path
    line: int
    column: int


def parse_location(text: str) -> Location:
    """`FILE:LINE:COL`; FILE may contain colons.

    Raises:
        InputError: not of this form.
    """
    file, *numbers = text.rsplit(":", 2)
    if len(numbers) != 2 or not file or not all(number.isdecimal() and len(number) <= 9 for number in numbers):
        raise InputError(f"{text!r} is not FILE:LINE:COL, e.g. src/app.py:12:5 (line and column count from 1)")
    return Location(Path(file), int(numbers[0]), int(numbers[1]))


def read_source(path: Path) -> str:
    """The text of a source file, line endings as they are.

    Raises:
        InputError: no such file, no file, not readable, too large, binary, secret, or not UTF-8.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a file")
        size_bytes = path.stat().st_size
        if size_bytes > MAX_CURRENT_BYTES:
            raise InputError(f"{path} is {size_bytes:,} bytes; completion stops at {MAX_CURRENT_BYTES:,}")
        data = read_small(path, MAX_CURRENT_BYTES, links=True)
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if b"\0" in data[:_HEAD_BYTES] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path} is a binary file")
    if (reason := reason_to_exclude(str(path), len(data), data[:_HEAD_BYTES])) not in (None, "generated", "minified"):
        raise InputError(f"{path} is never sent to a model: {reason}")
    try:
        return plain_line_ends(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: byte {error.start + 1} is 0x{data[error.start]:02x}; convert it first"
        ) from error


def open_location(location: Location) -> tuple[Snapshot, int]:
    """The document at `location` and the character offset of the place in it.

    Raises:
        InputError: the file cannot be worked on, or the place is outside of it.
    """
    text = read_source(location.path)
    absolute = location.path.absolute()
    snapshot = Document(absolute.as_uri(), text, path=shown_path(absolute)).snapshot()
    if not 1 <= location.line <= snapshot.line_count:
        raise InputError(f"line {location.line} is outside {location.path}: its lines are 1 to {snapshot.line_count}")
    start, end = snapshot.line_start(location.line - 1), snapshot.line_end(location.line - 1)
    if not 1 <= location.column <= end - start + 1:
        raise InputError(
            f"column {location.column} is outside line {location.line} of {location.path}: "
            f"its columns are 1 to {end - start + 1}"
        )
    return snapshot, start + location.column - 1


def shown_path(path: Path) -> str:
    """Relative to the repository, as prompts show it; else the name alone."""
    for parent in path.parents:
        if (parent / ".git").exists():
            return path.relative_to(parent).as_posix()
    return path.name
