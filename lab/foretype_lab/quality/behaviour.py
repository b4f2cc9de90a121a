"""What a suggestion does apart from being right: loops, and what the language's own checker says."""

from __future__ import annotations

import ast
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from types import MappingProxyType
from typing import Final

_CHECKERS: Final = MappingProxyType(
    {
        "javascript": ("a.mjs", "node", "--check"),
        "go": ("a.go", "gofmt", "-e", "-l"),
        "shellscript": ("a.sh", "bash", "-n"),
    }
)
"""Name of a file, and what says whether it takes it, by language."""

_LONGEST_UNIT: Final = 12
_LEAST_REPEATS: Final = 4


def loops(ids: Sequence[int]) -> bool:
    """Whether a generation ends in the same few tokens again and again: a unit of up to 12, four times or more.

    One repeated token needs eight: a row of dashes or blanks is no loop.
    """
    for unit in range(1, _LONGEST_UNIT + 1):
        repeats = max(_LEAST_REPEATS, 8 // unit)
        tail = list(ids[-unit * repeats :])
        if len(tail) == unit * repeats and tail == tail[:unit] * repeats:
            return True
    return False


def taken(text: str, language: str) -> bool | None:
    """Whether a language's own checker takes a file; None where there is none, or none that is installed."""
    if language == "python":
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(text, "a.py", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError):
            return False
        return True
    name, *command = _CHECKERS.get(language, ("",))
    if not command or which(command[0]) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text, "utf-8", "replace")
        return subprocess.run([*command, name], cwd=folder, capture_output=True, check=False).returncode == 0
