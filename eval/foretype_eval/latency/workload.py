"""What is typed in a latency bench: lines of the Python standard library that is installed on this machine.

Real code of realistic size, present wherever the bench runs, and never part of the package. A site is a place in a file where
one or two lines were taken out; typing them again gives requests that look like a developer's.
"""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from foretype_eval.errors import EvalError

_LEAST_LINE_CHARS: Final = 18
_MAX_FILE_BYTES: Final = 150_000
"""About 4,000 lines; larger ones are generated or tests, and would decide every p99 alone."""
_CODE_STARTS: Final = ("return ", "if ", "for ", "self.", "raise ", "with ", "while ", "elif ", "assert ")


class Site(NamedTuple):
    """A file with a hole of whole lines at character `offset`; `typed` is what was there."""

    path: str
    text: str
    offset: int
    typed: str


def sites(seed: int, *, chars_above: int, chars_below: int, root: Path | None = None) -> Iterator[Site]:
    """Sites in random order, each in a file of its own, so that no two share a prompt.

    Args:
        chars_above, chars_below: least amount of text around the hole, so that a prompt fills its budget.
        root: folder with Python files; default is the standard library.

    Raises:
        EvalError: no file is long enough.
    """
    folder = root or Path(sysconfig.get_paths()["stdlib"])
    least = chars_above + chars_below + 2_000
    files = [path for path, size_bytes in _python_files(folder) if size_bytes >= least]
    rng = random.Random(seed)
    rng.shuffle(files)
    found = False
    for path in files:
        site = _site(path.relative_to(folder).as_posix(), path, rng, chars_above, chars_below)
        if site is not None:
            found = True
            yield site
    if not found:
        raise EvalError(f"no Python file of {least} to {_MAX_FILE_BYTES} bytes below {folder}")


@cache
def _python_files(folder: Path) -> list[tuple[Path, int]]:
    """Files and sizes, looked up once: a bench goes through them many times."""
    found = ((path, path.stat().st_size) for path in folder.rglob("*.py") if "site-packages" not in path.parts)
    return sorted((path, size_bytes) for path, size_bytes in found if size_bytes <= _MAX_FILE_BYTES)


def _site(name: str, path: Path, rng: random.Random, chars_above: int, chars_below: int) -> Site | None:
    try:
        text = path.read_bytes().decode("ascii")  # newlines as they are
    except (UnicodeDecodeError, OSError):
        return None  # one encoding for all positions; there are enough ASCII files
    if "\r" in text:
        return None
    candidates: list[tuple[int, int]] = []
    start = 0
    for line in text.splitlines(keepends=True):
        code = line.strip()
        if (
            chars_above <= start <= len(text) - chars_below
            and len(code) >= _LEAST_LINE_CHARS
            and (code.startswith(_CODE_STARTS) or " = " in code)
        ):
            candidates.append((start, start + len(line) - 1))
        start += len(line)
    if not candidates:
        return None
    start, end = rng.choice(candidates)
    return Site(name, text[:start] + text[end:], start, text[start:end])
