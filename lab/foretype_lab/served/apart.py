"""Prompts computed on one server and answers written on another, beside two servers that do both; a core for each."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any, Final

import httpx

from foretype_lab.served.servers import Answer, Served, ask, client, started, tier, warmed

__all__ = ["WORK", "apart"]

WORK: Final = {"chat": (2000, 0, 64), "inline": (2000, 1950, 16)}
"""By kind of work: tokens of a prompt, how many of them the session's last request had, tokens of an answer."""
_TIER_TOKENS: Final = 4
"""As the gateway asks for them: blocks go to the tiers in the steps after the one that computed them."""
_HOST_BYTES: Final = 512 << 20


async def apart(
    model: Path, folder: Path, *, steps: tuple[int, ...], seconds: float, developers: int, seed: int
) -> list[dict[str, Any]]:
    """Rows by size of a step, kind of work and way: `both` (each server does both), `apart`.

    Args:
        steps: largest number of tokens that a step computes: the chunks of a prompt.
        seconds: of each row.
        developers: each asks, reads the answer to its end, and asks again.
    """
    rows: list[dict[str, Any]] = []
    for step in steps:
        shared = folder / f"blocks-{step}"
        shared.mkdir()
        transfer = tier(_HOST_BYTES, shared)
        with (
            Served(
                model, folder / f"one-{step}", transfer=transfer, step_tokens=step, context_tokens=4096, core=0
            ) as one,
            Served(
                model, folder / f"two-{step}", transfer=transfer, step_tokens=step, context_tokens=4096, core=1
            ) as two,
        ):
            started([one, two])
            await warmed([one, two])
            for kind in WORK:
                for way in ("both", "apart"):
                    load = _Load(one.url, two.url, kind, way, random.Random(f"{seed} {kind}"))
                    rows.append({"step_tokens": step, "work": kind, "way": way, **await load.run(seconds, developers)})
    return rows


class _Load:
    def __init__(self, one: str, two: str, kind: str, way: str, rng: random.Random) -> None:
        self._one, self._two, self._apart, self._rng = one, two, way == "apart", rng
        self._name = f"{kind} {way}"
        self._prompt, self._kept, self._tokens = WORK[kind]
        self._answers: list[Answer] = []
        self._handed: list[int] = []

    async def run(self, seconds: float, developers: int) -> dict[str, Any]:
        began = time.perf_counter()
        async with client() as http:
            await asyncio.gather(*(self._develop(http, at, began + seconds) for at in range(developers)))
        took = time.perf_counter() - began
        firsts = sorted(1000 * one.first_s for one in self._answers)
        gaps = sorted(1000 * gap for one in self._answers for gap in one.gaps_s)
        worst = sorted(1000 * max(one.gaps_s) for one in self._answers)
        return {
            "answers": len(self._answers),
            "tokens_per_s": round(sum(len(one.token_ids) for one in self._answers) / took, 1),
            "first_token_ms": {"p50": _at(firsts, 0.5), "p95": _at(firsts, 0.95)},
            "gap_ms": {"p50": _at(gaps, 0.5), "p99": _at(gaps, 0.99)},
            "longest_gap_ms": {"p50": _at(worst, 0.5), "p95": _at(worst, 0.95)},
            "handed_over_tokens": _at(sorted(self._handed), 0.5) if self._handed else None,
        }

    async def _develop(self, http: httpx.AsyncClient, at: int, until: float) -> None:
        salt, number = f"{self._name} {at}", 0
        base = [self._rng.randrange(300, 16_000) for _ in range(self._kept)]
        # What a session had before is in the memory of the server that answers it.
        home = self._two if self._apart or at % 2 else self._one
        if base:
            await ask(http, home, base, tokens=1, salt=salt, kept=False)
        while time.perf_counter() < until:
            number += 1
            ids = base + [self._rng.randrange(300, 16_000) for _ in range(self._prompt - self._kept)]
            began = time.perf_counter()
            if self._apart and not base:
                await ask(http, self._one, ids, tokens=_TIER_TOKENS, salt=salt)
            handed_s = time.perf_counter() - began
            answer = await ask(http, home, ids, tokens=self._tokens, salt=salt, kept=False)
            if self._apart and not base:
                self._handed.append(answer.cached_tokens)
            self._answers.append(answer._replace(first_s=handed_s + answer.first_s))


def _at(ordered: list[Any], share: float) -> float:
    return round(ordered[int(share * (len(ordered) - 1))], 1) if ordered else 0.0
