"""Which lines around the cursor a prompt shows, chosen so that the choice seldom changes.

Edges are quantised (a top-level line, or a multiple of 32 lines) and kept as long as the budget holds (hysteresis). Everything
is found from the cursor outward: the cost is that of the window, not of the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from foretype_context.prompt.plan import FileMemory
from foretype_context.syntax.closers import is_closing_line
from foretype_context.syntax.document import Snapshot
from foretype_context.tokens.tokenizer import CutRule, Tokenizer, cut_points

_QUANTUM_LINES: Final = 32
_ANCHOR_CHARS: Final = 200
_SEARCH_CHARS: Final = 50_000
_CHARS_PER_TOKEN: Final = 16  # more than any window of code has on average
_CHUNK_CHARS: Final = (300, 2_400)
_COMPARED_TOKENS: Final = 50
_TOLERANCE: Final = 0.10


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot as seen from the cursor. Offsets are characters."""

    snapshot: Snapshot
    offset: int
    line: int
    line_start: int
    line_end: int
    below_start: int

    @classmethod
    def at(cls, snapshot: Snapshot, offset: int) -> View:
        """Offsets outside the text are clamped."""
        offset = min(max(offset, 0), len(snapshot.text))
        line = snapshot.line_of(offset)
        # A cursor between CR and LF stands at the end of its line.
        end = snapshot.line_end(line)
        offset = min(offset, end)
        return cls(snapshot, offset, line, snapshot.line_start(line), end, snapshot.next_line_start(line))

    @property
    def typed(self) -> str:
        return self.snapshot.text[self.line_start : self.offset]

    @property
    def tail(self) -> str:
        return self.snapshot.text[self.offset : self.line_end]


