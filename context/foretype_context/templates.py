"""Prompts, byte for byte: segments become pieces of text and control tokens, and those become ids.

:mod:`foretype_context.grammars` says how each family wants it; :func:`render` turns segments into pieces and
:func:`encode_prompt` turns those into ids. The client calls it to count, the gateway to decide: both get the same ids.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from foretype_context.errors import SegmentOrderError, UnknownGrammarError
from foretype_context.grammars import (
    GRAMMARS,
    PSM_CLASSIC,
    PSM_GROWING,
    PSM_LINE_LAST,
    SPM,
    Control,
    Grammar,
    Header,
    detect,
    grammar,
)
from foretype_context.segments import Kind, Segment
from foretype_context.tokens import Tokenizer

__all__ = [
    "GRAMMARS",
    "PSM_CLASSIC",
    "PSM_GROWING",
    "PSM_LINE_LAST",
    "SPM",
    "Control",
    "EncodedPrompt",
    "Grammar",
    "Piece",
    "PromptEncoder",
    "Text",
    "UnknownGrammarError",
    "count_prompt",
    "detect",
    "encode_prompt",
    "grammar",
    "healed_suffix",
    "render",
]


@dataclass(frozen=True, slots=True)
class Text:
    """Ordinary text, encoded by itself. `segment_index` is the segment that it belongs to."""

    text: str
    segment_index: int


Piece = Control | Text


class _Renderer:
    """Builds pieces; control tokens wait for the segment that follows, so that its range includes them."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self.pieces: list[Piece] = []
        self.owners: list[int] = []
        self.prefix_open = self.suffix_open = self.middle_open = False

    def control(self, token: str, owner: int) -> None:
        self.pieces.append(Control(token))
        self.owners.append(owner)

    def text(self, text: str, owner: int) -> None:
        if text:
            self.pieces.append(Text(text, owner))
            self.owners.append(owner)

    def header(self, header: Header, owner: int, value: str) -> None:
        for part in header:
            if isinstance(part, Control):
                self.prefix_open = self.prefix_open or part.token == self._grammar.fim_prefix
                self.control(part.token, owner)
            else:
                self.text(part.replace("{path}", value).replace("{name}", value), owner)

    def open_prefix(self, owner: int) -> None:
        if not self.prefix_open:
            self.prefix_open = True
            self.control(self._grammar.fim_prefix, owner)

    def open_suffix(self, owner: int) -> None:
        self.open_prefix(owner)
        if not self.suffix_open:
            self.suffix_open = True
            self.control(self._grammar.fim_suffix, owner)

    def open_middle(self, owner: int) -> None:
        self.open_suffix(owner)
        if not self.middle_open:
            self.middle_open = True
            self.control(self._grammar.fim_middle, owner)


def _rendered(grammar: Grammar, segments: Sequence[Segment]) -> _Renderer:
    out = _Renderer(grammar)
    for control in grammar.start:
        out.control(control.token, 0)
    if grammar.suffix_first:
        _render_suffix_first(out, grammar, segments)
        return out
    if grammar.prefix_opens:
        out.open_prefix(0)
    for at, segment in enumerate(segments):
        _render_segment(out, grammar, at, segment)
    out.open_middle(max(len(segments) - 1, 0))
    return out


