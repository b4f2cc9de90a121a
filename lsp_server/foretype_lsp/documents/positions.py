r"""Positions as editors count them, and the lines they count.

An LSP position is a line and a number of code units, in the encoding that was negotiated: UTF-8 bytes, UTF-16 units or
UTF-32 code points. Everything behind this module counts characters (code points) from the start of the text, and every line
end is one character there, `\n`: the same code is the same prompt and the same suggestion, whichever its line ends are.

Lines end at `\n`, `\r\n` or `\r` and nowhere else (LSP 3.17, Text Documents); `str.splitlines` also splits at form feeds
and U+2028, which would shift every line after one.

Two kinds of characters need care. A lone surrogate is a character like any other here, and pairs up with its other half as
soon as an edit brings them together. A byte that was not UTF-8 arrives as U+DC80..U+DCFF (`surrogateescape`) and counts as
the one byte that it was, so that an editor that counts bytes stays in step on such a line.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from foretype_context.text.strings import join_surrogates, plain_line_ends

_LINE_END: Final = re.compile(r"(\r\n|\n|\r)")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Encoding(StrEnum):
    """Position encodings of LSP 3.17; UTF-16 is what a client means that says nothing."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"


class Position(NamedTuple):
    """A zero-based line and the code units before the position on it."""

    line: int
    character: int


def units(text: str, encoding: Encoding) -> int:
    """Code units of `text`."""
    if encoding is Encoding.UTF32 or text.isascii():
        return len(text)
    if encoding is Encoding.UTF16:
        return len(text.encode("utf-16-le", "surrogatepass")) // 2
    if _SURROGATE.search(text) is None:
        return len(text.encode())
    return sum(map(_utf8_units, text))


def index_at(text: str, character: int, encoding: Encoding) -> int:
    """Number of whole characters in the first `character` code units of `text`.

    Clamped to `[0, len(text)]`; a count that ends inside a character is rounded down to its start.
    """
    if character <= 0:
        return 0
    if encoding is Encoding.UTF32 or text.isascii():
        return min(character, len(text))
    if encoding is Encoding.UTF16:
        index = len(text.encode("utf-16-le", "surrogatepass")[: 2 * character].decode("utf-16-le", "surrogatepass"))
        # A cut between the halves of a pair decodes to one lone surrogate, which is not in `text`.
        return index - 1 if index and units(text[:index], encoding) > character else index
    if _SURROGATE.search(text) is None:
        return len(text.encode()[:character].decode("utf-8", "ignore"))
    count = 0
    for index, char in enumerate(text):
        count += _utf8_units(char)
        if count > character:
            return index
    return len(text)


def split_lines(text: str) -> list[str]:
    """Lines with their ends; the last has none and may be empty, so there is always at least one."""
    if "\r" not in text:
        lines = [f"{line}\n" for line in text.split("\n")]
        lines[-1] = lines[-1][:-1]
        return lines
    parts = _LINE_END.split(text)
    return [*map(str.__add__, parts[0:-1:2], parts[1::2]), parts[-1]]


