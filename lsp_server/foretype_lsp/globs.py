"""Globs as editors write them: `*` and `?` stay inside a path part, `**` crosses parts, `{a,b}` and `[ab]` choose.

A glob without a slash is about the file's name, wherever it is, as in `.gitignore`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

__all__ = ["first_match", "matches"]


def first_match(globs: Iterable[str], paths: Sequence[str]) -> str | None:
    """The first glob that matches any of `paths` (the same file, absolute and relative to its folder)."""
    return next((glob for glob in globs if any(matches(glob, path) for path in paths)), None)


def matches(glob: str, path: str) -> bool:
    """Whether `path` matches; its parts may be separated as on Windows. A glob that ends in a slash is all in that folder."""
    path = path.replace("\\", "/")
    if glob.endswith("/"):
        glob = f"**/{glob.removeprefix('/')}**"
    return _regex(glob).fullmatch(path if "/" in glob else path.rpartition("/")[2]) is not None


@lru_cache(maxsize=256)
def _regex(glob: str) -> re.Pattern[str]:
    out: list[str] = []
    open_braces = 0
    rest = glob
    while rest:
        if token := re.match(r"\*\*/|/\*\*$|\*\*|\[[!^]?[^]/]+\]", rest):
            text = token[0]
            out.append({"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*"}.get(text) or _class(text))
            rest = rest[token.end() :]
            continue
        char, rest = rest[0], rest[1:]
        if char == "{" and "}" in rest:
            open_braces += 1
            out.append("(?:")
        elif char == "}" and open_braces:
            open_braces -= 1
            out.append(")")
        elif char == "," and open_braces:
            out.append("|")
        elif char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        else:
            out.append(re.escape(char))
    try:
        return re.compile("".join(out) + ")" * open_braces, re.DOTALL)
    except re.error:  # such as a range the wrong way round: take it by the letter
        return re.compile(re.escape(glob), re.DOTALL)


def _class(text: str) -> str:
    body = text[1:-1]
    negated = len(body) > 1 and body[0] in "!^"
    members = re.escape(body[negated:]).replace(r"\-", "-")
    return f"[^/{members}]" if negated else f"[{members}]"
