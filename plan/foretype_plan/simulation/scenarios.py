"""The scenarios of `foretype simulate`: each a few variants of one cell, which differ in one thing."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from foretype_backend.fleet.scaling.options import ScalingOptions

from foretype_plan.scenario import Tier
from foretype_plan.simulation.cell import Cell
from foretype_plan.simulation.cell_options import CellOptions, Tenant
from foretype_plan.simulation.engine import Engine, EngineSpec, spec_of
from foretype_plan.simulation.people import Arrivals
from foretype_plan.simulation.replicas import COLD_START
from foretype_plan.simulation.routing import Routing
from foretype_plan.simulation.scaling import Scaled, Scaler
from foretype_plan.simulation.warming import Warmer

RATE: Final = 2400 * 0.279 / 3600
"""Requests a second of a developer who is writing code: keys_per_hour and requests_per_key of the plan's catalogue."""
_MONDAY_S: Final = datetime.datetime(2026, 11, 23, 8, 50, tzinfo=datetime.UTC).timestamp()


class Base(NamedTuple):
    """What all variants have in common."""

    tier: Tier
    arrivals: Arrivals
    seconds: float
    seed: int = 0

    def cell(
        self,
        *,
        load: float = 0.75,
        tenants: tuple[Tenant, ...] | None = None,
        spec: EngineSpec | None = None,
        **more: Any,
    ) -> Cell:
        """With as many developers as ask `load` of what its replicas could do if every prefix were found."""
        given: dict[str, Any] = {"replicas": 4} | more
        own = spec or spec_of(self.tier)
        rate = load * given["replicas"] * capacity(spec_of(self.tier), self.arrivals)
        options = CellOptions(
            specs=given.pop("specs", (own,)),
            tenants=tenants or (Tenant(developers=round(rate / RATE), rate=RATE),),
            arrivals=self.arrivals,
            seconds=given.pop("seconds", self.seconds),
            seed=self.seed,
            **given,
        )
        return Cell(options)

    def people(self, load: float, replicas: int = 4) -> int:
        return round(load * replicas * capacity(spec_of(self.tier), self.arrivals) / RATE)


def capacity(
    spec: EngineSpec, arrivals: Arrivals, *, output_tokens: float = 20.0, repository_tokens: int = 640
) -> float:
    """Requests a second of one replica whose batch is full and that finds every prefix."""
    rows = [row for stretch in arrivals.stretches for row in stretch]
    new = sum(row.prompt_tokens - row.shared_tokens for row in rows) / len(rows) + 32
    context = repository_tokens + sum(row.prompt_tokens for row in rows) / len(rows)
    step_s = spec.weights_s + spec.batch * context * spec.context_s + spec.overhead_s
    return 1 / (new * spec.token_s + output_tokens * step_s / spec.batch)


Ran = tuple[Cell, dict[str, Any]]
Run = Callable[[Base], Ran]


class Scenario(NamedTuple):
    """Variants by name; each makes a cell, runs it, and may add figures. The others are compared with the first."""

    says: str
    variants: Mapping[str, Run]


def _plain(base: Base, **more: Any) -> Ran:
    cell = base.cell(**more)
    cell.run()
    return cell, {}


def _routing() -> dict[str, Run]:
    return {
        f"{one} at {load:.0%}": partial(_plain, load=load, routing=one)
        for load in (0.6, 0.75, 0.9)
        for one in (Routing.PREFIX, Routing.HASH, Routing.ROUND_ROBIN)
    }


def _monday(base: Base, *, warm: bool) -> Ran:
    team = Tenant(developers=base.people(0.9), rate=RATE, repositories=60, begin_s=30.0, ramp_s=5.0)
    cell = base.cell(tenants=(team,), warm_up_s=30.0, seconds=90.0)
    cell.begin()
    if warm:
        Warmer(cell)
    cell.until(120.0)
    return cell, {}


def _lost(base: Base, *, racks: int = 0, one: bool = False, region: bool = False) -> Ran:
    warm_up_s = 30.0
    lost_s = warm_up_s + min(15.0, base.seconds / 2)
    tenants = [Tenant(developers=base.people(0.6, 6), rate=RATE)]
    if region:
        moved = Tenant(name="moved", developers=base.people(0.3, 6), rate=RATE, begin_s=lost_s, ramp_s=5.0)
        tenants.append(moved)
    cell = base.cell(tenants=tuple(tenants), replicas=6, racks=2, warm_up_s=warm_up_s)
    cell.begin()
    cell.until(lost_s)
    for replica in list(cell.fleet.replicas.serving()):
        if (one and replica.name == "r000") or (racks and replica.rack < racks):
            cell.fleet.fail(replica)
            cell.fleet.add(after_s=COLD_START.whole_s)
    cell.until(warm_up_s + base.seconds)
    return cell, {"tenants": cell.tally.tenants()}


