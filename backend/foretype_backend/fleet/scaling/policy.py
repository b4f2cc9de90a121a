"""How many replicas a pool should have now, and why. Pure: signals, what was before and the time in; a number and its reason out.

Load is counted in replicas' worth of work, the greatest of four: uncached tokens that wait, requests under way, key-value memory that they
hold, and the predicted p99 of the first token. The use of a processor is none of them: a GPU that is busy is a GPU that is paid for.

* More at once, in the call that sees the need; signals that are shares of what serves at most double it, since they say that it is too
  little, and not by how much.
* Fewer slowly: when fewer were enough all through `down_after_s`, to the most that was wanted meanwhile, a share of them at a time.
* What is not known never takes a replica away; where nothing is known the number stays.
* Beside the load a warm pool stands ready: what came at most within one cold start in the last seven days. What last week needed within
  the next cold start stands ready, too.
* Bounds and costs hold at every call, whatever is wanted.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from foretype_backend.fleet.scaling.history import SLOT_S, History
from foretype_backend.fleet.scaling.options import ScalingOptions
from foretype_backend.fleet.scaling.signals import Signals

_TOLERANCE: Final = 1.1
"""A tenth too much load is no reason for one more."""
_MOMENTS_S: Final = 5.0
"""A first request after a pause has no p99 yet: that is no silence."""
_CALM: Final = 0.7
"""Share of the objective under which a predicted p99 lets a replica go: fewer make it worse, and not in proportion."""


class ScalingState(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision hands to the next one; can be written as JSON.

    Attributes:
        low_since_s: since when fewer are wanted, Unix seconds.
        low_most: the most that was wanted since.
        spoke: signals that were known once, and until when: of one that has been silent for longer than moments none goes.
        day: number of the local day that `spent` counts, in replica-seconds.
        counted_s: until when it counts.
    """

    history: History = History()
    low_since_s: float | None = None
    low_most: int = 0
    spoke: dict[str, float] = {}
    day: int = 0
    spent: float = 0.0
    counted_s: float | None = None


class Decision(NamedTuple):
    """What to have, why, in words, and the state for the next call."""

    replicas: int
    reason: str
    state: ScalingState


class _Load(NamedTuple):
    """Replicas' worth of work, what it is of, and whether nothing that counts is missing."""

    replicas: float
    reason: str
    whole: bool


def decide(
    signals: Signals | None, state: ScalingState, options: ScalingOptions, *, target: int, now_s: float
) -> Decision:
    """What a pool should have.

    Args:
        signals: of now; None where nobody says anything, or only old things.
        target: what it should have had until now.
        now_s: Unix seconds.
    """
    when = options.local(now_s)
    state = _counted(state, options, target, now_s)
    seen = None if signals is None else signals.checked()
    history = state.history.started(target, None if seen is None else seen.replicas, now_s)
    cold_start_s = history.cold_start_s or options.cold_start_s
    floor = max(options.floor(now_s), options.floor(now_s + cold_start_s))
    asleep = options.scheduled(now_s) == 0 and floor == 0
    ceiling, bound = _ceiling(state, options)
    floor = min(floor, ceiling)

    load = None if seen is None else _load(seen, state, options, now_s)
    if seen is None or load is None:
        reason = "nobody says how loaded the pool is: the number stays"
        state = msgspec.structs.replace(state, history=history, low_since_s=None)
        return Decision(*_held(target, reason, floor, ceiling, bound), state)
    history = history.noted(min(load.replicas, float(options.max_replicas)), when, cold_start_s)
    state = msgspec.structs.replace(state, history=history, spoke=_spoke(seen, state, now_s))

    wanted, reason = math.ceil(load.replicas / _TOLERANCE), load.reason
    if not asleep:
        planned = math.ceil(history.ahead(when, cold_start_s + SLOT_S) / _TOLERANCE) if options.learn else 0
        if planned > wanted:
            wanted, reason = planned, f"last week needed {planned} at this time"
        warm = min(math.ceil(history.steepest / _TOLERANCE), options.warm_max_replicas)
        if warm and max(wanted, floor):
            wanted, reason = wanted + warm, f"{reason}; {warm} warm for the steepest rise"
    wanted, reason = _held(wanted, reason, floor, ceiling, bound)
    if wanted >= target:
        return Decision(wanted, reason, msgspec.structs.replace(state, low_since_s=None))
    starting = history.waited_for is not None and now_s - history.waited_for[0] < 2 * cold_start_s
    if starting or not load.whole:
        why = "some are starting" if starting else "not everything is known"
        state = msgspec.structs.replace(state, low_since_s=None)
        return Decision(min(target, ceiling), f"{reason}; {wanted} would do, but {why}: none goes", state)
    return _down(wanted, reason, state, options, target=target, ceiling=ceiling, now_s=now_s)


