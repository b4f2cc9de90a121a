"""Prompt layouts: where lines above, suffix, tail and the typed part stand, as pure functions of memory and view.

`psm_line_last` puts what was typed on the line behind the middle token: typing appends. `psm_growing` puts all that was typed
since the last rebase there: Enter appends too. `spm` shows the suffix first; `spm_plain` and `spm_plain_growing` are those two for
families that always do, with a token between prefix and what was typed. `psm_classic` is what most peers send, here for
comparison: it recomputes the suffix with every key. `left_to_right` shows nothing below the cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from foretype_context.prompt.healing import healed_end, healed_suffix
from foretype_context.prompt.plan import FileMemory, FrozenSpan
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_context.prompt.strategy import DEFAULT_STRATEGY, Strategy
from foretype_context.prompt.templates import (
    LEFT_TO_RIGHT,
    PSM_CLASSIC,
    PSM_GROWING,
    PSM_LINE_LAST,
    SPM,
    SPM_PLAIN,
    SPM_PLAIN_GROWING,
    Grammar,
)
from foretype_context.prompt.windows import (
    View,
    anchor_at,
    behind_block_end,
    below_end,
    chunks,
    first_tokens,
    last_tokens,
    relocated,
    still_holds,
    window_start,
)
from foretype_context.syntax.closers import is_closers
from foretype_context.tokens.tokenizer import Tokenizer, cut_points

IDLE_SECONDS: Final = 3.0
"""After this long without a request old edits may move up: nobody is typing on top of the cache."""

_MIDDLE_QUANTUM_TOKENS: Final = 64
_HEALED_CHARS: Final = 256
"""Looked at before the cursor for what healing leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRequest:
    """What a layout is asked for.

    Attributes:
        tokens: for all text of the current file together, special tokens already taken off.
        suffix_tokens: at most this much of it below the cursor.
        now: seconds on the caller's clock.
        strategy: how long a hole grows, how many places are remembered.
    """

    view: View
    memory: FileMemory | None
    tokens: int
    suffix_tokens: int
    tokenizer: Tokenizer
    grammar: Grammar
    now: float
    strategy: Strategy = DEFAULT_STRATEGY

    @property
    def below_tokens(self) -> int:
        """For all text below the cursor together."""
        return min(self.suffix_tokens, self.tokens // 3)

    @property
    def idle(self) -> bool:
        return self.memory is not None and self.now - self.memory.planned_at >= IDLE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """The current file's segments, each group in order; `suffix_first` says which way round they stand."""

    above: tuple[Segment, ...]
    suffix: tuple[Segment, ...]
    tail: Segment | None
    middle: Segment
    healed: str
    frozen: tuple[FrozenSpan, ...]
    memory: FileMemory
    suffix_first: bool = False

    def ordered(self, grammar: Grammar) -> list[Segment]:
        """In prompt order, without the context of other files."""
        tail = [self.tail] if self.tail is not None else []
        if self.suffix_first:
            return [*tail, *self.suffix, *self.above, self.middle]
        below = [*self.suffix, *tail] if grammar.tail else [*tail, *self.suffix]
        return [*self.above, *below, self.middle]


def _segment(view: View, kind: Kind, start: int, end: int, text: str | None = None) -> Segment:
    snapshot = view.snapshot
    source = Source(document=snapshot.uri, path=snapshot.path, version=snapshot.version, start=start, end=end)
    volatile = kind in (Kind.TAIL, Kind.MIDDLE)
    scope = Scope.SESSION if volatile else Scope.FILE
    return Segment(kind=kind, scope=scope, source=source, text=snapshot.text[start:end] if text is None else text)


def _above(request: LayoutRequest, start: int, end: int) -> tuple[Segment, ...]:
    view = request.view
    segments: list[Segment] = []
    for text in chunks(view.snapshot.text[start:end], request.tokenizer.cut_rule):
        segments.append(_segment(view, Kind.PREFIX, start, start + len(text), text))
        start += len(text)
    return tuple(segments)


def _fits_above(
    request: LayoutRequest, end_line: int, middle_tokens: int, used_tokens: int, quantum: int = _MIDDLE_QUANTUM_TOKENS
) -> int:
    """Start of the window above `end_line` within what is left; the middle counts in steps, so that a key moves nothing."""
    reserved = -(-max(middle_tokens, 1) // quantum) * quantum
    left = request.tokens - used_tokens
    limit = left - reserved if left >= 2 * reserved else left - middle_tokens
    return window_start(request.view, end_line, max(limit, 0), request.tokenizer, request.memory)


@dataclass(frozen=True, slots=True)
class _Below:
    """Text below the hole: as shown, and the live span for which it stands."""

    segment: Segment | None
    tokens: int
    frozen: tuple[FrozenSpan, ...]
    text: str
    source: Source
    chars: int


_NOTHING_BELOW: Final = _Below(None, 0, (), "", Source(), -1)


def _below(request: LayoutRequest, start: int, tokens: int, *, freeze: bool) -> _Below:
    """Text from `start` on, frozen where the last prompt's may still stand for it."""
    view, memory, tokenizer = request.view, request.memory, request.tokenizer
    snapshot = view.snapshot
    if (
        freeze
        and memory is not None
        and memory.below_chars >= 0
        and not request.idle
        and still_holds(memory.below, memory.below_chars, start, snapshot, tokens, tokenizer)
    ):
        shown, source = memory.below, memory.below_source
        frozen: tuple[FrozenSpan, ...] = ()
        if not snapshot.text.startswith(shown, start):
            frozen = (FrozenSpan(start, below_end(snapshot, start, tokens, tokenizer), shown),)
        segment = Segment(kind=Kind.SUFFIX, scope=Scope.FILE, source=source, text=shown) if shown else None
        return _Below(segment, tokenizer.count(shown), frozen, shown, source, memory.below_chars)
    end = below_end(snapshot, start, tokens, tokenizer)
    segment = _segment(view, Kind.SUFFIX, start, end)
    found = segment if segment.text else None
    return _Below(found, tokenizer.count(segment.text), (), segment.text, segment.source, len(snapshot.text) - start)


def _tail_room(request: LayoutRequest) -> int:
    room = request.below_tokens
    return min(room, request.tokens // 8) if request.grammar.tail else room


def _tail(request: LayoutRequest, tokens: int, lines: int = 0) -> tuple[Segment | None, int]:
    """The tail segment and the offset where the suffix begins.

    Where the family has a tail token the tail is the rest of the line, and `lines` whole lines after it, without the last
    line's ending. Else it begins the suffix, so it reaches, line ending included, to the next place where token counts add up.
    """
    view, tokenizer = request.view, request.tokenizer
    if request.grammar.tail:
        snapshot = view.snapshot
        line = min(view.line + lines, snapshot.line_count - 1)
        text = first_tokens(tokenizer, snapshot.text[view.offset : snapshot.line_end(line)], tokens)
        segment = _segment(view, Kind.TAIL, view.offset, view.offset + len(text), text) if text else None
        return segment, snapshot.next_line_start(line)
    text, start = view.snapshot.text, view.offset
    window = text[start : below_end(view.snapshot, start, tokens, tokenizer)]
    border = view.below_start - start
    cut = next((at for at in cut_points(window, tokenizer.cut_rule) if at >= border), None)
    if cut is None:
        # No such place near, or a rest of the line larger than all that may stand below: nothing follows the tail.
        window = window or first_tokens(tokenizer, view.tail, tokens)
        segment = _segment(view, Kind.TAIL, start, start + len(window), window) if window else None
        return segment, len(text)
    return _segment(view, Kind.TAIL, start, start + cut), start + cut


def _tail_lines(request: LayoutRequest, place: FileMemory) -> int | None:
    """How many lines the tail must hold so that the suffix of `place` follows it; None where it cannot.

    A suffix that is exactly as it was is looked for first, on any line: one that is merely similar may be a line off.
    """
    view, snapshot = request.view, request.view.snapshot
    room = _tail_room(request)
    if not request.grammar.tail:
        _, start = _tail(request, room)
        return 0 if _below_holds(request, place, start) else None
    starts: list[int] = []
    for line in range(view.line, min(view.line + request.grammar.tail_lines + 1, snapshot.line_count)):
        # The rest of the line alone may be cut to its room; lines more must be whole, or text would be missing in between.
        tail = snapshot.text[view.offset : snapshot.line_end(line)]
        if line > view.line and first_tokens(request.tokenizer, tail, room) != tail:
            break
        starts.append(snapshot.next_line_start(line))
    for exactly in (True, False):
        for lines, start in enumerate(starts):
            if (not exactly or snapshot.text.startswith(place.below, start)) and _below_holds(request, place, start):
                return lines
    return None


def _below_holds(request: LayoutRequest, place: FileMemory, start: int) -> bool:
    return place.below_chars < 0 or still_holds(
        place.below, place.below_chars, start, request.view.snapshot, request.suffix_tokens, request.tokenizer
    )


def _middle(request: LayoutRequest, start: int, tokens: int) -> tuple[str, str]:
    """Text from `start` to the cursor within `tokens`, and the characters that healing leaves out of it."""
    view = request.view
    text = view.snapshot.text[start : view.offset]
    healed = _healed(request)[-len(text) :] if text else ""
    text = text[: len(text) - len(healed)] if healed else text
    return last_tokens(request.tokenizer, text, tokens), healed


def _healed(request: LayoutRequest) -> str:
    """What a prompt leaves out before the cursor."""
    view, grammar = request.view, request.grammar
    if not grammar.heals:
        return ""
    if not grammar.breaks_hold_indentation:
        return healed_suffix(view.typed)
    return healed_end(view.snapshot.text[max(view.offset - _HEALED_CHARS, 0) : view.offset])


def _remember(request: LayoutRequest, start: int, hole: int, below: _Below) -> FileMemory:
    text = request.view.snapshot.text
    shown = FileMemory(
        window_start=start,
        anchor=anchor_at(text, start),
        hole_start=hole,
        above=text[start:hole],
        below=below.text,
        below_source=below.source,
        below_chars=below.chars,
        planned_at=request.now,
    )
    return replace(shown, earlier=_earlier(request.memory, shown, request.strategy.places))


def _earlier(memory: FileMemory | None, shown: FileMemory, most: int) -> tuple[FileMemory, ...]:
    """The places before `shown`, newest first, each once."""
    if memory is None:
        return ()
    places = (replace(memory, earlier=()), *memory.earlier)
    others = [one for one in places if (one.above, one.below) != (shown.above, shown.below)]
    return tuple(others[:most])


class _Kept(NamedTuple):
    """A request with the memory of the place that still fits, and how many lines more than the cursor's its tail holds."""

    request: LayoutRequest
    tail_lines: int


def _recalled(request: LayoutRequest, fits: Callable[[LayoutRequest, FileMemory], bool]) -> _Kept | None:
    """The newest memory that fits the cursor's place and whose suffix may still stand, or None."""
    memory, text = request.memory, request.view.snapshot.text
    if memory is None:
        return None
    places = (replace(memory, earlier=()), *memory.earlier)
    for at, place in enumerate(places):
        start = relocated(place, text)
        if start is None or not text.startswith(place.above, start):
            continue
        moved = start - place.window_start
        place = replace(place, window_start=start, hole_start=place.hole_start + moved)
        if not fits(request, place) or (lines := _tail_lines(request, place)) is None:
            continue
        # Since an earlier place was shown, insertions and deletions may have evened out: its suffix must be as it was.
        if at and not text.startswith(place.below, _tail(request, _tail_room(request), lines)[1]):
            continue
        others = (*places[:at], *places[at + 1 :])
        found = replace(place, planned_at=memory.planned_at, earlier=others)
        return _Kept(replace(request, memory=found), lines)
    return None


def _psm(
    request: LayoutRequest, hole: int, hole_line: int, quantum: int = _MIDDLE_QUANTUM_TOKENS, tail_lines: int = 0
) -> FilePart:
    """Lines above `hole`, suffix and tail, then what stands between `hole` and the cursor."""
    view, tokenizer = request.view, request.tokenizer
    middle, healed = _middle(request, hole, request.tokens // 2)
    middle_tokens = tokenizer.count(middle)
    tail, below_start = _tail(request, _tail_room(request), tail_lines)
    tail_tokens = tokenizer.count(tail.text) if tail is not None else 0
    room = request.below_tokens - (0 if request.grammar.tail else tail_tokens)
    below = _below(request, below_start, max(room, 0), freeze=True)
    start = _fits_above(request, hole_line, middle_tokens, tail_tokens + below.tokens, quantum)
    middle_start = view.offset - len(healed) - len(middle)
    return FilePart(
        above=_above(request, start, hole) if middle_start == hole else (),  # a line that is cut has nothing above it
        suffix=(below.segment,) if below.segment is not None else (),
        tail=tail,
        middle=_segment(view, Kind.MIDDLE, middle_start, middle_start + len(middle), middle),
        healed=healed,
        frozen=below.frozen,
        memory=_remember(request, start, hole, below),
    )


def psm_line_last(request: LayoutRequest) -> FilePart:
    """Lines above · frozen suffix · tail · middle token · typed part of the line."""
    view = request.view
    kept = _recalled(request, _same_line) or _Kept(request, 0)
    return _psm(kept.request, view.line_start, view.line, tail_lines=kept.tail_lines)


def psm_growing(request: LayoutRequest) -> FilePart:
    """Lines above and suffix both frozen at the last rebase · tail · middle token · all typed since.

    A fresh hole begins at the cursor's line, or as many lines above it as the family was trained on.

    Rebases on any change before the end of the frozen lines, when the cursor left the hole, when the hole is 20 lines or a
    sixth of the room, and when the suffix no longer holds, not even behind a tail of some lines; unless an earlier place of
    this file still fits. A pause is no reason: what it would tidy up, the user would wait for at the next key.
    """
    view = request.view
    # All that the hole may grow to is set aside at once: lines above that made room for it later would void everything.
    quantum = max(int(request.tokens * request.strategy.growing_share + 1e-6), 1)
    kept = _recalled(request, _still_growing)
    if kept is None or (memory := kept.request.memory) is None:
        line = _fresh_line(request, quantum)
        return _psm(request, view.snapshot.line_start(line), line, quantum)
    hole = memory.hole_start
    return _psm(kept.request, hole, view.snapshot.line_of(hole), quantum, kept.tail_lines)


def _fresh_line(request: LayoutRequest, most: int) -> int:
    """The line that a fresh hole begins at: `fresh_lines` above the cursor's, or fewer where they do not fit `most` tokens."""
    view, snapshot = request.view, request.view.snapshot
    line = max(view.line - request.grammar.fresh_lines, 0)
    while line < view.line and request.tokenizer.count(snapshot.text[snapshot.line_start(line) : view.offset]) > most:
        line += 1
    return line


def _same_line(request: LayoutRequest, place: FileMemory) -> bool:
    return place.hole_start == request.view.line_start


def _still_growing(request: LayoutRequest, place: FileMemory) -> bool:
    view = request.view
    snapshot, hole = view.snapshot, place.hole_start
    if not place.window_start <= hole <= view.line_start or place.window_start + len(place.above) != hole:
        return False
    if (hole and snapshot.text[hole - 1] not in "\r\n") or view.line - snapshot.line_of(
        hole
    ) > request.strategy.growing_lines:
        return False
    return request.tokenizer.count(snapshot.text[hole : view.offset]) <= request.tokens * request.strategy.growing_share


def psm_classic(request: LayoutRequest) -> FilePart:
    """Text up to the cursor · text from the cursor on · middle token."""
    view, tokenizer = request.view, request.tokenizer
    typed, healed = _middle(request, view.line_start, request.tokens // 2)
    typed_start = view.offset - len(healed) - len(typed)
    below = _below(request, view.offset, request.below_tokens, freeze=False)
    start = _fits_above(request, view.line, tokenizer.count(typed), below.tokens)
    first = start if typed_start == view.line_start else typed_start
    return FilePart(
        above=_above(request, first, view.offset - len(healed)),
        suffix=(below.segment,) if below.segment is not None else (),
        tail=None,
        middle=_segment(view, Kind.MIDDLE, view.offset, view.offset, ""),
        healed=healed,
        frozen=(),
        memory=_remember(request, start, view.line_start, below),
    )


def _below_typed(request: LayoutRequest) -> _Below:
    """The frozen suffix from the cursor on, without what an editor closes by itself.

    That comes and goes as the user types, and all that stands behind it would be computed again.
    """
    view, snapshot = request.view, request.view.snapshot
    start = view.line_end if is_closers(view.tail, snapshot.language) else view.offset
    if start == view.line_end and not request.idle:
        start = behind_block_end(view, request.memory) or start
    below = _below(request, start, request.below_tokens, freeze=True)
    hidden = (FrozenSpan(view.offset, start, ""),) if start > view.offset else ()
    return replace(below, frozen=(*hidden, *below.frozen))


def spm(request: LayoutRequest) -> FilePart:
    """Frozen suffix from the cursor on, or from behind closers · middle token · text up to the cursor.

    The text since the last place where token counts add up is the middle: nothing separates it from the lines above.
    """
    return replace(_up_to_cursor(request, _below_typed(request)), suffix_first=True)


def _up_to_cursor(request: LayoutRequest, below: _Below) -> FilePart:
    """Text up to the cursor, healed, and what was chosen of the text below."""
    view, tokenizer, text = request.view, request.tokenizer, request.view.snapshot.text
    healed = _healed(request)
    end = view.offset - len(healed)
    line_start = min(view.line_start, end)
    typed = last_tokens(tokenizer, text[line_start:end], request.tokens // 2)
    if len(typed) == end - line_start:
        start = min(_fits_above(request, view.line, tokenizer.count(typed), below.tokens), line_start)
    else:
        start = end - len(typed)
    cut = start + _last_cut(text[start:end], line_start - start, tokenizer)
    return FilePart(
        above=_above(request, start, cut),
        suffix=(below.segment,) if below.segment is not None else (),
        tail=None,
        middle=_segment(view, Kind.MIDDLE, cut, end),
        healed=healed,
        frozen=below.frozen,
        memory=_remember(request, min(start, line_start), line_start, below),
    )


def spm_plain(request: LayoutRequest) -> FilePart:
    """Frozen suffix, tail first · lines above · middle token · typed part of the line."""
    return replace(psm_line_last(request), suffix_first=True)


def spm_plain_growing(request: LayoutRequest) -> FilePart:
    """Frozen suffix, tail first · frozen lines above · middle token · all typed since."""
    return replace(psm_growing(request), suffix_first=True)


def left_to_right(request: LayoutRequest) -> FilePart:
    """Text up to the cursor, healed; nothing of what stands below. The middle is as in :func:`spm`."""
    return _up_to_cursor(request, _NOTHING_BELOW)


def _last_cut(text: str, most: int, tokenizer: Tokenizer) -> int:
    """The last place within `most` characters where token counts add up."""
    return max((at for at in cut_points(text, tokenizer.cut_rule) if at <= most), default=0)


LAYOUTS: Final = MappingProxyType[str, Callable[[LayoutRequest], FilePart]](
    {
        PSM_LINE_LAST: psm_line_last,
        PSM_GROWING: psm_growing,
        PSM_CLASSIC: psm_classic,
        SPM: spm,
        SPM_PLAIN: spm_plain,
        SPM_PLAIN_GROWING: spm_plain_growing,
        LEFT_TO_RIGHT: left_to_right,
    }
)
