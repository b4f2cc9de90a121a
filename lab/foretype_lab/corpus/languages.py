"""Which files are source text, and what of them is a comment."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

PYTHON = "python"

_SUFFIXES = {
    PYTHON: (".py",),
    "javascript": (".js", ".jsx", ".mjs", ".cjs"),
    "typescript": (".ts", ".tsx", ".mts", ".cts"),
    "go": (".go",),
    "rust": (".rs",),
    "java": (".java",),
    "c": (".c", ".h"),
    "cpp": (".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"),
}
LANGUAGES = tuple(_SUFFIXES)
_BY_SUFFIX = {suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes}

HASH_COMMENT = re.compile(rb"#[^\n]*")
SLASH_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
"""Cuts off after ``//`` inside a string, too; for finding duplicates that costs nothing."""


def language_of(path: str) -> str | None:
    """Names the language of a path by its suffix, or None where it is none of :data:`LANGUAGES`."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix.lower())


def comments(language: str) -> re.Pattern[bytes]:
    """The pattern of a language's comments."""
    return HASH_COMMENT if language == PYTHON else SLASH_COMMENT
