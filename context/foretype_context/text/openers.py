"""Whether a line opens a block, by what it ends with; pure text, so that a gateway tells it as a client does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

_STRING: Final = re.compile(r"'(?:\\.|[^'\\])*'" + r'|"(?:\\.|[^"\\])*"')
"""What looks like a comment in it is none. Of a quote alone (`&'a str`) nothing is known."""


def ends_open(code: str, endings: Iterable[str]) -> bool:
    """Whether code ends with what opens a block; `sudo` does not end in `do`."""
    return any(
        code.endswith(ending) and not (ending.isalpha() and re.search(rf"\w{ending}\Z", code)) for ending in endings
    )


def opens(line: str, endings: Sequence[str], comments: Iterable[str] = ()) -> bool:
    """Whether a line does, white space and a comment behind its code left out.

    Args:
        comments: what a comment begins with; `/*` also ends on the line.
    """
    if ends_open(line.rstrip(), endings):
        return True
    code = _STRING.sub('""', line.rstrip())
    for mark in comments:
        rest = r"(?:(?!\*/).)*\*/" if mark == "/*" else ".*"
        found = re.search(rf"(?<!\S){re.escape(mark)}{rest}\Z", code)
        if found is not None and ends_open(code[: found.start()].rstrip(), endings):
            return True
    return False
