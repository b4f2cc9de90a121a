"""Developers in virtual time: what each asks, as it was asked while real commits were typed.

The arrivals that ship are a replay of the product's own history with the product's client: its trigger policy, its cache and its debounce
decided what was asked (`foretype_eval.replay.arrivals`, typing.json). A developer plays one stretch after the other, from a place of their own, and
thinks in between, so long that the mean is what a plan reckons with. A prompt is a chain of blocks: what the repository shares, then the
file's, of which as much is as before as it was in the replay.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, cast

from foretype_backend.prefix.chain import Block
from foretype_context.prompt.segments import Scope
from foretype_wire.messages import RequestClass

from foretype_plan.errors import PlanError
from foretype_plan.simulation.engine import BLOCK_TOKENS

_MOST_BYTES: Final = 64 << 20
_MOST_GAP_S: Final = 3600.0
_CLASSES: Final = {one.value: one for one in RequestClass}


class Arrival(NamedTuple):
    """One request of a replay, so long after the one before it; `shared_tokens` of its prompt were in one before."""

    gap_s: float
    class_: RequestClass
    prompt_tokens: int
    shared_tokens: int


class Arrivals(NamedTuple):
    """Stretches of typing, and the mean requests a second while somebody types."""

    stretches: tuple[tuple[Arrival, ...], ...]
    rate: float


def read_arrivals(path: Path) -> Arrivals:
    """A file's, as `record_arrivals` writes it.

    Raises:
        PlanError: it cannot be read, or has a gap; names the stretch and the request.
    """
    try:
        with path.open("rb") as file:
            return _arrivals(json.loads(file.read(_MOST_BYTES)))
    except (OSError, UnicodeError, ValueError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError("trace", f"{path} cannot be read: {error}") from error


@cache
def shipped_arrivals() -> Arrivals:
    return _arrivals(json.loads((files("foretype_plan") / "simulation" / "typing.json").read_bytes()))


def _arrivals(raw: Any) -> Arrivals:
    found = cast("dict[str, Any]", raw).get("stretches") if isinstance(raw, dict) else None
    if not isinstance(found, list) or not found:
        raise PlanError(
            "trace", 'no stretches: give {"stretches": [[[gap_s, class, prompt_tokens, shared_tokens], …], …]}'
        )
    stretches: list[tuple[Arrival, ...]] = []
    for number, rows in enumerate(cast("list[Any]", found), start=1):
        if not isinstance(rows, list) or not rows:
            raise PlanError("trace", f"stretch {number} has no requests: leave it out")
        stretches.append(
            tuple(
                _arrival(row, f"stretch {number}, request {at}")
                for at, row in enumerate(cast("list[Any]", rows), start=1)
            )
        )
    requests, seconds = sum(map(len, stretches)), sum(row.gap_s for rows in stretches for row in rows)
    if seconds <= 0:
        raise PlanError("trace", "all requests come at one moment: gap_s is seconds since the one before")
    return Arrivals(tuple(stretches), requests / seconds)


def _arrival(row: Any, where: str) -> Arrival:
    try:
        gap_s, class_, prompt, shared = row
        gap_s, prompt, shared = float(gap_s), int(prompt), int(shared)
    except (TypeError, ValueError) as error:
        raise PlanError("trace", f"{where} is no [gap_s, class, prompt_tokens, shared_tokens]: {row!r}") from error
    if not math.isfinite(gap_s) or not 0 <= gap_s <= _MOST_GAP_S:
        raise PlanError(
            "trace", f"{where}: gap_s is {gap_s:g}; 0 to {_MOST_GAP_S:g} s, and a longer gap ends the stretch"
        )
    if class_ not in _CLASSES:
        raise PlanError("trace", f"{where}: class is {class_!r}; one of {', '.join(_CLASSES)}")
    if not 0 < prompt <= 1_000_000 or not 0 <= shared <= prompt:
        raise PlanError(
            "trace", f"{where}: prompt_tokens {prompt}, shared_tokens {shared}; shared are 0 to all of the prompt"
        )
    return Arrival(gap_s, _CLASSES[class_], prompt, shared)


class Prompt(NamedTuple):
    """What one request brings; `keys` are those of `chain`."""

    class_: RequestClass
    tokens: int
    keys: tuple[bytes, ...]
    chain: tuple[Block, ...]


def _block(key: bytes, at: int, scope: Scope) -> Block:
    return Block(key, at * BLOCK_TOKENS, (at + 1) * BLOCK_TOKENS, scope, ())


def chain_of(keys: Sequence[bytes]) -> tuple[Block, ...]:
    """Blocks of a prompt whose keys are known, and nothing else of it."""
    return tuple(_block(key, at, Scope.FILE) for at, key in enumerate(keys))


@cache
def _shared(repository: str, blocks: int) -> tuple[Block, ...]:
    return tuple(_block(f"{repository}:{at}".encode(), at, Scope.REPOSITORY) for at in range(blocks))


class Developer:
    """One of them.

    Args:
        rate: requests a second in the long run, pauses included.
        repository_tokens: of a prompt, that all of the repository share; `most_tokens`: of a whole prompt.
        stamped: somebody put the time of day before everything else.
    """

    def __init__(
        self,
        name: str,
        tenant: str,
        repository: str,
        arrivals: Arrivals,
        rng: Random,
        *,
        rate: float,
        repository_tokens: int,
        most_tokens: int,
        stamped: bool = False,
    ) -> None:
        self.name, self.tenant, self.repository = name, tenant, repository
        self._arrivals, self._rng = arrivals, rng
        self._pause_share = max(0.0, 1 / rate - 1 / arrivals.rate)
        self._squeeze = min(1.0, arrivals.rate / rate)
        self._most_own = max(BLOCK_TOKENS, most_tokens - repository_tokens)
        self._stamped = stamped
        self._shared = _shared(f"{tenant}/{repository}", repository_tokens // BLOCK_TOKENS)
        self._repository_tokens = repository_tokens
        self._own: list[Block] = []
        self._blocks = 0
        self._rows: Sequence[Arrival] = ()
        self._at = 0
        self._next: Prompt | None = None
        self.short = self.alone = False
        """On which rung of the ladder it is served: half of the prompt; without the repository's part."""

    def begin(self) -> float:
        """Seconds until the first request: somewhere in a stretch, or in the pause before one."""
        self._rows = self._rng.choice(self._arrivals.stretches)
        self._at = 0
        if self._rng.random() >= 1 / (1 + self._pause_share * self._arrivals.rate):
            return self._pause()
        self._at = self._rng.randrange(len(self._rows))
        return self._rng.expovariate(self._arrivals.rate)

    def ask(self) -> tuple[Prompt, float]:
        """The request that is due, and the seconds to the next."""
        prompt, self._next = self._next or self._prompt(self._rows[self._at]), None
        self._at += 1
        if self._at < len(self._rows):
            return prompt, self._rows[self._at].gap_s * self._squeeze
        self._rows = self._rng.choice(self._arrivals.stretches)
        self._at = 0
        return prompt, self._pause()

    def peek(self) -> Prompt:
        """What it will ask next."""
        self._next = self._next or self._prompt(self._rows[self._at])
        return self._next

    def _pause(self) -> float:
        mean = self._pause_share * len(self._rows)
        return self._rng.expovariate(1 / mean) if mean > 0 else 0.0

    def _prompt(self, row: Arrival) -> Prompt:
        own = min(row.prompt_tokens, self._most_own)
        if self.short:
            own = max(BLOCK_TOKENS, own // 2)
        first = 0 if self.alone else len(self._shared)
        kept = 0 if self._at == 0 else min(row.shared_tokens * own // row.prompt_tokens, own) // BLOCK_TOKENS
        if self._own and self._own[0].start != first * BLOCK_TOKENS:
            kept = 0
        chain = self._own[:kept]
        for at in range(len(chain), own // BLOCK_TOKENS):
            self._blocks += 1
            chain.append(_block(f"{self.name}:{self._blocks}".encode(), first + at, Scope.FILE))
        self._own = chain
        whole = (*self._shared[:first], *chain)
        if self._stamped:
            self._blocks += 1
            stamp = f"{self.name} at {self._blocks}: ".encode()
            whole = tuple(block._replace(key=stamp + block.key) for block in whole)
        return Prompt(
            row.class_, own + (0 if self.alone else self._repository_tokens), tuple(one.key for one in whole), whole
        )
