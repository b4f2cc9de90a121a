"""What editors put behind the cursor by themselves as the user opens something: closing brackets, quotes, tags, and ends of blocks.

It changes nothing about what is to come, and the user has not typed it. Tags are such where what is shown is fitted to them.
"""

from __future__ import annotations

import re
from typing import Final

from foretype_context.syntax.languages import language_spec
from foretype_context.syntax.reading import lexis_of

_CLOSERS: Final = frozenset(")]}>\"'`")
_CLOSERS_AND_SIGNS: Final = _CLOSERS | frozenset(";,: \t\r")
_TAG: Final = re.compile(r"</[\w:.-]*>")
_LINE_BELOW: Final = re.compile(r"[ \t]*\r?\n[ \t]*(\S+)")


def is_closers(text: str, language: str) -> bool:
    """Whether a part of a line holds nothing but closing brackets, quotes, tags, the punctuation after them and blanks."""
    return _CLOSERS_AND_SIGNS.issuperset(_without_tags(text, language))


def is_closing_line(line: str, language: str) -> bool:
    """Whether a whole line is closers, or the word that ends a block."""
    return is_closers(line, language) or line.strip() in language_spec(language).closes_block


def is_added_by_editor(inserted: str, language: str) -> bool:
    """Whether an editor adds this to what was typed, in the same change: closers, or a line below with a block's end."""
    if (below := _LINE_BELOW.fullmatch(inserted)) is not None:
        return below[1] in language_spec(language).closes_block
    return _CLOSERS.issuperset(_without_tags(inserted, language))


def _without_tags(text: str, language: str) -> str:
    return _TAG.sub("", text) if "</" in text and lexis_of(language).markup is not None else text