def last_tokens(tokenizer: Tokenizer, text: str, limit: int) -> str:
    """The end of `text` in at most `limit` tokens; all of it where it fits. Never tokenises much more than that."""
    if limit <= 0:
        return ""
    text = text[-limit * _CHARS_PER_TOKEN :]
    while text and tokenizer.count(text) > limit:
        text = text[len(text) // 8 + 1 :]
    return text


def first_tokens(tokenizer: Tokenizer, text: str, limit: int) -> str:
    """The beginning of `text` in at most `limit` tokens; all of it where it fits."""
    if limit <= 0:
        return ""
    text = text[: limit * _CHARS_PER_TOKEN]
    while text and tokenizer.count(text) > limit:
        text = text[: len(text) - len(text) // 8 - 1]
    return text


def relocated(memory: FileMemory, text: str) -> int | None:
    """Where the window that the last prompt showed begins now, or None where it is gone."""
    start, anchor = memory.window_start, memory.anchor
    if start == 0 or not anchor:
        return 0 if start == 0 else None
    if not (text.startswith(anchor, start) and text[start - 1] in "\r\n"):
        # Lines were added or removed above the window (an import, a formatter).
        start = text.find("\n" + anchor, max(0, start - _SEARCH_CHARS), start + _SEARCH_CHARS) + 1
        if start == 0:
            return None
    return start


def window_start(view: View, end_line: int, limit_tokens: int, tokenizer: Tokenizer, memory: FileMemory | None) -> int:
    """Offset of the first line shown above line `end_line`; that line's own start where no line fits.

    The last prompt's window, or that of an earlier place, is kept while it fits `limit_tokens` and still holds a quarter of
    that. A new one is chosen smaller than the limit, so that it can grow with the text for a while.
    """
    snapshot, text = view.snapshot, view.snapshot.text
    end = snapshot.line_start(end_line)
    for place in (memory, *memory.earlier) if memory is not None else ():
        kept = relocated(place, text)
        if kept is not None and kept <= end <= kept + limit_tokens * _CHARS_PER_TOKEN:
            tokens = tokenizer.count(text[kept:end])
            if tokens <= limit_tokens and (kept == 0 or tokens * 4 >= limit_tokens):
                return kept
    return _fresh_start(snapshot, end_line, limit_tokens, tokenizer)


def _fresh_start(snapshot: Snapshot, end_line: int, limit_tokens: int, tokenizer: Tokenizer) -> int:
    text, count = snapshot.text, tokenizer.count
    target = limit_tokens - limit_tokens // 5
    first, tokens = end_line, 0
    end = start = snapshot.line_start(end_line)
    while first > 0:
        above = snapshot.line_start(first - 1)
        if start - above > limit_tokens * _CHARS_PER_TOKEN:
            break
        tokens += count(text[above:start])
        # Down to the very beginning of a file the full limit may be used: there is no edge that could move.
        if tokens > (target if above else limit_tokens):
            break
        first, start = first - 1, above
    if start > 0:
        for line in range(first, min(first + _QUANTUM_LINES, end_line)):
            at = snapshot.line_start(line)
            if line % _QUANTUM_LINES == 0 or (text[at : at + 1].strip() and text[at] not in ")]}#"):
                first, start = line, at
                break
    # Counts of single lines do not add up exactly.
    while first < end_line and count(text[start:end]) > limit_tokens:
        first += 1
        start = snapshot.line_start(first)
    return start


def anchor_at(text: str, start: int) -> str:
    """The text that identifies a window's first lines in a later version."""
    return text[start : start + _ANCHOR_CHARS]


def below_end(snapshot: Snapshot, start: int, limit_tokens: int, tokenizer: Tokenizer) -> int:
    """Offset where the text shown from `start` (a line's start or not) ends: whole lines within `limit_tokens`."""
    text, count = snapshot.text, tokenizer.count
    if start >= len(text) or limit_tokens <= 0:
        return start
    line, end, tokens = snapshot.line_of(start), start, 0
    while end < len(text):
        following = snapshot.next_line_start(line)
        if following - end > limit_tokens * _CHARS_PER_TOKEN:
            break
        tokens += count(text[end:following])
        if tokens > limit_tokens:
            break
        line, end = line + 1, following
    while end > start and count(text[start:end]) > limit_tokens:
        line -= 1
        end = max(snapshot.line_start(line), start)
    return end


def behind_block_end(view: View, memory: FileMemory | None) -> int | None:
    """Where the suffix of before begins now, if all that came in front of it is the line that ends a block: an editor's, at Enter."""
    snapshot, line = view.snapshot, view.line + 1
    if memory is None or line >= snapshot.line_count:
        return None
    text, end = snapshot.line_text(line), snapshot.line_end(line)
    if not text.strip() or not is_closing_line(text, snapshot.language):
        return None
    stands = len(snapshot.text) - end == memory.below_chars and snapshot.text.startswith(memory.below, end)
    return end if stands else None


def still_holds(
    frozen: str, frozen_chars: int, start: int, snapshot: Snapshot, limit: int, tokenizer: Tokenizer
) -> bool:
    """Whether text frozen earlier may still stand for the live text from `start`.

    It may while its first token is equal, its first 50 tokens differ by less than 10 % and its token count by less than
    10 % (Copilot's rule with the first-token test of vscode#295450), and nothing was deleted below, nor more inserted than
    a tenth of it.

    Args:
        frozen: text as shown by the last prompt.
        frozen_chars: how much text stood below when it was frozen.
        limit: tokens that it may take now.
    """
    text = snapshot.text
    if len(text) - start < frozen_chars or tokenizer.count(frozen) > limit:
        return False
    whole_rest_was_shown = frozen_chars == len(frozen)
    if text.startswith(frozen, start) and frozen:
        grown = len(text) - start - len(frozen)
        return not whole_rest_was_shown or grown <= _TOLERANCE * len(frozen)
    # More text below than one edit explains is another place that looks alike: code repeats itself.
    if len(text) - start - frozen_chars > _TOLERANCE * len(frozen):
        return False
    live = text[start : below_end(snapshot, start, limit, tokenizer)]
    old = tokenizer.encode(frozen[: _COMPARED_TOKENS * _CHARS_PER_TOKEN])[:_COMPARED_TOKENS]
    new = tokenizer.encode(live[: _COMPARED_TOKENS * _CHARS_PER_TOKEN])[:_COMPARED_TOKENS]
    if not old or not new:
        return not old and not new
    if old[0] != new[0] or _distance(old, new) >= _TOLERANCE * _COMPARED_TOKENS:
        return False
    old_tokens, new_tokens = tokenizer.count(frozen), tokenizer.count(live)
    return abs(old_tokens - new_tokens) < _TOLERANCE * max(old_tokens, new_tokens)


def _distance(a: list[int], b: list[int]) -> int:
    """Levenshtein distance."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


def chunks(text: str, rule: CutRule) -> list[str]:
    """Cuts lines above the cursor into pieces that stay byte-equal when other pieces change.

    Cuts stand only where token counts add up, and are told by the content of a line (unindented, or one in eight by its
    checksum), so that an edit moves at most the cuts next to it.
    """
    least, most = _CHUNK_CHARS
    result: list[str] = []
    start = 0
    if len(text) > least:
        for at in cut_points(text, rule):
            if at - start < least:
                continue
            end = text.find("\n", at)
            line = text[at : end if end >= 0 else len(text)]
            outer = not line[:1].isspace() and line[:1] not in ")]}"
            if outer or at - start >= most or not crc32(line.encode()) & 7:
                result.append(text[start:at])
                start = at
    if start < len(text):
        result.append(text[start:])
    return result
