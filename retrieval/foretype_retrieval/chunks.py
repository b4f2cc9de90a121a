"""Chunks: the pieces of a file that are found and shown.

A chunk is a definition: its signature, the head of its documentation and as much of its body as fits into 200 to 300 tokens;
of a class the signatures of its members. Where there is no grammar, or the parser gives up, chunks follow the outer indentation.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from foretype_context.syntax.parsing import parse_bounded

from foretype_retrieval.definitions import ChunkKind, Definition, definitions

SHOWN_CHARS: Final = 1_000
"""Characters of a chunk that a prompt shows: 200 to 300 tokens of source."""

INDEXED_CHARS: Final = 3_000
MAX_CHUNKS_PER_FILE: Final = 2_000
_WINDOW_LINES: Final = 40
_DOC_LINES: Final = 6
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one file.

    Attributes:
        start, end: half-open character span of the whole definition.
        line: of `start`, counted from 0.
        name: what it defines; empty for a window.
        shown: what a prompt shows; whole lines, ending with a line ending.
        indexed: what is searched.
    """

    kind: ChunkKind
    name: str
    start: int
    end: int
    line: int
    shown: str
    indexed: str


class _Text:
    """Byte offsets of a tree in characters and lines."""

    def __init__(self, text: str, data: bytes) -> None:
        self.text = text
        self.data = data
        self.ascii = len(data) == len(text)
        self.starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._byte_starts = self.starts if self.ascii else [0, *(found.end() for found in re.finditer(b"\n", data))]

    def offset(self, byte: int) -> int:
        """Counted from the start of its line: a large file has thousands of definitions, and text before each."""
        if self.ascii:
            return byte
        line = bisect.bisect_right(self._byte_starts, byte) - 1
        return self.starts[line] + len(self.data[self._byte_starts[line] : byte].decode("utf-8", "replace"))

    def line_of(self, offset: int) -> int:
        return bisect.bisect_right(self.starts, offset) - 1

    def lines(self, first: int, last: int) -> list[str]:
        """Lines `first` to `last`, both included, each with its ending."""
        end = self.starts[last + 1] if last + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[first] : end].splitlines(keepends=True)


def chunk_text(text: str, language: str) -> list[Chunk]:
    """Chunks of a file in the order of their start. Never raises; adversarial source costs a bounded time."""
    data = text.encode("utf-8", "replace")
    tree = parse_bounded(data, language)
    if tree is None:
        return list(_windows(_Text(text, data)))
    source = _Text(text, data)
    found = list(_syntactic(source, list(definitions(tree, data))[:MAX_CHUNKS_PER_FILE]))
    return found or list(_windows(source))


def _syntactic(source: _Text, found: Sequence[Definition]) -> Iterator[Chunk]:
    seen: set[tuple[int, str]] = set()
    spans = [(source.line_of(source.offset(one.node.start_byte)), one) for one in found]
    for at, (first, one) in enumerate(spans):
        start, end = source.offset(one.node.start_byte), source.offset(one.node.end_byte)
        if (start, one.name) in seen:
            continue
        seen.add((start, one.name))
        last = source.line_of(max(end - 1, start))
        if one.kind is ChunkKind.CLASS:
            members = [spans[k] for k in range(at + 1, len(spans)) if spans[k][0] <= last][:60]
            lines = _outline(source, first, last, members)
        else:
            lines = source.lines(first, last)
        whole = "".join(lines)
        shown = _capped(lines, SHOWN_CHARS)
        yield Chunk(one.kind, one.name, start, end, first, _ended(shown), whole[:INDEXED_CHARS])


def _outline(source: _Text, first: int, last: int, members: Sequence[tuple[int, Definition]]) -> list[str]:
    """A class without the bodies of its members: its own lines, and of each member what stands before its body."""
    lines: list[str] = []
    at = first
    for begins, member in members:
        if begins < at:
            continue
        lines += source.lines(at, begins - 1) if begins > at else []
        head_end, ends = begins, source.line_of(max(source.offset(member.node.end_byte) - 1, 0))
        if member.body is not None:
            body_line = source.line_of(source.offset(member.body.start_byte))
            # A brace opens the body on the signature's own line; an indented body begins on the next.
            head_end = max(begins, body_line - 1 if body_line > begins else body_line)
        lines += source.lines(begins, min(head_end, ends))
        at = ends + 1
    if at <= last:
        lines += source.lines(at, last)
    return [line for line in lines if line.strip()]


def _capped(lines: Sequence[str], limit_chars: int) -> str:
    """Whole lines up to the limit; a long documentation is cut to its head, so that the body is seen as well."""
    kept: list[str] = []
    used = 0
    for line in _short_documentation(lines) if sum(map(len, lines)) > limit_chars else lines:
        if used + len(line) > limit_chars:
            if not kept:
                kept.append(line[:limit_chars])
            break
        kept.append(line)
        used += len(line)
    return "".join(kept)


def _short_documentation(lines: Sequence[str]) -> Iterator[str]:
    opened = next((at for at, line in enumerate(lines[:30]) if '"""' in line or "'''" in line), None)
    if opened is None:
        yield from lines
        return
    quote = '"""' if '"""' in lines[opened] else "'''"
    if lines[opened].count(quote) > 1:
        yield from lines
        return
    closed = next((at for at in range(opened + 1, len(lines)) if quote in lines[at]), len(lines) - 1)
    yield from lines[: min(opened + _DOC_LINES, closed)]
    yield from lines[closed:]


def _windows(source: _Text) -> Iterator[Chunk]:
    """Chunks along the outer indentation: each begins at a line that stands at the margin behind a blank one."""
    lines = _LINE.findall(source.text)  # a form feed ends no line of an editor's, and what is found is told by lines
    first, start, size, produced = 0, 0, 0, 0
    for at in range(len(lines) + 1):
        ended = at == len(lines)
        if not ended:
            line = lines[at]
            margin = bool(line[:1].strip()) and at > first and not lines[at - 1].strip()
            if not (at - first >= _WINDOW_LINES or (margin and at - first >= 4) or size > INDEXED_CHARS):
                size += len(line)
                continue
        piece = lines[first:at]
        text = "".join(piece)
        if text.strip():
            yield Chunk(
                ChunkKind.WINDOW,
                "",
                start,
                start + len(text),
                first,
                _ended(_capped(piece, SHOWN_CHARS)),
                text[:INDEXED_CHARS],
            )
            produced += 1
            if produced >= MAX_CHUNKS_PER_FILE:
                return
        first, start, size = at, start + len(text), 0 if ended else len(lines[at])


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else text + "\n"
