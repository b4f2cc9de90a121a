"""How other clients lay out their prompts, over the same text and in the same budget, as pure functions.

Written from their published sources; each is what that client sends, without what it never tells its server.

- `llama_vim` (`autoload/llama.vim`; llama.cpp `/infill`): chunks of other files · 256 lines above the caret's line · the rest of
  the caret's line and 64 lines below · middle · what is typed of the line. Nothing is frozen, windows slide line by line.
- `copilot` (`prompt/components/splitContextPrompt.tsx`, `currentFile.tsx`): stable context · suffix from the next line, frozen
  while its first token is equal and the edit distance of the first 50 tokens is below 10 % · volatile context · prefix. One
  remembered suffix for all files, as there. It leaves out the text right of the caret; here that stands with the volatile
  context, since every layout is to show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_context.prompt.sources import Snippet
from foretype_context.prompt.windows import View, chunks
from foretype_context.tokens.tokenizer import Tokenizer, cut_points

__all__ = ["PEERS", "Peer", "PeerRequest", "Windows"]

_LLAMA_PREFIX_LINES: Final = 256
_LLAMA_SUFFIX_LINES: Final = 64
_COPILOT_TOKENS: Final = 7_692
_COPILOT_PREFIX_SHARE: Final = 0.35
_COPILOT_SUFFIX_SHARE: Final = 0.15
_COPILOT_STABLE_SHARE: Final = 0.35
_LINE_QUANTUM_TOKENS: Final = 64
_COMPARED_TOKENS: Final = 50
_THRESHOLD_PERCENT: Final = 10


class Windows(StrEnum):
    """How much text a peer shows: as much as our layouts may, or what it would show by itself."""

    SAME = "same"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRequest:
    """What a peer is asked for.

    Attributes:
        tokens: for all text together.
        suffix_tokens: of it, below the caret at most.
        context_tokens: of it, of other files at most.
        frozen: what the peer remembers of its last prompt.
    """

    view: View
    snippets: Sequence[Snippet]
    tokenizer: Tokenizer
    tokens: int
    suffix_tokens: int
    context_tokens: int
    windows: Windows
    frozen: str = ""


Peer = Callable[[PeerRequest], tuple[list[Segment], str]]
"""Segments in prompt order, and what to remember."""


def _segment(view: View, kind: Kind, text: str) -> Segment:
    source = Source(document=view.snapshot.uri, path=view.snapshot.path)
    return Segment(kind=kind, scope=Scope.FILE, source=source, text=text)


def _context(request: PeerRequest, limit: int, *, newest_last: bool) -> tuple[list[Segment], int]:
    """Snippets within `limit` tokens, those of the files left last first in the choice."""
    chosen: list[Segment] = []
    used = 0
    for snippet in request.snippets:
        text = snippet.text if snippet.text.endswith("\n") else snippet.text + "\n"
        tokens = request.tokenizer.count(text) + request.tokenizer.count(snippet.path) + 2
        if used + tokens <= limit:
            used += tokens
            source = Source(path=snippet.path, start=snippet.start, end=snippet.end)
            chosen.append(Segment(kind=Kind.FILE, scope=Scope.SESSION, source=source, text=text))
    return chosen[::-1] if newest_last else chosen, used


def _above(request: PeerRequest, limit: int, lines_max: int | None) -> str:
    """Whole lines above the caret's line: a window that slides."""
    view, count = request.view, request.tokenizer.count
    snapshot, text = view.snapshot, view.snapshot.text
    first, start, used = view.line, view.line_start, 0
    while first > 0 and (lines_max is None or view.line - first < lines_max):
        above = snapshot.line_start(first - 1)
        used += count(text[above:start])
        if used > limit:
            break
        first, start = first - 1, above
    return text[start : view.line_start]


