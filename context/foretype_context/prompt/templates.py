"""Prompts, byte for byte: segments become pieces of text and control tokens, and those become ids.

:mod:`foretype_context.grammars.grammar` says how each family wants it; :func:`render` turns segments into pieces and
:func:`encode_prompt` turns those into ids. The client calls it to count, the gateway to decide: both get the same ids.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from foretype_context.errors import SegmentOrderError, UnknownGrammarError
from foretype_context.grammars.grammar import (
    GRAMMARS,
    LEFT_TO_RIGHT,
    PSM_CLASSIC,
    PSM_GROWING,
    PSM_LINE_LAST,
    SPM,
    SPM_PLAIN,
    SPM_PLAIN_GROWING,
    Control,
    Grammar,
    Header,
    grammar,
)
from foretype_context.prompt.segments import Kind, Segment
from foretype_context.tokens.tokenizer import Tokenizer

_HOLE: Final = re.compile(r"\{(?:path|name)\}")

__all__ = [
    "GRAMMARS",
    "LEFT_TO_RIGHT",
    "PSM_CLASSIC",
    "PSM_GROWING",
    "PSM_LINE_LAST",
    "SPM",
    "SPM_PLAIN",
    "SPM_PLAIN_GROWING",
    "Control",
    "EncodedPrompt",
    "Grammar",
    "IdsOf",
    "Piece",
    "PromptEncoder",
    "Text",
    "UnknownGrammarError",
    "count_prompt",
    "encode_prompt",
    "grammar",
    "render",
]


@dataclass(frozen=True, slots=True)
class Text:
    """Ordinary text, encoded by itself.

    Attributes:
        segment_index: the segment that it belongs to.
        dummy_space: it is encoded with a space before it, as SentencePiece does with a text that begins.
    """

    text: str
    segment_index: int
    dummy_space: bool = False

    @property
    def encoded(self) -> str:
        """What the tokenizer gets."""
        return f" {self.text}" if self.dummy_space else self.text


Piece = Control | Text


class _Open(NamedTuple):
    """How far a prompt has come: which parts have begun, whether the next text is the first of its prefix, and what it begins with.

    A header that ends in a text is encoded together with the text behind it: apart they would not always give the same ids.
    """

    prefix: bool = False
    suffix: bool = False
    middle: bool = False
    first_text: bool = False
    held: str = ""


class _Renderer:
    """Builds pieces; control tokens wait for the segment that follows, so that its range includes them."""

    def __init__(self, grammar: Grammar, open: _Open | None = None) -> None:
        self._grammar = grammar
        self.pieces: list[Piece] = []
        self.owners: list[int] = []
        self.open = open or _Open()
        if open is None:
            for control in grammar.start:
                self._control(control.token, 0)
            if grammar.prefix_opens and not grammar.plain:
                self._open_prefix(0)

    def end(self, owner: int) -> None:
        """All parts have begun: what is generated comes next."""
        self._open_middle(owner)
        self._release(owner)

    def segment(self, at: int, segment: Segment) -> None:
        kind, path, grammar, open = segment.kind, segment.source.path, self._grammar, self.open
        if kind in (Kind.REPOSITORY, Kind.FILE, Kind.PATH):
            self._open_context(kind, at)
        if kind is Kind.REPOSITORY:
            # A family without a place for the name does not get it.
            self._header(grammar.repository, at, segment.text)
            self._release(at)
        elif kind is Kind.FILE:
            self._header(grammar.file, at, path)
            self._text(segment.text, at)
            self._release(at)
        elif kind is Kind.PATH:
            self._header(grammar.current, at, path)
            if not grammar.plain:
                self._open_prefix(at)
            if not self.open.prefix:
                self._release(at)
        elif kind is Kind.PREFIX:
            if open.suffix and not open.middle and not grammar.plain:
                # Suffix before prefix is SPM: both stand behind the middle token, as in joint PSM/SPM training.
                self._open_middle(at)
            self._open_prefix(at)
            self._text(segment.text, at)
        elif kind in (Kind.SUFFIX, Kind.TAIL):
            if not grammar.sees_below:
                raise SegmentOrderError(f"{grammar.id} shows nothing below the cursor, and no {kind} therefore")
            if open.middle or (open.prefix and grammar.plain):
                wanted = f"{grammar.id} wants the suffix first" if grammar.plain else "it must come before"
                raise SegmentOrderError(f"{kind} stands behind the {'prefix' if grammar.plain else 'middle'}; {wanted}")
            self._open_suffix(at)
            if kind is Kind.TAIL and grammar.tail and segment.text:
                self._control(grammar.tail, at)
            self._text(segment.text, at)
        else:
            self._open_middle(at)
            self._text(segment.text, at)

    def _control(self, token: str, owner: int) -> None:
        self._release(owner)
        self.pieces.append(Control(token))
        self.owners.append(owner)
        begins = self._grammar.dummy_space and token == self._grammar.fim_prefix
        if begins is not self.open.first_text:
            self.open = self.open._replace(first_text=begins)

    def _text(self, text: str, owner: int) -> None:
        if text:
            self.pieces.append(Text(self.open.held + text, owner, self.open.first_text))
            self.owners.append(owner)
            if self.open.first_text or self.open.held:
                self.open = self.open._replace(first_text=False, held="")

    def _release(self, owner: int) -> None:
        """What is held stands for itself: no text comes behind it."""
        held = self.open.held
        if held:
            self.open = self.open._replace(held="")
            self._text(held, owner)

    def _header(self, header: Header, owner: int, value: str) -> None:
        for part in header:
            if isinstance(part, Control):
                if part.token == self._grammar.fim_prefix and not self.open.prefix:
                    self.open = self.open._replace(prefix=True)
                self._control(part.token, owner)
            else:
                held = self.open.held + _HOLE.sub(lambda _: value, part)  # a path may look like a hole, too
                self.open = self.open._replace(held=held)

    def _open_context(self, kind: Kind, owner: int) -> None:
        grammar = self._grammar
        if grammar.suffix_first:
            self._open_prefix(owner)
        elif self.open.suffix or self.open.middle:
            raise SegmentOrderError(f"{kind} stands behind the suffix; {grammar.id} wants context before the hole")

    def _open_prefix(self, owner: int) -> None:
        if not self.open.prefix:
            if self._grammar.plain:
                self._open_suffix(owner)
            self.open = self.open._replace(prefix=True)
            if self._grammar.fim_prefix:
                self._control(self._grammar.fim_prefix, owner)

    def _open_suffix(self, owner: int) -> None:
        if not self._grammar.plain:
            self._open_prefix(owner)
        if not self.open.suffix:
            self.open = self.open._replace(suffix=True)
            if self._grammar.fim_suffix:
                self._control(self._grammar.fim_suffix, owner)

    def _open_middle(self, owner: int) -> None:
        self._open_prefix(owner) if self._grammar.plain else self._open_suffix(owner)
        if not self.open.middle:
            self.open = self.open._replace(middle=True)
            if self._grammar.fim_middle:
                self._control(self._grammar.fim_middle, owner)


def _rendered(grammar: Grammar, segments: Sequence[Segment]) -> _Renderer:
    out = _Renderer(grammar)
    for at, segment in enumerate(segments):
        out.segment(at, segment)
    out.end(max(len(segments) - 1, 0))
    return out


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


IdsOf = Callable[[str], Iterable[int]]
"""Gives what a tokenizer's `encode` gives, perhaps from memory."""


