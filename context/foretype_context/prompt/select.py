"""Which snippets of other files a prompt holds, and in which order.

*Which* is decided by score under the budget; *where* by stability: what stood in the last prompt stays where it was, new ones
are appended, and the order is rebuilt only when several have expired or the user was idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from foretype_context.prompt.plan import Dropped
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_context.prompt.sources import Snippet
from foretype_context.prompt.strategy import Strategy
from foretype_context.prompt.windows import View
from foretype_context.text.strings import well_formed

_AROUND_CHARS: Final = 4_000
_SCOPES: Final = {scope: at for at, scope in enumerate(Scope)}


@dataclass(frozen=True, slots=True)
class Selection:
    """Chosen context in prompt order, the tokens it takes with its headers, and what was left out."""

    segments: tuple[Segment, ...]
    tokens: int
    dropped: tuple[Dropped, ...]


def similarity(a: frozenset[str], b: frozenset[str]) -> float:
    """Share of lines two texts have in common: 2·common / (lines of one + lines of the other), as llama.vim has it."""
    return 2 * len(a & b) / (len(a) + len(b)) if a or b else 0.0


def _echo(lines: frozenset[str], around: frozenset[str], share: float) -> bool:
    """Whether most of a snippet stands around the cursor already; a snippet is shorter than that text, so its share counts."""
    return len(lines & around) > share * len(lines)


@lru_cache(maxsize=256)
def _snippet_lines(text: str) -> frozenset[str]:
    """As :func:`_lines`, of a text that comes again with every key."""
    return _lines(text)


def _lines(text: str) -> frozenset[str]:
    return frozenset(stripped for line in text.splitlines() if (stripped := line.strip()))


def _segment(snippet: Snippet, text: str) -> Segment:
    return Segment(
        kind=Kind.FILE,
        scope=snippet.scope,
        source=Source(document=snippet.source_name, path=snippet.path, start=snippet.start, end=snippet.end),
        text=text if text.endswith("\n") or not text else text + "\n",
    )


def select(
    snippets: Sequence[Snippet],
    standing: Sequence[Segment],
    view: View,
    strategy: Strategy,
    *,
    limit_tokens: int,
    cost: Callable[[Segment], int],
    trimmed: Callable[[str], str],
    idle: bool,
    late: Callable[[], bool],
) -> Selection:
    """Chooses context.

    Args:
        snippets: candidates in any order.
        standing: context of the last prompt, in its order.
        strategy: what is kept first, and how much of it.
        limit_tokens: budget of all context, headers included.
        cost: tokens that a segment takes in the prompt, its header included.
        trimmed: cuts a snippet's text to what one may take.
        idle: nobody types: the order may be rebuilt.
        late: whether the time budget is spent; the rest is then dropped.
    """
    if not snippets and not standing:
        return Selection((), 0, ())
    at, own = view.offset, view.snapshot.text
    around = _lines(own[max(0, at - _AROUND_CHARS) : at + _AROUND_CHARS // 2])
    dropped: list[Dropped] = []
    chosen: dict[tuple[str, str], Segment] = {}
    seen: list[frozenset[str]] = []
    used = 0
    used_by: dict[str, int] = {}
    for snippet in sorted(snippets, key=lambda one: _kept_first(one, strategy)):
        source, pinned = snippet.source_name, snippet.source_name in strategy.pinned
        if late():
            dropped.append(Dropped(Kind.FILE, _segment(snippet, "").source, 0, "assembly ran out of time"))
            continue
        text = well_formed(snippet.text)
        segment = _segment(snippet, text if pinned else trimmed(text))
        reason, tokens = "", cost(segment)
        lines = _snippet_lines(segment.text)
        share = int(strategy.shares.get(source, 1.0) * limit_tokens)
        if not lines:
            reason = "blank" if not text.strip() else "its first line is longer than a snippet may be"
        elif snippet.path == view.snapshot.path:
            reason = "a part of the file being edited"
        elif not pinned and _echo(lines, around, strategy.echo):
            reason = "repeats the text around the cursor"
        elif any(similarity(lines, other) > strategy.double for other in seen):
            reason = "repeats another snippet"
        elif source in strategy.shares and used_by.get(source, 0) + tokens > share:
            reason = f"over the share of {source} ({share} tokens)"
        elif used + tokens > limit_tokens:
            reason = "over the context budget"
        if reason:
            dropped.append(Dropped(Kind.FILE, segment.source, tokens, reason))
            continue
        used += tokens
        used_by[source] = used_by.get(source, 0) + tokens
        seen.append(lines)
        chosen[segment.source.path, segment.text] = segment
    return _placed(
        chosen, standing, used, dropped, around, view, strategy, limit_tokens=limit_tokens, cost=cost, idle=idle
    )


def _kept_first(snippet: Snippet, strategy: Strategy) -> tuple[bool, float, float, int, str, int, str]:
    pinned = snippet.source_name in strategy.pinned
    priority = strategy.priorities.get(snippet.source_name, 0.0)
    return not pinned, -priority, -snippet.score, _SCOPES[snippet.scope], snippet.path, snippet.start, snippet.text


def _placed(
    chosen: dict[tuple[str, str], Segment],
    standing: Sequence[Segment],
    used: int,
    dropped: list[Dropped],
    around: frozenset[str],
    view: View,
    strategy: Strategy,
    *,
    limit_tokens: int,
    cost: Callable[[Segment], int],
    idle: bool,
) -> Selection:
    expired = [one for one in standing if (one.source.path, one.text) not in chosen]
    expired_tokens = sum(map(cost, expired))
    echo = any(
        one.source.path == view.snapshot.path or _echo(_snippet_lines(one.text), around, strategy.echo)
        for one in expired
    )
    keep = not idle and not echo and len(expired) <= strategy.expired_max and used + expired_tokens <= limit_tokens
    if keep:
        # Equal text keeps its place, even where it has another source position by now.
        order = [chosen.pop((one.source.path, one.text), one) for one in standing]
        order += sorted(chosen.values(), key=_stability)
        return Selection(tuple(order), used + expired_tokens, tuple(dropped))
    dropped += [Dropped(Kind.FILE, one.source, cost(one), "expired") for one in expired]
    if idle or len(expired) > strategy.expired_max:
        return Selection(tuple(sorted(chosen.values(), key=_stability)), used, tuple(dropped))
    order = [chosen.pop(key) for one in standing if (key := (one.source.path, one.text)) in chosen]
    return Selection((*order, *sorted(chosen.values(), key=_stability)), used, tuple(dropped))


def _stability(segment: Segment) -> tuple[int, str, int, str]:
    return _SCOPES[segment.scope], segment.source.path, segment.source.start, segment.text