def _below(request: PeerRequest, start: int, limit: int, lines_max: int | None) -> str:
    view, count = request.view, request.tokenizer.count
    snapshot, text = view.snapshot, view.snapshot.text
    end, used = start, 0
    line = snapshot.line_of(start)
    while end < len(text) and (lines_max is None or line - view.line <= lines_max):
        following = snapshot.next_line_start(line)
        used += count(text[end:following])
        if used > limit:
            break
        line, end = line + 1, following
    return text[start:end]


def _reserved(tokens: int) -> int:
    """Room for the caret's line in steps: a peer that counts lines or characters does not slide with every token typed."""
    return -(-max(tokens, 1) // _LINE_QUANTUM_TOKENS) * _LINE_QUANTUM_TOKENS


def llama_vim(request: PeerRequest) -> tuple[list[Segment], str]:
    """Chunk ring · lines above · text right of the caret and lines below · middle · typed part of the line."""
    view = request.view
    own = request.windows is Windows.OWN
    context, used = _context(request, request.context_tokens, newest_last=True)
    typed = _reserved(request.tokenizer.count(view.typed))
    below = _below(
        request, view.offset, 1 << 30 if own else request.suffix_tokens, _LLAMA_SUFFIX_LINES if own else None
    )
    left = request.tokens - used - typed - request.tokenizer.count(below)
    above = _above(request, 1 << 30 if own else left, _LLAMA_PREFIX_LINES if own else None)
    return [
        *context,
        _segment(view, Kind.PATH, ""),
        *(_segment(view, Kind.PREFIX, text) for text in chunks(above, request.tokenizer.cut_rule)),
        _segment(view, Kind.SUFFIX, below),
        _segment(view, Kind.MIDDLE, view.typed),
    ], ""


def copilot(request: PeerRequest) -> tuple[list[Segment], str]:
    """Stable context · frozen suffix from the next line · text right of the caret · prefix."""
    view, tokenizer = request.view, request.tokenizer
    own = request.windows is Windows.OWN
    total = _COPILOT_TOKENS if own else request.tokens
    context, used = _context(
        request, int(total * _COPILOT_STABLE_SHARE) if own else request.context_tokens, newest_last=False
    )
    suffix_tokens = int(total * _COPILOT_SUFFIX_SHARE) if own else request.suffix_tokens
    rest = view.snapshot.text[view.below_start :]
    start = view.below_start + len(rest) - len(rest.lstrip())
    below = _below(request, start, suffix_tokens, None)
    if request.frozen and below and request.frozen != below and _still_alike(tokenizer, below, request.frozen):
        below = request.frozen
    typed_tokens = _reserved(tokenizer.count(view.typed) + tokenizer.count(view.tail))
    room = int(total * _COPILOT_PREFIX_SHARE) if own else total - used - tokenizer.count(below)
    above = _above(request, room - typed_tokens, None)
    # Lines above and the typed part are one text: they are encoded apart only where nothing can merge.
    text = above + view.typed
    cut = max((at for at in cut_points(text, tokenizer.cut_rule) if at <= len(above)), default=0)
    prefix = [_segment(view, Kind.PREFIX, part) for part in chunks(text[:cut], tokenizer.cut_rule)]
    return [
        *context,
        _segment(view, Kind.PATH, ""),
        _segment(view, Kind.SUFFIX, below),
        _segment(view, Kind.TAIL, view.tail),
        *prefix,
        _segment(view, Kind.MIDDLE, text[cut:]),
    ], below or request.frozen


def _still_alike(tokenizer: Tokenizer, live: str, frozen: str) -> bool:
    new = tokenizer.encode(live[: 16 * _COMPARED_TOKENS])[:_COMPARED_TOKENS]
    old = tokenizer.encode(frozen[: 16 * _COMPARED_TOKENS])[:_COMPARED_TOKENS]
    return new[0] == old[0] and 100 * _edit_distance(new, old) < _THRESHOLD_PERCENT * len(new)


def _edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


PEERS: Final = MappingProxyType[str, Peer]({"llama_vim": llama_vim, "copilot": copilot})
