"""What a next edit is and what it rests on."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from foretype_context.syntax.document import Edit


class Evidence(StrEnum):
    """What a next edit rests on, the surest first."""

    RENAME = "rename"
    SIGNATURE = "signature"
    DECLARATION = "declaration"
    LIKE_EDITS = "like_edits"
    ONE_EXAMPLE = "one_example"
    MODEL = "model"


class NextEdit(NamedTuple):
    """`edit` of the text that was asked about, and how many places are left with it.

    Attributes:
        jump_only: the place is known, not what belongs there: `edit` changes nothing.
    """

    edit: Edit
    evidence: Evidence
    left: int
    jump_only: bool = False


def named(text: str, edit: Edit) -> tuple[str, str]:
    """A place as it is remembered when everything around it moves: its line, and what it would say."""
    first = text.rfind("\n", 0, edit.start) + 1
    last = text.find("\n", edit.end)
    return text[first : len(text) if last < 0 else last].strip(), edit.text