def _render_segment(out: _Renderer, grammar: Grammar, at: int, segment: Segment) -> None:
    kind, path = segment.kind, segment.source.path
    if kind in (Kind.REPOSITORY, Kind.FILE, Kind.PATH) and (out.suffix_open or out.middle_open):
        raise SegmentOrderError(f"{kind} stands behind the suffix; {grammar.id} wants context before the hole")
    if kind is Kind.REPOSITORY:
        # A family without a place for the name does not get it.
        out.header(grammar.repository, at, segment.text)
    elif kind is Kind.FILE:
        out.header(grammar.file, at, path)
        out.text(segment.text, at)
    elif kind is Kind.PATH:
        out.header(grammar.current, at, path)
        out.open_prefix(at)
    elif kind is Kind.PREFIX:
        if out.suffix_open and not out.middle_open:
            # Suffix before prefix is SPM: both stand behind the middle token, as in joint PSM/SPM training.
            out.open_middle(at)
        out.open_prefix(at)
        out.text(segment.text, at)
    elif kind in (Kind.SUFFIX, Kind.TAIL):
        if out.middle_open:
            raise SegmentOrderError(f"{kind} stands behind the middle; it must come before")
        out.open_suffix(at)
        if kind is Kind.TAIL and grammar.tail and segment.text:
            out.control(grammar.tail, at)
        out.text(segment.text, at)
    else:
        out.open_middle(at)
        out.text(segment.text, at)


def _render_suffix_first(out: _Renderer, grammar: Grammar, segments: Sequence[Segment]) -> None:
    out.control(grammar.fim_suffix, 0)
    opened = False
    for at, segment in enumerate(segments):
        if segment.kind in (Kind.SUFFIX, Kind.TAIL):
            if opened:
                raise SegmentOrderError(f"{segment.kind} stands behind the prefix; {grammar.id} wants the suffix first")
            out.text(segment.text, at)
            continue
        if not opened:
            opened = True
            out.control(grammar.fim_prefix, at)
        if segment.kind is Kind.REPOSITORY:
            out.header(grammar.repository, at, segment.text)
        elif segment.kind is Kind.FILE:
            out.header(grammar.file, at, segment.source.path)
            out.text(segment.text, at)
        elif segment.kind is Kind.PATH:
            out.header(grammar.current, at, segment.source.path)
        else:
            out.text(segment.text, at)
    if not opened:
        out.control(grammar.fim_prefix, max(len(segments) - 1, 0))


def render(grammar: Grammar, segments: Sequence[Segment]) -> list[Piece]:
    """The pieces of a prompt.

    Segments stand in prompt order. `PREFIX… SUFFIX… [TAIL] MIDDLE` is PSM, `SUFFIX… PREFIX… MIDDLE` is SPM; each part may be
    missing. Raises SegmentOrderError where the grammar has no way to say it.
    """
    return _rendered(grammar, segments).pieces


class EncodedPrompt(NamedTuple):
    """A prompt as ids; `ranges` holds `[start, end)` per segment and covers all ids; `text` is for engines without ids.

    The ids are packed as unsigned 64-bit numbers: a list of them is looked through, id by id, at every round of the cycle collector.
    """

    ids: array[int]
    ranges: list[tuple[int, int]]
    text: str


def encode_prompt(tokenizer: Tokenizer, grammar: Grammar, segments: Sequence[Segment]) -> EncodedPrompt:
    """Encodes segments. Raises SegmentOrderError, and UnknownControlError where the grammar is not this model's."""
    ids, shown = _no_ids(), list[str]()
    ends = [0] * len(segments)
    _encode_pieces(tokenizer, grammar, _rendered(grammar, segments), ids, shown, ends)
    return EncodedPrompt(ids, _ranges(ends), "".join(shown))


def _no_ids() -> array[int]:
    return array("Q")


def _encode_pieces(
    tokenizer: Tokenizer, grammar: Grammar, out: _Renderer, ids: array[int], shown: list[str], ends: list[int]
) -> None:
    for piece, owner in zip(out.pieces, out.owners, strict=True):
        if isinstance(piece, Control):
            ids.append(tokenizer.control(piece.token))
            # Servers that take text put the start token there themselves, and know SentencePiece's mark as a space.
            shown.append("" if piece in grammar.start else piece.token.replace("▁<", " <"))
        else:
            ids.extend(tokenizer.encode(piece.text))
            shown.append(piece.text)
        if ends:
            ends[owner] = len(ids)


class _Mark(NamedTuple):
    """How far an encoding had come after a segment, and what was open."""

    segment: Segment
    ids: int
    characters: int
    prefix_open: bool
    suffix_open: bool
    middle_open: bool