class Lines:
    r"""The lines of a text that changes, and the way between positions and character offsets.

    Offsets, `chars` and all texts that it gives are those of the text with `\n` for every line end; kept are the editor's own.
    The offset of the line last asked for is remembered and walked from, since the next question is nearly always about a
    line close by: a keystroke costs the line it is on.
    """

    def __init__(self, text: str, encoding: Encoding = Encoding.UTF16) -> None:
        self.encoding = encoding
        self._lines = split_lines(text)
        self._chars = _chars(text)
        self._line = 0
        self._start = 0

    def __len__(self) -> int:
        """Number of lines, at least 1."""
        return len(self._lines)

    @property
    def text(self) -> str:
        return plain_line_ends("".join(self._lines))

    @property
    def raw(self) -> str:
        """The text with the editor's own line ends."""
        return "".join(self._lines)

    @property
    def chars(self) -> int:
        """Length of the text in characters."""
        return self._chars

    def ended(self, text: str) -> str:
        """`text` with the line ends that this text has, for an editor that puts in what it is given as it is."""
        return text.replace("\n", "\r\n") if self._lines[0].endswith("\r\n") else text

    def line(self, index: int) -> str:
        """A line without its end."""
        return _body(self._lines[index])

    def part(self, start: int, end: int) -> str:
        """The characters `[start, end)`, within the text."""
        first, last = self.position_at(start).line, self.position_at(end).line
        before = self.start_of(first)
        return plain_line_ends("".join(self._lines[first : last + 1]))[start - before : end - before]

    def start_of(self, line: int) -> int:
        """Offset of the first character of `line`."""
        while self._line < line:
            self._start += _chars(self._lines[self._line])
            self._line += 1
        while self._line > line:
            self._line -= 1
            self._start -= _chars(self._lines[self._line])
        return self._start

    def offset_at(self, position: Position) -> int:
        """Character offset of a position; one outside the text is clamped (LSP 3.17, Position)."""
        line, index = self._locate(position)
        return self.start_of(line) + index

    def position_at(self, offset: int) -> Position:
        """Position of a character offset, clamped to the text."""
        offset = min(max(offset, 0), self._chars)
        line = self._line
        self.start_of(line)
        while self._start > offset:
            line -= 1
            self.start_of(line)
        while line + 1 < len(self._lines) and self._start + _chars(self._lines[line]) <= offset:
            line += 1
            self.start_of(line)
        before = _body(self._lines[line])[: offset - self._start]
        return Position(line, units(before, self.encoding))

    def replace(self, start: Position, end: Position, text: str) -> tuple[int, int, str]:
        """Replace a range and say what that was in characters.

        Positions outside are clamped, a range given backwards is turned round.

        Returns:
            `(start, end, text)`: character offsets in the text before the change, half-open, and what replaces them. The
            span is wider where the edit joins or parts the two halves of a surrogate pair, or of a line end.
        """
        if end < start:
            start, end = end, start
        (first, left), (last, right) = self._locate(start), self._locate(end)
        # A line end may be made or unmade at the border to the line before: `\r` | `\n`.
        above = first - 1 if left == 0 and first > 0 and self._lines[first - 1].endswith("\r") else first
        first_line, last_line = self._lines[first], self._lines[last]
        if not (text.isascii() and first_line.isascii() and last_line.isascii()):
            # Half a pair that the range cuts off, or that stands at its border, is written anew and may find its match.
            if pair := self._pair_cut_by(start, first, left):
                text = pair[0] + text
            elif left and _is_high(first_line[left - 1]):
                left, text = left - 1, first_line[left - 1] + text
            if pair := self._pair_cut_by(end, last, right):
                right, text = right + 1, text + pair[1]
            elif right < len(last_line) and _is_low(last_line[right]):
                right, text = right + 1, text + last_line[right]
            text = join_surrogates(text)
        before, now = "".join(self._lines[above:first]), first_line[:left] + text + last_line[right:]
        removed = sum(map(_chars, self._lines[first:last])) + right - left
        offset, inserted = self.start_of(first) + left, plain_line_ends(text)
        self.start_of(above)
        if _chars(before + now) != _chars(before) + left + len(inserted) + _chars(last_line[right:]):
            removed += offset - self._start + _chars(last_line[right:])
            offset, inserted = self._start, plain_line_ends(before + now)
        lines = split_lines(before + now)
        if lines[-1] == "" and last + 1 < len(self._lines):
            lines.pop()  # the replaced lines ended in a line end, and the next line is there already
        self._lines[above : last + 1] = lines
        self._chars += len(inserted) - removed
        return offset, offset + removed, inserted

    def _pair_cut_by(self, position: Position, line: int, index: int) -> str | None:
        """Both halves of the pair at `index` if the position is between them (only UTF-16 counts them singly)."""
        if self.encoding is not Encoding.UTF16 or position.line != line:
            return None
        body = _body(self._lines[line])
        if units(body[:index], self.encoding) >= min(position.character, units(body, self.encoding)):
            return None
        code = ord(body[index]) - 0x10000
        return chr(0xD800 + (code >> 10)) + chr(0xDC00 + (code & 0x3FF))

    def _locate(self, position: Position) -> tuple[int, int]:
        """Line and character index on it, clamped: past a line's end is its end, past the last line the text's end."""
        line, character = position
        if line < 0:
            return 0, 0
        if line >= len(self._lines):
            return len(self._lines) - 1, len(self._lines[-1])
        return line, index_at(_body(self._lines[line]), character, self.encoding)


def _chars(text: str) -> int:
    """Characters of a text as others see it."""
    return len(text) - text.count("\r\n")


def _body(line: str) -> str:
    if line.endswith("\r\n"):
        return line[:-2]
    return line[:-1] if line.endswith(("\n", "\r")) else line


def _is_high(char: str) -> bool:
    return "\ud800" <= char <= "\udbff"


def _is_low(char: str) -> bool:
    return "\udc00" <= char <= "\udfff"


def _utf8_units(char: str) -> int:
    code = ord(char)
    if code < 0x80 or 0xDC80 <= code <= 0xDCFF:
        return 1
    if code < 0x800:
        return 2
    return 3 if code < 0x10000 else 4
