"""What kind of text a place asks for, as far as its line tells: guesses are accepted by kind more than by language. Pure.

A published fleet accepted 98 % of guesses of closing brackets and syntax, 91 % of idioms, 78 % of names, 65 % of logic and 72 % of
comments. Which kind follows is not known before it is generated; the line up to the cursor is what there is to go by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from foretype_context.prompt.segments import Kind, PlacedSegment
from foretype_context.syntax.languages import LANGUAGES


class Pattern(StrEnum):
    """Also the metric's label."""

    SYNTAX = "syntax"  # after a closing bracket, a string's end, or a word that wants its colon
    IDIOM = "idiom"  # a statement that has just begun
    NAME = "name"  # in a word, or behind the dot
    LOGIC = "logic"  # in an expression
    COMMENT = "comment"


_CLOSED: Final = re.compile(r"[)\]};'\"`]\s*$")
_BEGUN: Final = re.compile(r"\s*(?:[a-z]+\s+)?$|\s*(?:[a-z]+\s+){2}$")
_WORD: Final = re.compile(r"[\w.]$")
_MARKS: Final = ("//", "#", "--", "/*", "* ")


def line_at(placed: Iterable[PlacedSegment]) -> str:
    """The cursor's line up to the cursor; "" where a client rendered the prompt itself."""
    text = ""
    for one in placed:
        if one.segment.kind in (Kind.PREFIX, Kind.MIDDLE):
            text = one.segment.text if one.segment.kind is Kind.PREFIX else text + one.segment.text
    return text[text.rfind("\n") + 1 :]


def pattern_of(line: str, language: str) -> Pattern:
    """What is likely asked for behind `line`, in the language that the client names."""
    begun = line.lstrip()
    spec = LANGUAGES.get(language)
    marks = _MARKS if spec is None else (spec.line_comment, "/*", "* ")
    if begun.startswith(marks) or f" {marks[0]} " in line:
        return Pattern.COMMENT
    if _CLOSED.search(line):
        return Pattern.SYNTAX
    if _BEGUN.fullmatch(line):
        return Pattern.IDIOM
    return Pattern.NAME if _WORD.search(line) else Pattern.LOGIC
