"""A cell: the developers of one gateway group, that gateway's own pure parts, and N engines, in virtual time.

What decides here is the product's code: admission, fair turns and shedding (`admission.scheduler`), the ladder, the client's pause after a
refusal (`policy.trigger`), the router and its book of caches, the policy of speculation. What is modelled is time: of an engine's steps
(:mod:`.engine`), of the way (half of it before and half after), and of the gateway (`overhead_s`).

SimPy keeps the calendar (:mod:`.calendar`); the rest is told the time.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec
from foretype_backend.admission.degradation import Ladder
from foretype_backend.admission.outcomes import SHED
from foretype_backend.admission.pressure import Pressure
from foretype_backend.admission.scheduler import Effect, Refuse, Scheduler, SlotLimits, Start, Ticket
from foretype_client.policy.trigger import Policy, PolicyState
from foretype_context.prompt.profile import Service
from foretype_wire.messages import RequestClass

from foretype_plan.simulation.calendar import Calendar
from foretype_plan.simulation.cell_options import CellOptions, Tenant
from foretype_plan.simulation.figures import Tally
from foretype_plan.simulation.fleet import Fleet, Flight
from foretype_plan.simulation.people import Developer, Prompt

_TICK_S: Final = 0.1
_WAITING_TICK_S: Final = 0.02
_RETRY_AFTER_MS: Final = 1000.0


class Cell:
    """See the module."""

    def __init__(self, options: CellOptions) -> None:
        self.options = options
        self.time = Calendar()
        objectives = msgspec.structs.asdict(options.objectives_ms)
        self._objectives_s: dict[str, float] = {name: value / 1000 for name, value in objectives.items()}
        self.tally = Tally(options.warm_up_s, self._objectives_s)
        spec = options.specs[0]
        slots = options.most_running or spec.batch * options.replicas
        defended = {RequestClass(name): value for name, value in self._objectives_s.items() if name != "fim"}
        pressure = Pressure(defended) if options.shed else None
        self.scheduler = Scheduler(SlotLimits(max_running=slots, max_waiting=self.options.most_waiting), pressure)
        self.ladder = Ladder()
        self.rng = Random(f"cell {options.seed}")
        self.developers: list[Developer] = []
        self.beginnings: list[tuple[Developer, float]] = []
        """Who begins to type when."""
        self._weights: dict[str, float] = {}
        self._free: set[str] = set()
        self._policy = Policy()
        self._paused: dict[str, PolicyState] = {}
        self._flights: dict[str, Flight] = {}
        self._live: dict[str, str] = {}
        self._cached_share = 0.0
        self._count = 0
        self.fleet = Fleet(options, self.time, self.rng, self)

    # Time

    def run(self) -> Tally:
        """To the end."""
        self.begin()
        self.until(self.options.warm_up_s + self.options.seconds)
        return self.tally

    def begin(self) -> None:
        for tenant in self.options.tenants:
            self.people(tenant)
        self._tick()

    def until(self, moment_s: float) -> None:
        """Go on to that moment."""
        self.time.until(moment_s)

    # Who asks

    def people(self, tenant: Tenant) -> None:
        """All developers of a customer begin."""
        self._weights[tenant.name] = tenant.weight
        if tenant.free:
            self._free.add(tenant.name)
        first = len(self.developers)
        for number in range(first, first + tenant.developers):
            developer = Developer(
                f"{tenant.name}-{number}",
                tenant.name,
                f"repo{number % tenant.repositories}",
                self.options.arrivals,
                Random(f"{self.options.seed} {tenant.name} {number}"),
                rate=tenant.rate,
                repository_tokens=self.options.repository_tokens,
                most_tokens=self.options.prompt_tokens,
                stamped=tenant.stamped,
            )
            self.developers.append(developer)
            begin = tenant.begin_s + tenant.ramp_s * self.rng.random() + developer.begin()
            self.beginnings.append((developer, begin))
            self.time.at(begin, lambda one=developer, end=tenant.end_s: self._asks(one, end))

    def _asks(self, developer: Developer, end_s: float) -> None:
        """A request reaches the gateway; it left the editor half a way and some work earlier."""
        now = self.time.now
        if now >= end_s:
            return
        rung = self.ladder.rung(developer.tenant, free=developer.tenant in self._free)
        developer.alone = rung is not Service.FULL
        developer.short = rung is Service.SHORT_CONTEXT
        prompt, gap_s = developer.ask()
        self.time.at(now + gap_s, lambda: self._asks(developer, end_s))
        counts = now >= self.tally.begin_s
        if counts:
            self.tally.ask(developer.tenant, prompt.class_.value, now)
        paused = self._paused.get(developer.name)
        if rung is Service.CACHE_ONLY or (paused is not None and now < paused.paused_until_s):
            if counts:
                self.tally.silent[prompt.class_.value] += 1
                self.tally.by_tenant[developer.tenant]["silent"] += 1
            return
        self._supersede(developer)
        tokens = 1 + min(255, int(self.rng.expovariate(1 / max(1e-9, self.options.output_tokens - 0.5))))
        self.ask(developer, prompt, tokens)

    def ask(self, developer: Developer, prompt: Prompt, tokens: int, due_s: float | None = None) -> None:
        """A request reaches admission, whatever the ladder says and whatever runs; it counts from `due_s` on, else from now."""
        now = self.time.now
        self._count += 1
        flight = Flight(f"q{self._count}", developer, prompt, tokens, now if due_s is None else due_s)
        self._flights[flight.key] = flight
        self._live[developer.name] = flight.key
        self._apply(self.scheduler.arrive(self._ticket(flight, now), now))

    @property
    def requests(self) -> int:
        """That came to the gateway, those of the warm-up included."""
        return self._count

    def _supersede(self, developer: Developer) -> None:
        before = self._live.pop(developer.name, None)
        if before is not None and before in self._flights:
            self._apply(self.scheduler.supersede(before, developer.name, self.time.now))

    def _ticket(self, flight: Flight, now: float) -> Ticket:
        developer, prompt = flight.developer, flight.prompt
        uncached = prompt.tokens - int(prompt.tokens * self._cached_share)
        return Ticket(
            key=flight.key,
            session=developer.name,
            document="file",
            class_=prompt.class_,
            deadline=now + self.options.deadline_s,
            tenant=developer.tenant,
            weight=self._weights.get(developer.tenant, 1.0),
            free=developer.tenant in self._free,
            uncached_tokens=uncached,
            cost_tokens=prompt.tokens + flight.tokens,
            objective_s=self._objectives_s.get(prompt.class_.value),
            arrived=now,
        )

    # What admission decides

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            flight = self._flights.get(effect.key)
            if flight is None:
                continue
            if isinstance(effect, Start):
                self._weigh(flight, shed=False)
                self.fleet.start(flight)
            elif isinstance(effect, Refuse):
                self._weigh(flight, shed=effect.decision in SHED)
                self._over(flight, refused=effect.decision in SHED)
            else:
                self.fleet.stop(flight)

    def _weigh(self, flight: Flight, *, shed: bool) -> None:
        self.ladder.decided(
            flight.developer.tenant,
            weight=self._weights.get(flight.developer.tenant, 1.0),
            tokens=flight.prompt.tokens + flight.tokens,
            interactive=flight.prompt.class_ is RequestClass.INTERACTIVE,
            shed=shed,
            free=flight.developer.tenant in self._free,
        )

    def first(self, flight: Flight, cached_tokens: int) -> None:
        now, prompt, options = self.time.now, flight.prompt, self.options
        uncached = prompt.tokens - cached_tokens
        self._cached_share += 0.05 * (cached_tokens / max(1, prompt.tokens) - self._cached_share)
        inside_s = now - flight.asked_s
        self.scheduler.first_token(
            flight.key,
            now,
            uncached_tokens=uncached,
            prefill_s=now - flight.started_s,
            ttft_s=inside_s + options.overhead_s,
        )
        if flight.asked_s >= self.tally.begin_s and not flight.stopped:
            self.tally.first(
                flight.developer.tenant,
                prompt.class_.value,
                flight.asked_s,
                inside_s + options.overhead_s + options.network_s,
                prompt_tokens=prompt.tokens,
                cached_tokens=cached_tokens,
            )

    def ended(self, flight: Flight) -> None:
        now = self.time.now
        if flight.tokens > 1 and flight.first_s and not flight.stopped and flight.asked_s >= self.tally.begin_s:
            self.tally.tpot_s.append((now - flight.first_s) / (flight.tokens - 1))
        self._over(flight)

    def _over(self, flight: Flight, *, refused: bool = False) -> None:
        del self._flights[flight.key]
        if flight.asked_s >= self.tally.begin_s:
            tenant = self.tally.by_tenant[flight.developer.tenant]
            if refused:
                self.tally.refused[flight.prompt.class_.value] += 1
                tenant["refused"] += 1
            elif not flight.first_s:
                self.tally.cancelled += 1
                tenant["cancelled"] += 1
        if refused:
            name = flight.developer.name
            state = self._paused.get(name, PolicyState())
            self._paused[name] = self._policy.pause(state, retry_after_ms=_RETRY_AFTER_MS, now=self.time.now)
        self._apply(self.scheduler.leave(flight.key, self.time.now))

    def lost(self, flight: Flight) -> None:
        """Its engine is gone, and so is it: said once more it would be another request."""
        if flight.asked_s >= self.tally.begin_s:
            self.tally.lost += 1
        self._flights.pop(flight.key, None)
        self._apply(self.scheduler.leave(flight.key, self.time.now))

    def _tick(self) -> None:
        now, pressure = self.time.now, self.scheduler.pressure
        self._apply(self.scheduler.tick(now))
        self.time.at(now + (_WAITING_TICK_S if self.scheduler.waiting else _TICK_S), self._tick)
        if pressure is not None:
            for tenant in sorted(self.ladder.turn(level=pressure.level, highest=pressure.highest, now=now)):
                self.tally.rungs.append((round(now, 1), tenant, self.ladder.rung(tenant).value))

    def report(self) -> dict[str, Any]:
        """Figures of the run, and of its engines."""
        begin, end = self.options.warm_up_s, self.time.now
        paid_s = self.fleet.replicas.paid_s(begin, end)
        busy_s = sum(one.engine.busy_s for one in self.fleet.replicas.every.values())
        return self.tally.report(max(1e-9, end - begin)) | {
            "replica_hours": paid_s / 3600,
            "busy_share": busy_s / max(1e-9, self.fleet.replicas.paid_s(0.0, end)),
        }
