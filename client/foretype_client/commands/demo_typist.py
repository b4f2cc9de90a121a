"""The developer of `foretype demo`: types a region of a real file again, and takes suggestions that are what stood there.

The region is cut out first, with the text below it left in place, as in an editor. What is typed is known, so a suggestion
is accepted exactly when it is a beginning of it: the demo never ends up with another text than the file's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from foretype_context.syntax.document import Change, Document, Edit, Snapshot
from foretype_context.text.strings import common_prefix

from foretype_client.flow.suggestion import Suggestion

_LEAST_CHARS: Final = 2
"""Nobody presses Tab to save one key."""

_LEAST_PART_CHARS: Final = 4
"""Nor the key for "accept the next words" to save three."""

_NEW_LINE: Final = re.compile(r"[\r\n]+[ \t]*")
"""What one press of Enter writes in an editor."""

_BODY: Final = re.compile(r'^[ \t]*(?:async )?def [^\n]*:\n(?:[ \t]*"""(?:[^"]|"(?!""))*"""\n)?', re.MULTILINE)
"""A Python function's head on one line, with its docstring."""


@dataclass(frozen=True, slots=True)
class Keystroke:
    """One key: a character, a line break with its indentation, or the acceptance of a suggestion, whole or its first words."""

    text: str
    accepted: Suggestion | None = None

    @property
    def whole(self) -> bool:
        return self.accepted is not None and self.text == self.accepted.text


def region_of(text: str, keys: int) -> tuple[int, int]:
    """Where to type: a function's body about a third into the file, and on for `keys` characters, to a block's end."""
    third = len(text) // 3
    body = _BODY.search(text, third)
    start = body.end() if body is not None else text.rfind("\n", 0, third) + 1
    end = text.find("\n\n", min(len(text), start + keys))
    return start, len(text.rstrip()) if end < 0 else end


class Typist:
    """The document while it is typed. Pure: it decides what the next key is, and applies it.

    Args:
        document: holds the whole text; the region is removed from it.
        start, end: the region, in characters.
    """

    def __init__(self, document: Document, start: int, end: int) -> None:
        self._document = document
        self._expected = document.snapshot().text[start:end]
        self._end = end
        self.offset: int = start
        self.keys: int = 0
        self.keys_without: int = 0
        """Keys that the text so far would have taken without any suggestion."""
        self.typed_chars: int = 0
        self.accepted_chars: int = 0
        self.accepts: int = 0
        document.apply([Edit(start, end, "")], document.version + 1)

    @property
    def snapshot(self) -> Snapshot:
        return self._document.snapshot()

    @property
    def expected(self) -> str:
        """What is still to be typed."""
        return self._expected

    def next_step(self, suggestion: Suggestion | None) -> Keystroke | None:
        """The next key, given what is on the screen; None at the end."""
        expected = self._expected
        if not expected:
            return None
        if suggestion is not None and (wanted := self.wanted(suggestion)):
            return Keystroke(wanted, suggestion)
        if expected[0] not in "\r\n":
            return Keystroke(expected[0])
        # Editors indent the new line themselves, with the same key.
        body = expected.lstrip("\r\n")
        indentation = len(body) - len(body.lstrip(" \t"))
        return Keystroke(expected[: len(expected) - len(body) + indentation])

    def wanted(self, suggestion: Suggestion) -> str:
        """What of a suggestion stood there and is worth a key: all of it, its first words, or nothing."""
        text = suggestion.text
        if suggestion.replaces != 0:
            return ""
        if self._expected.startswith(text) and not _inside_word(self._expected, len(text)):
            return text if len(text.strip()) >= _LEAST_CHARS else ""
        cut = common_prefix(text, self._expected)
        while _inside_word(text, cut) or _inside_word(self._expected, cut):
            cut -= 1  # a word that goes on differently is a wrong word
        return text[:cut] if len(text[:cut].strip()) >= _LEAST_PART_CHARS else ""

    def apply(self, step: Keystroke, at_s: float) -> Change:
        """Press the key at this time, in monotonic seconds."""
        self._document.apply([Edit(self.offset, self.offset, step.text)], self._document.version + 1)
        self._expected = self._expected[len(step.text) :]
        self.offset += len(step.text)
        self.keys += 1
        self.keys_without += 1 if step.accepted is None else len(_NEW_LINE.sub("\n", step.text))
        if step.accepted is None:
            self.typed_chars += len(step.text)
        else:
            self.accepts += 1
            self.accepted_chars += len(step.text)
        return self._document.change(at_s)


def _inside_word(text: str, cut: int) -> bool:
    """Whether a cut before character `cut` goes through a word."""
    return all(character.isalnum() or character == "_" for character in text[cut - 1 : cut + 1]) and 0 < cut < len(text)