def _mad(base: Base, *, times: float, **more: Any) -> Ran:
    quiet = tuple(Tenant(name=f"team {at}", developers=base.people(0.15), rate=RATE) for at in range(3))
    mad = Tenant(name="mad", developers=base.people(0.15), rate=RATE * times, begin_s=0.0)
    cell = base.cell(tenants=(*quiet, mad), **more)
    cell.run()
    found = cell.tally.tenants()
    others = sum(found[one.name]["goodput"] for one in quiet) / len(quiet)
    return cell, {"goodput_of_others": others, "goodput_of_mad": found["mad"]["goodput"], "tenants": found}


def _stamped(base: Base, *, stamped: bool) -> Ran:
    return _plain(base, tenants=(Tenant(developers=base.people(0.6), rate=RATE, stamped=stamped),))


def _throttled(base: Base, *, slowness: float, **more: Any) -> Ran:
    cell = base.cell(load=0.6, **more)
    cell.begin()
    cell.until(cell.options.warm_up_s)
    engine = cell.fleet.replicas.serving()[0].engine
    assert isinstance(engine, Engine)
    engine.slowness = slowness
    cell.until(cell.options.warm_up_s + base.seconds)
    return cell, {}


_RISE_S: Final = 600.0
_BEFORE_S: Final = 60.0
_AFTER_S: Final = 150.0
_MOST: Final = 8


