"""A cell that grows and shrinks: the product's policy, or what it must not be, and the cold starts that follow."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

import msgspec
from foretype_backend.fleet.scaling.options import ScalingOptions
from foretype_backend.fleet.scaling.policy import ScalingState, decide
from foretype_backend.fleet.scaling.signals import Signals

from foretype_plan.simulation.cell import Cell
from foretype_plan.simulation.engine import Engine
from foretype_plan.simulation.replicas import COLD_START, ColdStart

_EVERY_S: Final = 5.0
_GPU_TARGET: Final = 0.7
"""What scalers on GPU use are told to keep to."""
_CALM_S: Final = 300.0


class Scaled(StrEnum):
    """On what: `policy` is the product's (queue, requests, memory, p99); `gpu_use` the share of its arithmetic that a GPU is busy with."""

    POLICY = "policy"
    GPU_USE = "gpu_use"


class Scaler:
    """Looks every five seconds.

    Args:
        warm_pool: replicas that have machine, image and weights already, and start in half a minute; they are paid for.
        begin_s: Unix seconds of the simulation's beginning, for schedules.
    """

    def __init__(
        self,
        cell: Cell,
        options: ScalingOptions,
        *,
        by: Scaled = Scaled.POLICY,
        cold: ColdStart = COLD_START,
        warm_pool: int = 0,
        begin_s: float = 0.0,
    ) -> None:
        self._cell, self._options, self._by, self._cold = cell, options, by, cold
        self._state = ScalingState()
        self._begin_s = begin_s
        self._target = len(cell.fleet.replicas.serving())
        self._pool = self._pool_size = warm_pool
        self._seen: dict[str, float] = {}
        self._low_since = 0.0
        self.most = self._target
        cell.time.every(_EVERY_S, self._look)

    @property
    def pool_s(self) -> float:
        """Replica seconds that the warm pool was paid for."""
        return self._pool_size * self._cell.time.now

    def _look(self) -> None:
        wanted = self._by_policy() if self._by is Scaled.POLICY else self._by_gpu_use()
        wanted = max(self._options.min_replicas, min(wanted, self._options.max_replicas))
        here = self._cell.fleet.replicas.serving() + self._cell.fleet.replicas.coming()
        for _ in range(wanted - len(here)):
            warm = self._pool > 0
            self._pool -= warm
            self._cell.fleet.add(after_s=self._cold.warm_s if warm else self._cold.whole_s)
            if warm:
                self._cell.time.at(self._cell.time.now + self._cold.whole_s - self._cold.warm_s, self._refill)
        idlest = sorted(self._cell.fleet.replicas.serving(), key=lambda one: one.engine.running)
        for replica in idlest[: max(0, len(here) - wanted)]:
            self._cell.fleet.drain(replica)
        self._target = wanted
        self.most = max(self.most, wanted)

    def _refill(self) -> None:
        self._pool += 1

    def _by_policy(self) -> int:
        cell, now_s = self._cell, self._begin_s + self._cell.time.now
        serving = cell.fleet.replicas.serving()
        engines = [one.engine for one in serving if isinstance(one.engine, Engine)]
        pressure = cell.scheduler.pressure
        p99 = None if pressure is None else pressure.statistics().p99_ms.get("interactive")
        statistics = cell.scheduler.statistics()
        signals = Signals(
            queued_uncached_tokens=float(cell.scheduler.queued_tokens),
            running=float(statistics.running + statistics.waiting),
            kv_use=max((one.cache.pinned / one.cache.blocks for one in engines), default=None),
            predicted_p99_ms=p99,
            replicas=len(serving),
        )
        made = decide(signals, self._state, self._options, target=self._target, now_s=now_s)
        self._state = made.state
        return made.replicas

    def _by_gpu_use(self) -> int:
        """Proportional, as horizontal pod autoscaling is: up at once, down after five minutes of calm."""
        uses: list[float] = []
        for one in self._cell.fleet.replicas.serving():
            if isinstance(one.engine, Engine):
                uses.append((one.engine.computing_s - self._seen.get(one.name, 0.0)) / _EVERY_S)
                self._seen[one.name] = one.engine.computing_s
        wanted = math.ceil(len(uses) * (sum(uses) / max(1, len(uses))) / _GPU_TARGET)
        if wanted >= self._target:
            self._low_since = self._cell.time.now
            return wanted
        return wanted if self._cell.time.now - self._low_since > _CALM_S else self._target


def bounds(least: int, most: int, **more: object) -> ScalingOptions:
    """Raises msgspec.ValidationError or ValueError: what the policy refuses."""
    return msgspec.convert({"min_replicas": least, "max_replicas": most, **more}, ScalingOptions)
