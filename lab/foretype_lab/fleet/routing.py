"""Routing policies over simulated replicas: how much of the prompts was cached, how evenly the work was spread.

A replica computes prefills one after the other at a given rate, and decodes beside them in a given time. Its cache is addressed
by content and forgets the least recently used block first. All policies get the same requests at the same times.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from foretype_backend.fleet.routing.ring import Ring
from foretype_backend.fleet.routing.router import ReplicaChoice, Route, Router, RoutingOptions
from foretype_backend.prefix.directory import PrefixDirectory

from foretype_lab.fleet.retiring import RetiringLru
from foretype_lab.fleet.trace import Call

__all__ = ["POLICIES", "SEVERAL_GATEWAYS", "FleetOptions", "Growth", "simulate"]

_EXPIRE_EVERY_S: Final = 5.0


class FleetOptions(NamedTuple):
    """A fleet.

    Attributes:
        capacity_blocks: of each replica's cache.
        prefill_tokens_per_s, decode_s, batch: of each replica.
        pace: how many times faster than recorded the requests come; sets the load.
        gateways: of the policies that have several, each with a directory and counts of its own.
    """

    replicas: int
    capacity_blocks: int = 8_192
    block_tokens: int = 16
    prefill_tokens_per_s: float = 20_000.0
    decode_s: float = 0.15
    batch: int = 8
    pace: float = 1.0
    gateways: int = 1


class Growth(NamedTuple):
    """Replicas that join later, of the policy `foretype`.

    Attributes:
        first: replicas at the beginning.
        at_s: when the rest joins, with empty caches.
        window_s: what is reported is the share of a window before, of the one after, and of each of those that follow.
    """

    first: int
    at_s: float
    window_s: float = 300.0


class _Policy(Protocol):
    """Chooses; hears of the end of a request. `in_flight` is per replica."""

    def choose(self, call: Call, in_flight: Mapping[str, int], now: float) -> ReplicaChoice: ...

    def prefilled(self, choice: ReplicaChoice, call: Call) -> None: ...

    def end(self, choice: ReplicaChoice, call: Call) -> None: ...


class _Simple:
    """A policy without memory of prompts."""

    def __init__(self, pick: Callable[[Call, Mapping[str, int]], str]) -> None:
        self._pick = pick

    def choose(self, call: Call, in_flight: Mapping[str, int], now: float) -> ReplicaChoice:
        return ReplicaChoice(self._pick(call, in_flight), Route.PASS_THROUGH, 0)

    def prefilled(self, choice: ReplicaChoice, call: Call) -> None: ...

    def end(self, choice: ReplicaChoice, call: Call) -> None: ...


class _Ours:
    """Directory and router, as the gateway has them: belief from routing history alone, no events of the engines."""

    def __init__(self, names: Sequence[str], options: FleetOptions) -> None:
        self._directory = PrefixDirectory(capacity_blocks=options.capacity_blocks)
        self._router = Router(
            RoutingOptions(prefill_tokens_per_s=options.prefill_tokens_per_s, free_in_flight=options.batch)
        )
        self._router.set_replicas(names)
        self._block_tokens = options.block_tokens
        self._expired_s = 0.0
        self.predicted: list[int] = []

    def choose(self, call: Call, in_flight: Mapping[str, int], now: float) -> ReplicaChoice:
        if now - self._expired_s > _EXPIRE_EVERY_S:
            self._directory.expire(now)
            self._expired_s = now
        blocks = self._directory.cached_blocks(call.keys())
        cached = {name: run * self._block_tokens for name, run in blocks.items()}
        choice = self._router.choose(
            call.namespace.tenant, call.namespace.scope, call.session, call.prompt_tokens, cached
        )
        self._router.begin(choice, call.prompt_tokens, now)
        self._directory.place(
            call.namespace, call.session, call.document, call.chain(), replica=choice.replica, now=now
        )
        self.predicted.append(choice.cached_tokens)
        return choice

    def prefilled(self, choice: ReplicaChoice, call: Call) -> None:
        self._router.prefilled(choice, call.prompt_tokens)

    def end(self, choice: ReplicaChoice, call: Call) -> None:
        self._router.end(choice)

    def grow(self, names: Sequence[str]) -> None:
        self._router.set_replicas(names)

    def routes(self) -> dict[str, int]:
        return {route.value: count for route, count in self._router.statistics().routes.items() if count}


class _Gateways:
    """Several of ours before the same replicas: none knows what the others routed, or how much is in flight by them."""

    def __init__(self, names: Sequence[str], options: FleetOptions, entrance: Callable[[Call], str]) -> None:
        self._each = {f"gateway-{at}": _Ours(names, options) for at in range(options.gateways)}
        self._ring = Ring(list(self._each))
        self._entrance = entrance
        self.predicted: list[int] = []

    def choose(self, call: Call, in_flight: Mapping[str, int], now: float) -> ReplicaChoice:
        choice = self._of(call).choose(call, in_flight, now)
        self.predicted.append(choice.cached_tokens)
        return choice

    def prefilled(self, choice: ReplicaChoice, call: Call) -> None:
        self._of(call).prefilled(choice, call)

    def end(self, choice: ReplicaChoice, call: Call) -> None:
        self._of(call).end(choice, call)

    def routes(self) -> dict[str, int]:
        return dict(sum((Counter(one.routes()) for one in self._each.values()), Counter[str]()))

    def _of(self, call: Call) -> _Ours:
        return self._each[next(self._ring.walk(self._entrance(call)))]


def _gateways_by_session(names: Sequence[str], options: FleetOptions) -> _Policy:
    return _Gateways(names, options, lambda call: call.session)


def _gateways_by_repository(names: Sequence[str], options: FleetOptions) -> _Policy:
    return _Gateways(names, options, _repository)


def _gateways_by_request(names: Sequence[str], options: FleetOptions) -> _Policy:
    return _Gateways(names, options, lambda call: f"{call.session}\0{call.time_s}")


def _repository(call: Call) -> str:
    return f"{call.namespace.tenant}\0{call.namespace.scope}"


def _round_robin(names: Sequence[str], _options: FleetOptions) -> _Policy:
    turn = iter(range(1 << 62))
    return _Simple(lambda _call, _load: names[next(turn) % len(names)])


def _least_loaded(names: Sequence[str], _options: FleetOptions) -> _Policy:
    return _Simple(lambda _call, load: min(names, key=lambda name: (load[name], name)))


def _consistent_hashing(names: Sequence[str], _options: FleetOptions) -> _Policy:
    ring = Ring(names)
    return _Simple(lambda call, _load: next(ring.walk(_repository(call))))


def _by_session(names: Sequence[str], _options: FleetOptions) -> _Policy:
    ring = Ring(names)
    return _Simple(lambda call, _load: next(ring.walk(call.session)))


POLICIES: Final[Mapping[str, Callable[[Sequence[str], FleetOptions], _Policy]]] = {
    "foretype": _Ours,
    "round_robin": _round_robin,
    "least_loaded": _least_loaded,
    "hash_repository": _consistent_hashing,
    "hash_session": _by_session,
}
SEVERAL_GATEWAYS: Final[Mapping[str, Callable[[Sequence[str], FleetOptions], _Policy]]] = {
    "gateways_by_session": _gateways_by_session,
    "gateways_by_repository": _gateways_by_repository,
    "gateways_by_request": _gateways_by_request,
}
"""Ours again, with `FleetOptions.gateways`: a connection stays where it began, a balancer hashes by repository, or every request
of a session may come through another one."""


def simulate(calls: Sequence[Call], policy: str, options: FleetOptions, growth: Growth | None = None) -> dict[str, Any]:
    """One run.

    Returns:
        `cached_share` of prompt tokens; `ttft_ms` p50, p99; `imbalance`: computed tokens of the busiest replica over the mean;
        `in_flight_imbalance`: the 99th percentile over arrivals of the fullest replica's requests over the mean, where the mean
        is at least one; `agreement` of predicted and found cached tokens (ours alone); with `growth` `windows`, by
        number, 0 being the one before the others joined: share of prompt tokens that were cached, and of requests that went to the one that joined.
    """
    names = [f"replica-{at}" for at in range(options.replicas)]
    chooser = {**POLICIES, **SEVERAL_GATEWAYS}[policy](names[: growth.first] if growth else names, options)
    windows: dict[int, list[tuple[str, int, int]]] = {}
    grown = growth is None
    caches = {name: RetiringLru(options.capacity_blocks) for name in names}
    free_s = dict.fromkeys(names, 0.0)
    in_flight = dict.fromkeys(names, 0)
    computed = dict.fromkeys(names, 0)
    pending: list[tuple[float, int, bool, ReplicaChoice, Call]] = []  # time, order, whether it ends, …
    ttft: list[float] = []
    crowded: list[float] = []
    found: list[int] = []
    begin = calls[0].time_s if calls else 0.0
    for number, call in enumerate(calls):
        now = (call.time_s - begin) / options.pace
        while pending and pending[0][0] <= now:
            _, _, ends, choice, earlier = heapq.heappop(pending)
            if ends:
                in_flight[choice.replica] -= 1
                chooser.end(choice, earlier)
            else:
                chooser.prefilled(choice, earlier)
        if not grown and growth is not None and now >= growth.at_s and isinstance(chooser, _Ours):
            chooser.grow(names)
            grown = True
        choice = chooser.choose(call, in_flight, now)
        name = choice.replica
        keys = call.keys()
        cached = _run(caches[name], keys) * options.block_tokens
        caches[name].use(keys)
        uncached = call.prompt_tokens - min(cached, call.prompt_tokens - 1)
        if growth is not None:
            window = int((now - growth.at_s) // growth.window_s) + 1
            windows.setdefault(window, []).append((name, uncached, call.prompt_tokens))
        start = max(now, free_s[name])
        first = free_s[name] = start + uncached / options.prefill_tokens_per_s
        in_flight[name] += 1
        computed[name] += uncached
        heapq.heappush(pending, (first, 2 * number, False, choice, call))
        heapq.heappush(pending, (first + options.decode_s, 2 * number + 1, True, choice, call))
        ttft.append(1000 * (first - now))
        found.append(cached)
        mean = sum(in_flight.values()) / len(names)
        if mean >= 1:
            crowded.append(max(in_flight.values()) / mean)
    prompt = sum(call.prompt_tokens for call in calls)
    mean_computed = sum(computed.values()) / len(names)
    result: dict[str, Any] = {
        "requests": len(calls),
        "prompt_tokens": prompt,
        "computed_tokens": sum(computed.values()),
        "cached_share": round(1 - sum(computed.values()) / prompt, 4) if prompt else None,
        "ttft_ms": {f"p{at}": round(float(np.percentile(ttft, at)), 2) for at in (50, 99)} if ttft else {},
        "imbalance": round(max(computed.values()) / mean_computed, 3) if mean_computed else None,
        "in_flight_imbalance": round(float(np.percentile(crowded, 99)), 3) if crowded else None,
    }
    if growth is not None:
        result["windows"] = {
            at: {
                "requests": len(told),
                "cached_share": round(1 - sum(one[1] for one in told) / sum(one[2] for one in told), 4),
                "joined_share": round(sum(one[0] in names[growth.first :] for one in told) / len(told), 4),
            }
            for at, told in windows.items()
            if at >= 0
        }
    if isinstance(chooser, _Ours | _Gateways):
        result["routes"] = chooser.routes()
        same = [abs(a - b) <= options.block_tokens for a, b in zip(chooser.predicted, found, strict=True)]
        result["agreement"] = round(sum(same) / len(same), 4) if same else None
    return result


def _run(cache: RetiringLru, keys: Sequence[bytes]) -> int:
    for at, key in enumerate(keys):
        if key not in cache:
            return at
    return len(keys)