def _rising(
    base: Base, *, scaling: ScalingOptions | None, by: Scaled = Scaled.POLICY, replicas: int = 2, pool: int = 0
) -> Ran:
    """From what two replicas can do to what six can, within ten minutes; nobody's prefix is cached yet."""
    spec = spec_of(base.tier)
    there = Tenant(name="early", developers=base.people(0.6, 2), rate=RATE)
    come = Tenant(
        name="late", developers=base.people(0.7, 6) - there.developers, rate=RATE, begin_s=_BEFORE_S, ramp_s=_RISE_S
    )
    cell = base.cell(
        tenants=(there, come), replicas=replicas, seconds=_RISE_S + _AFTER_S, most_running=_MOST * spec.batch
    )
    cell.begin()
    scaler = None if scaling is None else Scaler(cell, scaling, by=by, warm_pool=pool, begin_s=_MONDAY_S)
    cell.until(cell.options.warm_up_s + cell.options.seconds)
    late = cell.tally.late_by_minute
    return cell, {
        "replicas_most": float(replicas if scaler is None else scaler.most),
        "replica_hours": cell.report()["replica_hours"] + (0.0 if scaler is None else scaler.pool_s / 3600),
        "late_by_minute": [late[minute] for minute in range(int(cell.options.seconds // 60) + 1)],
    }


def _scaling(**more: Any) -> ScalingOptions:
    plain: dict[str, Any] = {
        "min_replicas": 2,
        "max_replicas": _MOST,
        "learn": False,
        "cold_start_s": COLD_START.whole_s,
    }
    return msgspec.convert(plain | {"warm_max_replicas": 0} | more, ScalingOptions)


def _batch(base: Base, *, batch: int) -> Ran:
    spec = msgspec.structs.replace(spec_of(base.tier), batch=batch)
    return _plain(base, load=1.1, spec=spec)


def _speculating(base: Base, *, load: float, guessing: int, by_load: bool = False) -> Ran:
    """Of four replicas so many guess four tokens, each taken with a chance of 80 % after the one before; a guess costs a twentieth of a step."""
    plain = spec_of(base.tier)
    guesses = msgspec.structs.replace(plain, guesses=4, guess_share=0.05)
    specs = tuple(guesses if at < guessing else plain for at in range(4))
    return _plain(base, load=load, specs=specs, by_load=by_load, accepted=0.8)


def _chunked(base: Base, *, chunk_tokens: int, apart: int = 0) -> Ran:
    spec = spec_of(base.tier, chunk_tokens=chunk_tokens)
    # A prompt's keys and values go over 25 GB/s of network.
    return _plain(base, load=0.6, spec=spec, apart=apart, hand_over_s=spec.load_s)


def _kv(base: Base, *, bits: int) -> Ran:
    tier = msgspec.structs.replace(base.tier, kv_bits=bits)
    spec = spec_of(tier)
    tight = msgspec.structs.replace(spec, blocks=spec.blocks // 14)
    return _plain(base, load=0.75, spec=tight)


def _spike(base: Base, *, times: float, paid_weight: float = 1.0, free: bool = False) -> Ran:
    teams: list[Tenant] = []
    for name, weight in (("paid", paid_weight), ("free", 1.0)):
        team = Tenant(name=name, developers=base.people(0.3), rate=RATE, weight=weight, free=free and name == "free")
        teams.append(team)
        more = base.people(0.3 * (times - 1))
        if more:
            teams.append(msgspec.structs.replace(team, developers=more, begin_s=40.0, ramp_s=5.0))
    cell = base.cell(tenants=tuple(teams))
    cell.run()
    found = cell.tally.tenants()
    return cell, {
        "goodput_of_paid": found["paid"]["goodput"],
        "goodput_of_free": found["free"]["goodput"],
        "rungs": [list(one) for one in cell.tally.rungs],
        "tenants": found,
    }


_SCHEDULE: Final = [{"begin": "08:40", "end": "12:00", "replicas": 6}]

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "routing": Scenario(
        "by prefix, by hash of the session, in turns; at 60, 75 and 90 % of the replicas' capacity", _routing()
    ),
    "monday": Scenario(
        "everybody is there at once, in sixty repositories, and nothing is cached",
        {"cold": partial(_monday, warm=False), "warmed": partial(_monday, warm=True)},
    ),
    "loss": Scenario(
        "of six replicas in two racks, at 60 % load",
        {
            "nothing": _lost,
            "a replica": partial(_lost, one=True),
            "a rack": partial(_lost, racks=1),
            "a region's developers come": partial(_lost, region=True),
        },
    ),
    "mad": Scenario(
        "one tenant of four asks forty times as much",
        {
            "as the others": partial(_mad, times=1.0),
            "mad": partial(_mad, times=40.0),
            "mad, nothing shed": partial(_mad, times=40.0, shed=False),
        },
    ),
    "timestamp": Scenario(
        "somebody puts the time of day in front of every prompt",
        {"without": partial(_stamped, stamped=False), "with": partial(_stamped, stamped=True)},
    ),
    "throttle": Scenario(
        "one GPU of four takes three times as long",
        {
            "none": partial(_throttled, slowness=1.0),
            "one, by prefix": partial(_throttled, slowness=3.0),
            "one, in turns": partial(_throttled, slowness=3.0, routing=Routing.ROUND_ROBIN),
        },
    ),
    "scaling": Scenario(
        "load triples within ten minutes; a cold start takes four",
        {
            "queue and memory": partial(_rising, scaling=_scaling()),
            "GPU use": partial(_rising, scaling=_scaling(), by=Scaled.GPU_USE),
            "not at all": partial(_rising, scaling=None),
            "six from the start": partial(_rising, scaling=None, replicas=6),
        },
    ),
    "warm_pool": Scenario(
        "the same rise; two that stand ready, or six from a schedule",
        {
            "cold starts alone": partial(_rising, scaling=_scaling()),
            "a warm pool of two": partial(_rising, scaling=_scaling(), pool=2),
            "a scheduled ramp": partial(_rising, scaling=_scaling(schedule=_SCHEDULE)),
            "both": partial(_rising, scaling=_scaling(schedule=_SCHEDULE), pool=2),
        },
    ),
    "batch": Scenario(
        "the batch cap, at a tenth more than batches of eight can do",
        {str(batch): partial(_batch, batch=batch) for batch in (8, 4, 16, 32, 64)},
    ),
    "speculation": Scenario(
        "four tokens guessed, 59 % of them taken: never, always, and where the product's policy sends them",
        {
            f"{name} at {load:.0%}": partial(_speculating, load=load, guessing=count, by_load=by_load)
            for load in (0.3, 0.9)
            for name, count, by_load in (("never", 0, False), ("always", 4, False), ("by load", 2, True))
        },
    ),
    "disaggregation": Scenario(
        "prompts in chunks beside answers, whole, and on replicas of their own",
        {
            "chunks of 512": partial(_chunked, chunk_tokens=512),
            "whole": partial(_chunked, chunk_tokens=1 << 16),
            "one of four apart": partial(_chunked, chunk_tokens=1 << 16, apart=1),
        },
    ),
    "kv8": Scenario(
        "keys and values in 8 bits where a fourteenth of the memory is left for them",
        {"16 bits": partial(_kv, bits=16), "8 bits": partial(_kv, bits=8)},
    ),
    "tiers": Scenario(
        "a spike of two and a half times; half of the customers pay nothing",
        {
            "no spike": partial(_spike, times=1.0, free=True),
            "spike, free ones first": partial(_spike, times=2.5, free=True),
            "spike, four times the weight": partial(_spike, times=2.5, paid_weight=4.0),
            "spike, all the same": partial(_spike, times=2.5),
        },
    ),
}
"""By name."""
