"""What gateways say of a pool's load, and several of them together. Pure.

What is no number, not finite or out of its range is not known, which is not the same as nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """A pool, as it is seen now. None is not known.

    Attributes:
        queued_uncached_tokens: prompt tokens that wait to be computed, over all replicas.
        running: requests under way.
        kv_use: share of the replicas' key-value memory that running requests hold, 0 to 1.
        predicted_p99_ms: time to first token that 99 of 100 requests would keep to.
        replicas: in service.
        complete: everybody who was asked has said so; without somebody sums are too small.
    """

    queued_uncached_tokens: float | None = None
    running: float | None = None
    kv_use: float | None = None
    predicted_p99_ms: float | None = None
    replicas: int | None = None
    complete: bool = True

    def checked(self) -> Signals:
        """The same, with None for whatever cannot be."""
        replicas = figure(self.replicas)
        return Signals(
            queued_uncached_tokens=figure(self.queued_uncached_tokens),
            running=figure(self.running),
            kv_use=figure(self.kv_use, most=1.0),
            predicted_p99_ms=figure(self.predicted_p99_ms),
            replicas=None if replicas is None else int(replicas),
            complete=self.complete,
        )


def read_signals(answer: object, pool: str) -> Signals | None:
    """One pool of an answer of `/v1/fleet/signals`; None where it is not in it."""
    found: Any = answer.get(pool) if isinstance(answer, Mapping) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    if not isinstance(found, Mapping):
        return None
    fields: dict[str, Any] = {
        name: found.get(name)  # pyright: ignore[reportUnknownMemberType]
        for name in Signals.__struct_fields__
        if name != "complete"
    }
    return Signals(**fields).checked()


def merged(parts: Iterable[Signals], *, complete: bool = True) -> Signals | None:
    """What several gateways say of the same replicas: their own requests add up, of what replicas say the worst counts.

    Args:
        complete: whether every gateway is among them.
    """
    each = [one.checked() for one in parts]
    if not each:
        return None
    replicas = [one.replicas for one in each if one.replicas is not None]
    return Signals(
        queued_uncached_tokens=_sum([one.queued_uncached_tokens for one in each]),
        running=_sum([one.running for one in each]),
        kv_use=_most([one.kv_use for one in each]),
        predicted_p99_ms=_most([one.predicted_p99_ms for one in each]),
        replicas=max(replicas, default=None),
        complete=complete and all(one.complete for one in each),
    )


def figure(value: object, most: float = math.inf) -> float | None:
    """A number from 0 to `most` that somebody told; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and 0 <= value <= most else None


def _sum(values: list[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if len(known) == len(values) else None


def _most(values: list[float | None]) -> float | None:
    return max((one for one in values if one is not None), default=None)
