"""Healing: a prompt ends where the vocabulary cuts, and the answer first repeats what the prompt left out.

A model whose training never cut inside a token cannot continue `retu` well, nor a line break whose token holds the indentation of
the next line too. The prompt leaves such an end out, the answer must begin with it, and the reader takes it off again.
"""

from __future__ import annotations

import re
from typing import Final

_LAST_PRE_TOKEN: Final = re.compile(r"(?:[^\S\r\n]?[^\W\d_]+|\d|[^\S\r\n]?(?:[^\w\s]|_)+|[^\S\r\n]+)\Z")
_BREAK: Final = re.compile(r"\r?\n")
_FIRST_BREAK: Final = re.compile(r"[^\S\r\n]*\r?\n")


def healed_suffix(typed: str) -> str:
    """What a prompt with a hole must back up by, so that it ends where the pre-tokeniser cuts: the last pre-token of `typed`.

    Follows Qwen2's pattern, in which a space belongs to the word behind it.
    """
    found = _LAST_PRE_TOKEN.search(typed[-64:])
    return found.group() if found else ""


def healed_end(before: str) -> str:
    """The same for a prompt that is nothing but the text `before` the cursor.

    Of blanks only the last one: GPT-2's pattern and its relatives leave it to the word behind, and the rest is a token that says
    how far the line is indented. Behind a line break all white space, since one token holds breaks and the indentation that may
    follow; but not where nothing else stands before it.
    """
    white = before[len(before.rstrip()) :]
    if not white:
        return healed_suffix(before)
    if white[-1] not in "\r\n":
        return white[-1]
    return white if len(white) < len(before) else ""


def strip_healed(text: str, healed: str) -> str | None:
    """Takes off what the prompt left out and the output repeats. None where it does not repeat it.

    Line breaks are repeated where one comes, with or without the blanks before it, and as many as were left out at most: a user
    may have left more empty lines than the model would. While a stream is too short to tell, the answer is empty.
    """
    breaks = healed.count("\n")
    if not breaks:
        if text.startswith(healed):
            return text[len(healed) :]
        return "" if healed.startswith(text) else None
    found = _FIRST_BREAK.match(text)
    if found is None:
        return None if text.strip() else ""
    at = found.end()
    for _ in range(breaks - 1):
        found = _BREAK.match(text, at)
        if found is None:
            break
        at = found.end()
    rest = text[at:]
    return "" if rest == "\r" else rest


class HealedText:
    """A stream whose beginning repeats `healed`.

    Attributes:
        healed: what is still to come before anything new may; empty from then on.
        garbled: it did not come, so that the text fits nowhere.
    """

    def __init__(self, healed: str) -> None:
        self.healed = healed
        self.garbled = False
        self._written = ""

    @property
    def has_come(self) -> bool:
        """Whether all that the prompt left out has been repeated, be there anything new behind it or not."""
        if self.garbled or not self.healed:
            return not self.garbled
        if "\n" in self.healed:
            return _FIRST_BREAK.match(self._written) is not None
        return self._written.startswith(self.healed)

    def feed(self, text: str) -> str:
        """What is new in `text`; nothing once it is garbled."""
        if self.garbled or not self.healed:
            return "" if self.garbled else text
        self._written += text
        rest = strip_healed(self._written, self.healed)
        self.garbled = rest is None
        if rest:
            self.healed = ""
        return rest or ""