def encode_prompt(
    tokenizer: Tokenizer, grammar: Grammar, segments: Sequence[Segment], *, ids_of: IdsOf | None = None
) -> EncodedPrompt:
    """Encodes segments. Raises SegmentOrderError, and UnknownControlError where the grammar is not this model's.

    Args:
        ids_of: in place of the tokenizer's `encode`.
    """
    ids, shown = _no_ids(), list[str]()
    ends = [0] * len(segments)
    _encode_pieces(tokenizer, ids_of or tokenizer.encode, grammar, _rendered(grammar, segments), ids, shown, ends)
    return EncodedPrompt(ids, _ranges(ends), "".join(shown))


def _no_ids() -> array[int]:
    return array("Q")


def _encode_pieces(
    tokenizer: Tokenizer,
    ids_of: IdsOf,
    grammar: Grammar,
    out: _Renderer,
    ids: array[int],
    shown: list[str],
    ends: list[int],
) -> None:
    for piece, owner in zip(out.pieces, out.owners, strict=True):
        if isinstance(piece, Control):
            ids.append(tokenizer.control(piece.token))
            # Servers that take text put the start token there themselves, and know SentencePiece's mark as a space.
            shown.append("" if piece in grammar.start else piece.token.replace("▁<", " <"))
        else:
            ids.extend(ids_of(piece.encoded))
            # Servers that take text put the space there themselves.
            shown.append(piece.text)
        if ends:
            ends[owner] = len(ids)


