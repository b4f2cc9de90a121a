"""A chat session that was left and is taken up again: where its blocks are by then, and what its first token takes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import httpx

from foretype_lab.errors import VllmError
from foretype_lab.served.servers import BLOCK_TOKENS, Answer, Served, ask, client, started, tier, warmed

__all__ = ["resumed"]

_TURN_TOKENS: Final = 40
"""What somebody writes."""
_KV_BYTES: Final = 4096
"""A token of the shipped model in float32, as `foretype plan` counts it."""


async def resumed(model: Path, folder: Path, *, history_tokens: int, sessions: int, seed: int) -> dict[str, Any]:
    """By place of the blocks: the first token's milliseconds of each session.

    The engine's memory holds two and a half sessions, the host's six: others' sessions push one out of the first, then of both. What
    the server says of cached tokens shows that they were where they are meant to be.

    Raises:
        VllmError: the server does not start, or blocks were elsewhere.
    """
    blocks = history_tokens * 5 // 2 // BLOCK_TOKENS
    transfer = tier(6 * (history_tokens + 4 * _TURN_TOKENS) * _KV_BYTES)
    rng = random.Random(seed)
    found: dict[str, list[float]] = {"first_turn": [], "engine_memory": [], "host_memory": [], "gone": []}
    context_tokens = history_tokens + 8 * _TURN_TOKENS
    with Served(
        model,
        folder / "log",
        transfer=transfer,
        step_tokens=2048,
        context_tokens=context_tokens,
        cache_blocks=blocks,
    ) as server:
        started([server])
        await warmed([server])
        async with client() as http:
            for number in range(sessions):
                session = _Session(http, server.url, f"s{number}", rng)
                answer = await session.turn(history_tokens)
                found["first_turn"].append(1000 * answer.first_s)
                for place, others, at_least in (("engine_memory", 0, 0.98), ("host_memory", 4, 0.98), ("gone", 8, 0)):
                    for other in range(others):
                        await _Session(http, server.url, f"{number}-{place}-{other}", rng).turn(history_tokens)
                    answer = await session.turn(_TURN_TOKENS)
                    share = answer.cached_tokens / history_tokens
                    if not at_least <= share <= (0.05 if place == "gone" else 2):
                        raise VllmError(f"{share:.0%} of a session were cached, which were to be in: {place}")
                    found[place].append(1000 * answer.first_s)
    return {"history_tokens": history_tokens, "turn_tokens": _TURN_TOKENS, "first_token_ms": found}


class _Session:
    def __init__(self, http: httpx.AsyncClient, url: str, salt: str, rng: random.Random) -> None:
        self._http, self._url, self._salt, self._rng = http, url, salt, rng
        self._ids: list[int] = []

    async def turn(self, tokens: int) -> Answer:
        self._ids += [self._rng.randrange(300, 16_000) for _ in range(tokens)]
        answer = await ask(self._http, self._url, self._ids, tokens=1, salt=self._salt)
        self._ids += answer.token_ids
        return answer
