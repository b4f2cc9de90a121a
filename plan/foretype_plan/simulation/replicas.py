"""Replicas of a cell: how one comes into service, phase by phase, how one leaves, and what is paid for meanwhile. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from foretype_plan.simulation.engine import Engine, EngineSpec
from foretype_plan.simulation.slot_engine import SlotEngine, SlotSpec


class ColdStart(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of each phase; a replica of the warm pool has the first three behind it.

    Attributes:
        machine: until a cloud hands over a GPU machine. image: until the container runs. weights: until they are in memory.
        engine: until CUDA graphs and caches are ready. probe: until health has seen it and the router knows it.
    """

    machine: float = 120.0
    image: float = 40.0
    weights: float = 15.0
    engine: float = 35.0
    probe: float = 3.0

    @property
    def whole_s(self) -> float:
        return self.machine + self.image + self.warm_s + self.weights

    @property
    def warm_s(self) -> float:
        return self.engine + self.probe


COLD_START: Final = ColdStart()


@dataclass(slots=True, eq=False)
class Replica:
    """One of them.

    Attributes:
        rack: what fails together. began_s: since when it is paid for. ended_s: until when.
    """

    name: str
    rack: int
    engine: Engine | SlotEngine
    began_s: float
    ended_s: float | None = None
    alive: bool = True
    serving: bool = False
    draining: bool = False


class Replicas:
    """All that there ever were.

    Args:
        specs: of the engines; the replica number n has specification n modulo their number.
    """

    def __init__(self, specs: tuple[EngineSpec | SlotSpec, ...], racks: int) -> None:
        self._specs = specs
        self._racks = racks
        self.every: dict[str, Replica] = {}

    def make(self, now: float) -> Replica:
        number = len(self.every)
        spec = self._specs[number % len(self._specs)]
        engine = SlotEngine(spec) if isinstance(spec, SlotSpec) else Engine(spec)
        made = Replica(f"r{number:03d}", number % self._racks, engine, now)
        self.every[made.name] = made
        return made

    def serving(self) -> list[Replica]:
        return [one for one in self.every.values() if one.serving and one.alive and not one.draining]

    def coming(self) -> list[Replica]:
        return [one for one in self.every.values() if one.alive and not one.serving and not one.draining]

    def end(self, replica: Replica, now: float) -> None:
        """It is gone, by failure or because it was not needed; it is paid for no longer."""
        replica.alive, replica.ended_s = False, now

    def paid_s(self, since: float, until: float) -> float:
        """Replica seconds between two moments."""
        return sum(
            max(0.0, min(until, until if one.ended_s is None else one.ended_s) - max(since, one.began_s))
            for one in self.every.values()
        )
