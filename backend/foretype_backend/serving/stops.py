r"""Where a suggestion ends: an incremental scanner over generated text. Pure.

A stop may straddle chunks or lie in the middle of a chunk of eight tokens; the scanner sees every character once. What is
delivered is exactly the text before the stop, and only what could still become part of a stop is held back.

Rules, with generation cut at the first character that makes one of them certain:

- a stop string ends the text before its first character; of several that end at the same character the longest counts
- `max_lines` ends it at the end of that many lines, before the line ending (`\n` or `\r\n`)
- `min_indent` ends it before the first later non-blank line whose indent has fewer columns; line ending and blank lines
  before that line go with it
- what the text has to repeat first (`repeats`) counts for none of them and is delivered; a text that does not is over at once
- `opened` takes the place of `max_lines` and `min_indent` once the first line has ended in one of its endings
"""

from __future__ import annotations

from typing import Final

from foretype_context.prompt.healing import HealedText
from foretype_context.prompt.profile import Stop

TAB_COLUMNS: Final = 4
"""A tab goes to the next multiple of this, as :func:`foretype_context.syntax.blocks.indent_columns` measures for the client."""


class _Pattern:
    """Knuth-Morris-Pratt automaton of one stop string: `matched` is how much of it the text ends with."""

    __slots__ = ("_fallback", "matched", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._fallback = [0] * len(text)
        length = 0
        for i in range(1, len(text)):
            while length and text[i] != text[length]:
                length = self._fallback[length - 1]
            if text[i] == text[length]:
                length += 1
            self._fallback[i] = length

    def feed(self, character: str) -> bool:
        """True when the text now ends with the whole string."""
        length = self.matched
        while length and self.text[length] != character:
            length = self._fallback[length - 1]
        if self.text[length] == character:
            length += 1
        self.matched = length
        return length == len(self.text)


class StopScanner:
    """Feed generated text, receive what may be delivered; :attr:`stopped` says that the end was reached.

    :attr:`repeated` is what was delivered of the beginning that the prompt left out.

    :attr:`in_first_line` is true while the first line, which may open a block, goes on; false where that does not matter.

    Cost: O(characters x strings) in total, whatever the chunks.
    """

    def __init__(self, stop: Stop) -> None:
        self.stopped = False
        self._healing = HealedText(stop.repeats)
        self.repeated = ""
        self._patterns = [_Pattern(text) for text in dict.fromkeys(stop.strings) if text]
        self._max_lines = stop.max_lines
        self._min_indent = stop.min_indent
        self._trivial = not self._patterns and stop.max_lines is stop.min_indent is stop.opened is None
        self._passes = self._trivial and not stop.repeats  # everything
        self._held: list[str] = []
        self._released = 0  # characters delivered so far; all offsets below are absolute too
        self._seen = 0
        self._lines = 0
        self._in_indent = False
        self._columns = 0
        self._blank_from = 0  # end of the last non-blank line, while `_in_indent`
        self._previous = ""
        self._opened = stop.opened
        self._first_line: list[str] = []
        self.in_first_line = stop.opened is not None

    @property
    def strayed(self) -> bool:
        """Whether the text began otherwise than the prompt demands."""
        return self._healing.garbled

    @property
    def begun(self) -> bool:
        """Whether all of the beginning that the prompt left out has come."""
        return self._healing.has_come

    def feed(self, text: str) -> str:
        """Take more text; return what can be delivered now. After a stop, everything is swallowed."""
        if self._passes:
            return text
        if self.stopped:
            return ""
        new = self._healing.feed(text)
        if self._healing.garbled:
            self.stopped = True
            return text
        new = new[max(len(new) - len(text), 0) :]
        repeated = text[: len(text) - len(new)]
        self.repeated += repeated
        return repeated + (new if self._trivial else self._fed(new))

    def _fed(self, text: str) -> str:
        self._held.append(text)
        for character in text:
            cut = self._advance(character)
            if cut is not None:
                self.stopped = True
                return self._release(cut)
        return self._release(self._hold_from())

    def flush(self) -> str:
        """The text is complete: return what was held back, since it did not become a stop."""
        return "" if self.stopped else self._release(self._seen)

    def _advance(self, character: str) -> int | None:
        """Take one character; return where to cut when it makes a stop certain."""
        self._seen += 1
        cuts = [self._seen - len(p.text) for p in self._patterns if p.feed(character)]
        if self.in_first_line:
            self._read_first_line(character)
        if character == "\n":
            end = self._seen - (2 if self._previous == "\r" else 1)
            self._lines += 1
            if self._max_lines is not None and self._lines >= self._max_lines:
                cuts.append(end)
            if not self._in_indent:
                self._blank_from = end
            self._in_indent = True
            self._columns = 0
        elif self._in_indent:
            if character == " ":
                self._columns += 1
            elif character == "\t":
                self._columns += TAB_COLUMNS - self._columns % TAB_COLUMNS
            elif character != "\r":
                if self._min_indent is not None and self._columns < self._min_indent:
                    cuts.append(self._blank_from)
                self._in_indent = False
        self._previous = character
        return min(cuts) if cuts else None

    def _read_first_line(self, character: str) -> None:
        if character != "\n":
            self._first_line.append(character)
            return
        self.in_first_line = False
        opened = self._opened
        if opened is not None and opened.by("".join(self._first_line)):
            self._max_lines, self._min_indent = opened.max_lines, opened.min_indent

    def _hold_from(self) -> int:
        """Offset of the first character that could still become part of a stop."""
        hold = self._seen - max((p.matched for p in self._patterns), default=0)
        if self._min_indent is not None and self._in_indent:
            hold = min(hold, self._blank_from)
        last_line = self._max_lines is not None and self._lines == self._max_lines - 1
        # A first line that opens a block brings rules of its own, which may end the text at this very line ending.
        if self._previous == "\r" and (last_line or self.in_first_line or self._min_indent is not None):
            hold = min(hold, self._seen - 1)
        return hold

    def _release(self, until: int) -> str:
        if until <= self._released:
            return ""
        held = "".join(self._held)
        ready = held[: until - self._released]
        self._held = [held[len(ready) :]]
        self._released = until
        return ready
