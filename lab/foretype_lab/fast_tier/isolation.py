"""What one tenant learns of another's prompts from vLLM: cached tokens that it is told, and the time to its first token.

Of each pair of prompts a victim has asked one, to its end. Then, in an order drawn by chance, the stranger asks both under its own salt, and
the victim its own once more after a purge, which gives it another salt. In every tenth pair it asks it before the purge as well: the control.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.prefix.salt import SaltBook
from foretype_eval.statistics import mcnemar, paired_difference, percentiles, wilson

from foretype_lab.fast_tier.asking import ClaimOptions, ask, drawn, started

_PAIRS_PER_SAMPLE: Final = 10
_PROMPT_TOKENS: Final = 64
_CONTROL_EVERY: Final = 10
_WARM_UP: Final = 5


class Seen(list[float]):
    """First tokens in ms, and cached tokens of them all."""

    cached_tokens = 0


async def measure(options: ClaimOptions) -> dict[str, Any]:
    """Rows by what was asked, and each compared with the prompts that nobody had asked. Raises EngineUnavailableError."""
    async with started(options.model, block_tokens=32, cache_gib=0.5, shared=True, context_tokens=1024) as engine:
        seen = await _asked(engine, options.samples * _PAIRS_PER_SAMPLE)
    nobodys = seen["nobody's"]
    return {
        "pairs": len(nobodys),
        "prompt_tokens": _PROMPT_TOKENS,
        "rows": [
            {"asked": named, **percentiles(times)._asdict(), "cached_tokens": times.cached_tokens}
            for named, times in seen.items()
        ],
        "compared": {named: apart(seen[named], nobodys) for named in ("the victim's", "one's own, purged")},
    }


async def _asked(engine: VllmEngine, pairs: int) -> dict[str, Seen]:
    draw = random.Random(18)
    book = SaltBook(draw.randbytes(32))
    seen: dict[str, Seen] = defaultdict(Seen)
    for number in range(-_WARM_UP, pairs):

        async def told(what: str, tenant: str, ids: list[int], number: int = number) -> None:
            if what == "one's own, purged":
                book.purge(tenant)
            answer = await ask(engine, f"{number}-{what}", ids, salt=book.salt(book.namespace(tenant)))
            if number >= 0:
                seen[what].append(answer.first_ms)
                seen[what].cached_tokens += answer.cached_tokens

        victims, nobodys = drawn(draw, _PROMPT_TOKENS), drawn(draw, _PROMPT_TOKENS)
        await told("first", "victim", victims)
        if number % _CONTROL_EVERY == 0:
            await told("one's own again", "victim", victims)
        asked = [
            ("the victim's", "stranger", victims),
            ("nobody's", "stranger", nobodys),
            ("one's own, purged", "victim", victims),
        ]
        draw.shuffle(asked)
        for one in asked:
            await told(*one)
    return dict(seen)


def apart(asked: Sequence[float], nobodys: Sequence[float]) -> dict[str, Any]:
    """Mean of the paired differences in ms with its interval, and the share of pairs in which the one asked before was faster.

    `guesses` is the interval of who takes the faster of two for the one that was asked: it has 0.5 in it where that is no help.
    """
    difference = paired_difference(asked, nobodys, range(len(asked)))
    faster = [one < other for one, other in zip(asked, nobodys, strict=True)]
    return {
        "difference_ms": difference.rounded(2),
        "faster": sum(faster) / len(faster),
        "guesses": [round(end, 3) for end in wilson(sum(faster), len(faster))],
        "p": round(mcnemar(faster, [not one for one in faster]).p_value, 3),
    }