class _Mark(NamedTuple):
    """How far an encoding had come after a segment, and what was open."""

    segment: Segment
    ids: int
    characters: int
    open: _Open


class PromptEncoder:
    """Encodes prompts each of which resembles the one before: what both begin with is taken over.

    Gives what :func:`encode_prompt` gives. Holds the ids and the text of the last prompt; one for each session.
    """

    def __init__(self, tokenizer: Tokenizer, grammar: Grammar) -> None:
        self._tokenizer = tokenizer
        self._grammar = grammar
        self._marks: list[_Mark] = []
        self._last = EncodedPrompt(_no_ids(), [], "")

    def encode(self, segments: Sequence[Segment], same: int | None = None) -> EncodedPrompt:
        """Raises SegmentOrderError, and UnknownControlError where the grammar is not this model's.

        Args:
            same: what :meth:`same` says of them, where the caller has asked.
        """
        same = self.same(segments) if same is None else same
        marks, ids, shown, encode = self._marks[:same], _no_ids(), list[str](), self._tokenizer.encode
        out = _Renderer(self._grammar, marks[-1].open if same else None)
        if same:
            mark = marks[-1]
            ids, shown = self._last.ids[: mark.ids], [self._last.text[: mark.characters]]
        began, characters, ends = len(ids), len(shown[0]) if shown else 0, [0] * len(segments)
        for at in range(same, len(segments)):
            out.segment(at, segments[at])
            done = len(shown)
            _encode_pieces(self._tokenizer, encode, self._grammar, out, ids, shown, ends)
            characters += sum(map(len, shown[done:]))
            marks.append(_Mark(segments[at], len(ids), characters, out.open))
            out.pieces.clear()
            out.owners.clear()
        out.end(max(len(segments) - 1, 0))
        _encode_pieces(self._tokenizer, encode, self._grammar, out, ids, shown, ends)
        ranges = [*self._last.ranges[:same], *_ranges(ends[same:], began)]
        if same:  # what ends a prompt belongs to its last segment, which may be another one now
            ranges[same - 1] = ranges[same - 1][0], ends[same - 1] or began
        self._marks, self._last = marks, EncodedPrompt(ids, ranges, "".join(shown))
        return self._last

    def same(self, segments: Sequence[Segment]) -> int:
        """Leading segments that render as those of the last prompt did."""
        same = 0
        for mark, segment in zip(self._marks, segments, strict=False):
            before = mark.segment
            alike = before.kind is segment.kind and before.text == segment.text
            if not alike or before.source.path != segment.source.path:
                break
            same += 1
        return same


def count_prompt(tokenizer: Tokenizer, grammar: Grammar, segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """The ranges of :func:`encode_prompt` from cached counts, without ids."""
    out = _rendered(grammar, segments)
    ends = [0] * len(segments)
    total = 0
    for piece, owner in zip(out.pieces, out.owners, strict=True):
        total += 1 if isinstance(piece, Control) else tokenizer.count(piece.encoded)
        if segments:
            ends[owner] = total
    return _ranges(ends)


def _ranges(ends: list[int], start: int = 0) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for end in ends:
        # A segment that renders to nothing has an empty range where it stands.
        end = max(end, start)
        ranges.append((start, end))
        start = end
    return ranges
