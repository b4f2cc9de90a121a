"""Prompt tokens that an exact-prefix block cache has to compute, for each layout over the same requests."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from foretype_backend.engines.embedded.shadow_cache import ShadowPrefixCache
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.plan import PlanState
from foretype_context.prompt.profile import Budgets, Profile
from foretype_context.prompt.segments import Segment
from foretype_context.prompt.templates import encode_prompt, grammar
from foretype_context.tokens.tokenizer import Tokenizer

from foretype_lab.prefill.asking_moments import Cause, Moment

LAYOUTS: Final = ("psm_classic", "spm", "psm_line_last", "psm_growing")

_REMEMBERED_PIECES: Final = 4_096


class MeasureOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure.

    Attributes:
        block_tokens: of the cache; only whole blocks are found again.
        grammar: the family whose prompts they are.
        own_layout: that the model is served in; the grammar's first where None.
    """

    layouts: tuple[str, ...] = LAYOUTS
    own_layout: str | None = None
    block_tokens: int = 16
    grammar: str = "foretype-2"
    budgets: Budgets = Budgets()


@dataclass(slots=True)
class _Tally:
    requests: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    by_cause: dict[Cause, list[int]] = field(default_factory=lambda: {cause: [0, 0] for cause in Cause})

    def add(self, cause: Cause, prompt_tokens: int, computed_tokens: int) -> None:
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        self.computed_tokens += computed_tokens
        row = self.by_cause[cause]
        row[0] += 1
        row[1] += computed_tokens

    def row(self, new_tokens: int, typed_tokens: int) -> dict[str, Any]:
        computed, prompt = self.computed_tokens, self.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "computed_tokens": computed,
            "ratio": round(computed / new_tokens, 3) if new_tokens else None,
            "ratio_typed": round(computed / typed_tokens, 3) if typed_tokens else None,
            "cached_share_session": round(1 - computed / prompt, 4) if prompt else None,
            "by_cause": {
                cause.value: {"requests": requests, "computed_tokens": tokens}
                for cause, (requests, tokens) in self.by_cause.items()
            },
        }


class _Layout:
    """A layout through the real assembler; what it has shown is committed with every request, as the client does."""

    def __init__(self, tokenizer: Tokenizer, profile: Profile) -> None:
        # A clock that stands still: the time budget must not decide what a measured prompt holds.
        self._assembler = Assembler(tokenizer, profile, timer=lambda: 0.0)
        self._state = PlanState.empty()

    def segments(self, moment: Moment) -> Sequence[Segment]:
        plan, self._state = self._assembler.plan(self._state, moment.snapshot, moment.offset, now=moment.time_s)
        return [placed.segment for placed in plan.segments]


class _Remembering:
    """A tokenizer that encodes no text twice in a row: prompts of one session differ in few segments."""

    def __init__(self, inner: Tokenizer) -> None:
        self._inner = inner
        self._known: OrderedDict[str, list[int]] = OrderedDict()
        self.cut_rule, self.digest, self.vocabulary_tokens = inner.cut_rule, inner.digest, inner.vocabulary_tokens
        self.count, self.decode, self.control, self.controls = inner.count, inner.decode, inner.control, inner.controls

    def encode(self, text: str) -> list[int]:
        known = self._known
        ids = known.get(text)
        if ids is None:
            ids = known[text] = self._inner.encode(text)
            if len(known) > _REMEMBERED_PIECES:
                known.popitem(last=False)
        return ids


def measure(
    moments: Iterable[Moment],
    tokenizer: Tokenizer,
    options: MeasureOptions,
    *,
    progress: Callable[[int], None] = lambda _done: None,
) -> dict[str, Any]:
    """Builds every request's prompt in every layout and counts what a cache that saw those before would compute.

    Each layout has a cache of its own. Generated tokens are not in it: what they are depends on the model.

    Raises:
        ProfileError: grammar and tokenizer do not go together.
    """
    remembering = _Remembering(tokenizer)
    spoken = grammar(options.grammar)
    layouts: dict[str, tuple[_Layout, ShadowPrefixCache, _Tally]] = {}
    for name in options.layouts:
        profile = Profile(
            model="prefill", grammar=spoken.id, tokenizer_digest=tokenizer.digest, layout=name, budgets=options.budgets
        )
        layouts[name] = (_Layout(remembering, profile), ShadowPrefixCache(sys.maxsize, options.block_tokens), _Tally())
    requests = new_tokens = typed_tokens = 0
    for moment in moments:
        requests += 1
        new_tokens += sum(map(tokenizer.count, moment.inserted))
        typed_tokens += sum(map(tokenizer.count, moment.typed))
        for layout, cache, tally in layouts.values():
            ids = encode_prompt(remembering, spoken, layout.segments(moment)).ids
            cached = cache.insert(cache.keys(ids), len(ids))
            tally.add(moment.cause, len(ids), len(ids) - cached)
        progress(requests)
    return {
        "requests": requests,
        "new_tokens": new_tokens,
        "typed_tokens": typed_tokens,
        "default": spoken.layout(own=options.own_layout),
        "layouts": {name: tally.row(new_tokens, typed_tokens) for name, (_, _, tally) in layouts.items()},
    }
