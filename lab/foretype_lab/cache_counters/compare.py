"""Request by request: cached prompt tokens as a real engine counts them, beside those of the simulated block cache.

`foretype bench prefill` counts with the simulation alone. This is what its figures rest on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.plan import PlanState
from foretype_context.prompt.profile import Profile
from foretype_context.prompt.templates import encode_prompt, grammar
from foretype_context.tokens.tokenizer import Tokenizer

from foretype_lab.prefill.asking_moments import Moment

__all__ = ["CountingEngine", "RequestRow", "compare", "prompts_of", "summary"]

_BLOCKS: Final = 1 << 20


class CountingEngine(Protocol):
    """An engine that tells how many tokens of a prompt its own prefix cache held."""

    def cached_tokens(self, ids: Sequence[int]) -> int:
        """Run a prompt, leave it in the cache, and return the engine's own count."""
        ...

    def forget(self) -> None:
        """Empty the prefix cache."""
        ...


class RequestRow(msgspec.Struct, frozen=True):
    """One request: tokens of the prompt, and how many of them each side found cached."""

    prompt_tokens: int
    simulated: int
    counted: int


def prompts_of(moments: Iterable[Moment], tokenizer: Tokenizer, profile: Profile) -> Iterator[Sequence[int]]:
    """The prompts that the real assembler makes of a session in the profile's layout, as token ids."""
    # A clock that stands still: the time budget must not decide what a prompt holds.
    assembler = Assembler(tokenizer, profile, timer=lambda: 0.0)
    spoken = grammar(profile.grammar)
    state = PlanState.empty()
    for moment in moments:
        plan, state = assembler.plan(state, moment.snapshot, moment.offset, snippets=moment.snippets, now=moment.time_s)
        yield encode_prompt(tokenizer, spoken, [placed.segment for placed in plan.segments]).ids


def compare(
    prompts: Iterable[Sequence[int]],
    engine: CountingEngine,
    *,
    block_tokens: int,
    progress: Callable[[int], None] = lambda _done: None,
) -> list[RequestRow]:
    """Replays prompts in order on an engine whose cache is empty, and on a simulated one without limit.

    Args:
        block_tokens: of both caches.
    """
    engine.forget()
    shadow = ShadowPrefixCache(_BLOCKS, block_tokens)
    rows: list[RequestRow] = []
    for ids in prompts:
        simulated = shadow.insert(shadow.keys(ids), len(ids))
        rows.append(RequestRow(len(ids), simulated, engine.cached_tokens(ids)))
        progress(len(rows))
    return rows


def summary(rows: Sequence[RequestRow]) -> dict[str, Any]:
    """How far both sides agree; `differences` counts requests by (counted - simulated), in tokens."""
    differences = Counter(row.counted - row.simulated for row in rows)
    return {
        "requests": len(rows),
        "prompt_tokens": sum(row.prompt_tokens for row in rows),
        "cached_tokens_simulated": sum(row.simulated for row in rows),
        "cached_tokens_counted": sum(row.counted for row in rows),
        "agreement": round(differences[0] / len(rows), 4) if rows else None,
        "largest_difference": max(map(abs, differences), default=0),
        "differences": {str(difference): count for difference, count in sorted(differences.items())},
    }
