"""Tiers of limited size under one trace: hits by tier and by scope, with and without retirement of edited ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from foretype_backend.prefix.directory import PrefixDirectory
from foretype_context.prompt.segments import Scope

from foretype_lab.fleet.retiring import RetiringLru
from foretype_lab.fleet.trace import Call

__all__ = ["REFERENCE_HIT_RATES", "run_tiers"]

REFERENCE_HIT_RATES: Final = {"global": "100 %", "repository": "40–70 %", "file": "70–90 %"}
"""Shares that a published design of a completion back end expects to be cached, by scope."""

_EXPIRE_EVERY_S: Final = 5.0


def run_tiers(
    calls: Sequence[Call], sizes: Mapping[str, int], *, block_tokens: int, retirement: bool
) -> dict[str, Any]:
    """Looks every block up in the tiers, nearest first; what is found or computed is then in all of them.

    A block counts as hit only if all blocks before it in its prompt do: engines reuse prefixes.

    Args:
        sizes: blocks held by each tier, nearest first, each at least 1.
    """
    tiers = {name: RetiringLru(size, heeds=retirement) for name, size in sizes.items()}
    directory = PrefixDirectory(capacity_blocks=sum(sizes.values()))
    by_tier: Counter[str] = Counter()
    looked: Counter[Scope] = Counter()
    hit: Counter[Scope] = Counter()
    computed = prompt = 0
    expired_s = 0.0
    for call in calls:
        if call.time_s - expired_s > _EXPIRE_EVERY_S:
            expired_s = call.time_s
            gone = [one.key for one in directory.expire(call.time_s)]
            for tier in tiers.values():
                tier.retire(gone)
        unbroken = True
        tokens = call.prompt_tokens
        chain = call.chain()
        for block in chain:
            looked[block.scope] += 1
            where = next((name for name, tier in tiers.items() if block.key in tier), None) if unbroken else None
            if where is None:
                unbroken = False
                continue
            by_tier[where] += 1
            hit[block.scope] += 1
            tokens -= block_tokens
        keys = [block.key for block in chain]
        for tier in tiers.values():
            tier.use(keys)
        directory.place(call.namespace, call.session, call.document, chain, replica="one", now=call.time_s)
        computed += tokens
        prompt += call.prompt_tokens
    blocks = sum(looked.values())
    return {
        "computed_tokens": computed,
        "prompt_tokens": prompt,
        "cached_share": round(1 - computed / prompt, 4) if prompt else None,
        "hit_rate_by_tier": {name: round(by_tier[name] / blocks, 4) if blocks else None for name in tiers},
        "hit_rate_by_scope": {
            scope.value: round(hit[scope] / looked[scope], 4) if looked[scope] else None for scope in Scope
        },
        "evicted": {name: tier.statistics().evicted for name, tier in tiers.items()},
        "evicted_retired": {name: tier.statistics().evicted_retired for name, tier in tiers.items()},
    }
