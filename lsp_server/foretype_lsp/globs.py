"""Globs as editors write them: `*` and `?` stay inside a path part, `**` crosses parts, `{a,b}` and `[ab]` choose.

A glob without a slash is about the file's name, wherever it is, as in `.gitignore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foretype_context.folder import globs as linear


def first_match(globs: Iterable[str], paths: Sequence[str]) -> str | None:
    """The first glob that matches any of `paths` (the same file, absolute and relative to its folder)."""
    return next((glob for glob in globs if any(matches(glob, path) for path in paths)), None)


def matches(glob: str, path: str) -> bool:
    """Whether `path` matches; its parts may be separated as on Windows. A glob that ends in a slash is all in that folder."""
    if glob.endswith("/"):
        glob = f"**/{glob.removeprefix('/')}**"
    return linear.matches(glob, path.replace("\\", "/"))