def _load(seen: Signals, state: ScalingState, options: ScalingOptions, now_s: float) -> _Load | None:
    """None where neither what waits nor what runs is known."""
    tokens, running, serving = seen.queued_uncached_tokens, seen.running, seen.replicas
    if tokens is None and running is None:
        return None
    found: list[tuple[float, str]] = []
    if tokens is not None:
        found.append((tokens / options.tokens_per_replica, f"{tokens:,.0f} uncached tokens wait"))
    if running is not None:
        found.append((running / options.running_per_replica, f"{running:,.0f} requests run"))
    idle = tokens == 0 and running == 0
    if not idle and serving:
        if seen.kv_use is not None:
            of_target = min(seen.kv_use / options.kv_target, 2.0)
            found.append((serving * of_target, f"{seen.kv_use:.0%} of key-value memory is held"))
        if seen.predicted_p99_ms is not None:
            share = seen.predicted_p99_ms / options.p99_objective_ms
            share = share / _CALM if share < _CALM else min(max(1.0, share), 2.0)
            found.append((serving * share, f"a first token may take {seen.predicted_p99_ms:,.0f} ms (p99)"))
    most, reason = max(found)
    silent = any(now_s - until_s > _MOMENTS_S for until_s in _spoke(seen, state, now_s).values())
    return _Load(most, reason, seen.complete and not silent)


def _spoke(seen: Signals, state: ScalingState, now_s: float) -> dict[str, float]:
    """When each signal was last known. Without requests no memory is held and no token waited for, so those two count as known."""
    known = _known(seen)
    if seen.queued_uncached_tokens == 0 and seen.running == 0:
        known |= state.spoke.keys() & {"kv_use", "predicted_p99_ms"}
    return {**state.spoke, **dict.fromkeys(known, now_s)}


def _known(seen: Signals) -> frozenset[str]:
    names = ("queued_uncached_tokens", "running", "kv_use", "predicted_p99_ms", "replicas")
    return frozenset(name for name in names if getattr(seen, name) is not None)


def _held(wanted: int, reason: str, floor: int, ceiling: int, bound: str) -> tuple[int, str]:
    if wanted > ceiling:
        return ceiling, f"{reason}; {wanted} would be wanted, {bound} allows {ceiling}"
    if wanted < floor:
        return floor, f"{reason}; at least {floor} at this hour"
    return wanted, reason


def _ceiling(state: ScalingState, options: ScalingOptions) -> tuple[int, str]:
    """The upper bound, and which one it is."""
    if options.max_cost_per_day is not None:
        cost = state.spent / 3_600 * options.price_per_hour
        if cost >= options.max_cost_per_day:
            return options.min_replicas, "max_cost_per_day, which is spent,"
    return options.ceiling, "max_replicas" if options.ceiling == options.max_replicas else "max_cost_per_hour"


def _counted(state: ScalingState, options: ScalingOptions, target: int, now_s: float) -> ScalingState:
    """With what the replicas cost since the last call; a day begins at midnight, local time."""
    day = options.local(now_s).toordinal()
    since_s = now_s if state.counted_s is None else max(state.counted_s, now_s - 86_400.0)
    passed = max(0.0, now_s - since_s) * target
    spent = passed if day != state.day else state.spent + passed
    return msgspec.structs.replace(state, day=day, spent=spent, counted_s=now_s)


def _down(
    wanted: int, reason: str, state: ScalingState, options: ScalingOptions, *, target: int, ceiling: int, now_s: float
) -> Decision:
    """Fewer are wanted: now, later, or at once where a bound says so."""
    since_s, most = state.low_since_s, max(state.low_most, wanted)
    if since_s is None or since_s > now_s:
        since_s, most = now_s, wanted
    if now_s - since_s >= options.down_after_s:
        replicas = max(most, target - max(1, int(target * options.down_share)))
        state = msgspec.structs.replace(state, low_since_s=now_s, low_most=wanted)
    else:
        replicas = target
        reason = f"{reason}; {wanted} would do, for {now_s - since_s:.0f} s of {options.down_after_s:.0f}"
        state = msgspec.structs.replace(state, low_since_s=since_s, low_most=most)
    return Decision(min(replicas, ceiling), reason, state)