class PromptEncoder:
    """Encodes prompts each of which resembles the one before: what both begin with is taken over.

    Gives what :func:`encode_prompt` gives. Holds the ids and the text of the last prompt; one for each session.
    """

    def __init__(self, tokenizer: Tokenizer, grammar: Grammar) -> None:
        self._tokenizer = tokenizer
        self._grammar = grammar
        self._marks: list[_Mark] = []
        self._last = EncodedPrompt(_no_ids(), [], "")

    def encode(self, segments: Sequence[Segment]) -> EncodedPrompt:
        """Raises SegmentOrderError, and UnknownControlError where the grammar is not this model's."""
        if self._grammar.suffix_first:
            return encode_prompt(self._tokenizer, self._grammar, segments)
        same = self._same(segments)
        out = _Renderer(self._grammar)
        marks, ids, shown, ends = self._marks[:same], _no_ids(), list[str](), [0] * len(segments)
        if same:
            mark = marks[-1]
            ids, shown = self._last.ids[: mark.ids], [self._last.text[: mark.characters]]
            ends[:same] = [mark.ids for mark in marks]
            out.prefix_open, out.suffix_open, out.middle_open = mark[3:]
        else:
            for control in self._grammar.start:
                out.control(control.token, 0)
            if self._grammar.prefix_opens:
                out.open_prefix(0)
        characters = len(shown[0]) if shown else 0
        for at in range(same, len(segments)):
            _render_segment(out, self._grammar, at, segments[at])
            done = len(shown)
            _encode_pieces(self._tokenizer, self._grammar, out, ids, shown, ends)
            characters += sum(map(len, shown[done:]))
            marks.append(_Mark(segments[at], len(ids), characters, out.prefix_open, out.suffix_open, out.middle_open))
            out.pieces.clear()
            out.owners.clear()
        out.open_middle(max(len(segments) - 1, 0))
        _encode_pieces(self._tokenizer, self._grammar, out, ids, shown, ends)
        self._marks, self._last = marks, EncodedPrompt(ids, _ranges(ends), "".join(shown))
        return self._last

    def _same(self, segments: Sequence[Segment]) -> int:
        """Leading segments that render as those of the last prompt did."""
        same = 0
        for mark, segment in zip(self._marks, segments, strict=False):
            before = mark.segment
            alike = before.kind is segment.kind and before.text == segment.text
            if not alike or before.source.path != segment.source.path:
                break
            same += 1
        return same


def count_prompt(
    tokenizer: Tokenizer, grammar: Grammar, segments: Sequence[Segment], count: Callable[[str], int] | None = None
) -> list[tuple[int, int]]:
    """The ranges of :func:`encode_prompt` from cached counts, without ids."""
    count = count or tokenizer.count
    out = _rendered(grammar, segments)
    ends = [0] * len(segments)
    total = 0
    for piece, owner in zip(out.pieces, out.owners, strict=True):
        total += 1 if isinstance(piece, Control) else count(piece.text)
        if segments:
            ends[owner] = total
    return _ranges(ends)


def _ranges(ends: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    start = 0
    for end in ends:
        # A segment that renders to nothing has an empty range where it stands.
        end = max(end, start)
        ranges.append((start, end))
        start = end
    return ranges


_LAST_PRE_TOKEN: Final = re.compile(r"(?:[^\S\r\n]?[^\W\d_]+|\d|[^\S\r\n]?(?:[^\w\s]|_)+|[^\S\r\n]+)\Z")


def healed_suffix(typed: str) -> str:
    """What a prompt must back up by, so that it ends where the pre-tokeniser cuts: the last pre-token of `typed`.

    A model whose training never cut inside a token cannot continue `retu` well. The prompt then leaves these characters out
    and the output must begin with them; the caller strips them. Follows Qwen2's pattern, in which a space belongs to the
    word behind it.
    """
    found = _LAST_PRE_TOKEN.search(typed[-64:])
    return found.group() if found else ""
