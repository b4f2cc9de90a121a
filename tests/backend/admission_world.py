"""The scheduler in virtual time: tenants that ask, an engine with slots that takes a fixed time, and what became of it."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from foretype_backend.admission.outcomes import Decision
from foretype_backend.admission.pressure import Pressure
from foretype_backend.admission.scheduler import Refuse, Scheduler, SlotLimits, Start, Ticket
from foretype_wire.messages import RequestClass

__all__ = ["Result", "Simulation", "typing_tenant"]


@dataclass(frozen=True, kw_only=True)
class Source:
    tenant: str
    rate: float
    class_: RequestClass
    objective_s: float | None
    begin_s: float
    free: bool


def typing_tenant(
    tenant: str,
    *,
    rate: float,
    class_: RequestClass = RequestClass.INTERACTIVE,
    objective_s: float | None = None,
    begin_s: float = 0.0,
    free: bool = False,
) -> Source:
    """Poisson arrivals."""
    return Source(tenant=tenant, rate=rate, class_=class_, objective_s=objective_s, begin_s=begin_s, free=free)


@dataclass
class Result:
    """Times in seconds of virtual time. `answered`: from arrival to the end."""

    answered: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    ttft: dict[RequestClass, list[float]] = field(default_factory=dict[RequestClass, list[float]])
    ttft_of: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    refused: Counter[str] = field(default_factory=Counter[str])
    refusals: list[tuple[float, Ticket]] = field(default_factory=list[tuple[float, Ticket]])
    asked: Counter[RequestClass] = field(default_factory=Counter[RequestClass])
    completions: list[float] = field(default_factory=list[float])

    def p99_s(self, tenant: str) -> float:
        return _p99(self.answered[tenant])

    def p99_ttft_s(self, class_: RequestClass) -> float:
        return _p99(self.ttft[class_])

    def completed_by(self, time_s: float) -> int:
        return sum(at <= time_s for at in self.completions)

    def refused_share(self, class_: RequestClass) -> float:
        return sum(ticket.class_ is class_ for _, ticket in self.refusals) / self.asked[class_]

    def refused_after(self, tenant: str, time_s: float) -> int:
        return sum(at > time_s and ticket.tenant == tenant for at, ticket in self.refusals)


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


class Simulation:
    """One gateway. Service times vary by a tenth, so that slots do not come free in step."""

    def __init__(
        self, *, slots: int, service_s: float, ttft_s: float = 0.0, pressure: Pressure | None = None, seed: int = 1
    ) -> None:
        self._chance = random.Random(seed)
        self.now = 0.0
        self._service_s, self._ttft_s = service_s, ttft_s
        self.scheduler = Scheduler(SlotLimits(max_running=slots, max_waiting=4 * slots), pressure)
        self.watch: Callable[[Ticket, Decision], None] = lambda _ticket, _decision: None
        """Told of everything that starts or is refused; `ticked` of every tenth of a second."""
        self.ticked: Callable[[float], None] = lambda _now: None

    def run(self, sources: list[Source], *, seconds: float, until_s: float | None = None) -> Result:
        result, order = Result(), itertools.count()
        until_s = until_s or seconds
        events: list[tuple[float, int, str, object]] = []
        live: dict[str, Ticket] = {}

        def later(at: float, kind: str, what: object) -> None:
            heapq.heappush(events, (at, next(order), kind, what))

        def carry_out(effects: list[object], now: float) -> None:
            for effect in effects:
                if isinstance(effect, Start | Refuse):
                    self.watch(live[effect.key], effect.decision)
                if isinstance(effect, Start):
                    later(now + self._ttft_s, "first", effect.key)
                    later(now + self._service_s * self._chance.uniform(0.9, 1.1), "leave", effect.key)
                elif isinstance(effect, Refuse):
                    ticket = live.pop(effect.key)
                    result.refused[ticket.tenant] += 1
                    result.refusals.append((now, ticket))

        for source in sources:
            later(source.begin_s + self._chance.expovariate(source.rate), "arrive", source)
        for tick in range(int(until_s * 10)):
            later(tick / 10, "tick", None)
        while events:
            now, number, kind, what = heapq.heappop(events)
            if now > until_s:
                break
            self.now = now
            if kind == "arrive":
                assert isinstance(what, Source)
                ticket = Ticket(
                    key=str(number),
                    session=f"{what.tenant}{self._chance.randrange(50)}",
                    class_=what.class_,
                    deadline=now + 10.0,
                    tenant=what.tenant,
                    free=what.free,
                    cost_tokens=200,
                    objective_s=what.objective_s,
                    arrived=now,
                )
                live[ticket.key] = ticket
                result.asked[ticket.class_] += 1
                carry_out([*self.scheduler.arrive(ticket, now)], now)
                if now < (until_s if what.begin_s else seconds):
                    later(now + self._chance.expovariate(what.rate), "arrive", what)
            elif kind == "first":
                ticket = live[str(what)]
                ttft_s = now - ticket.arrived
                self.scheduler.first_token(ticket.key, now, uncached_tokens=1, prefill_s=1e-6, ttft_s=ttft_s)
                result.ttft.setdefault(ticket.class_, []).append(ttft_s)
                result.ttft_of.setdefault(ticket.tenant, []).append(ttft_s)
            elif kind == "leave":
                ticket = live.pop(str(what))
                result.completions.append(now)
                result.answered.setdefault(ticket.tenant, []).append(now - ticket.arrived)
                carry_out([*self.scheduler.leave(ticket.key, now)], now)
            else:
                carry_out([*self.scheduler.tick(now)], now)
                self.ticked(now)
        return result
