"""The replicas of a cell: which of them a request goes to, and what their engines make of it, in virtual time.

The router, its book of caches and the policy of speculation are the product's; the engines are modelled (:mod:`.engine`). What happens is told
by three calls: a first token, an end, a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from foretype_backend.admission.scheduler import PRIORITY
from foretype_backend.fleet.routing.patterns import Pattern
from foretype_backend.fleet.routing.router import ReplicaChoice
from foretype_backend.fleet.routing.speculation import SpeculationOptions, SpeculationPolicy

from foretype_plan.simulation.calendar import Calendar
from foretype_plan.simulation.cell_options import CellOptions
from foretype_plan.simulation.engine import Ended, Engine, First, Work
from foretype_plan.simulation.people import Developer, Prompt
from foretype_plan.simulation.replicas import Replica, Replicas
from foretype_plan.simulation.routing import RoutingBook

_LANGUAGE: Final = "python"


@dataclass(slots=True, eq=False)
class Flight:
    """One request."""

    key: str
    developer: Developer
    prompt: Prompt
    tokens: int
    asked_s: float
    choice: ReplicaChoice | None = None
    replica: Replica | None = None
    started_s: float = 0.0
    first_s: float = 0.0
    stopped: bool = False
    handed: bool = False
    guesses: list[int] = field(default_factory=list[int])


class FleetListener(Protocol):
    """Who hears of it."""

    def first(self, flight: Flight, cached_tokens: int) -> None:
        """Its first token is there."""
        ...

    def ended(self, flight: Flight) -> None:
        """No engine has it any more."""
        ...

    def lost(self, flight: Flight) -> None:
        """Its engine is gone, or there is none."""
        ...


class Fleet:
    """See the module."""

    def __init__(self, options: CellOptions, time: Calendar, rng: Random, told: FleetListener) -> None:
        self.options, self.time = options, time
        self.replicas = Replicas(options.specs, options.racks)
        spec = options.specs[0]
        self.book = RoutingBook(
            options.routing, slots=spec.batch, capacity_blocks=spec.blocks, prefill_tokens_per_s=1 / spec.token_s
        )
        self.speculation = SpeculationPolicy(max(1, spec.guesses), SpeculationOptions(batch_max=spec.batch))
        self._rng, self._told = rng, told
        self._inside: dict[str, Flight] = {}
        self._warm: dict[str, Callable[[], None]] = {}
        self._armed: dict[str, float] = {}
        for _ in range(options.replicas):
            self.add(ready=True)

    def start(self, flight: Flight) -> None:
        """Admission lets it go."""
        now, developer = self.time.now, flight.developer
        choice = self.book.choose(
            developer.tenant, developer.repository, developer.name, flight.prompt, self._avoided()
        )
        if choice is None:
            self.time.at(now, lambda: self._told.lost(flight))
            return
        flight.choice, flight.started_s = choice, now
        flight.replica = self.replicas.every[choice.replica]
        self.book.sent(choice, developer.tenant, developer.repository, developer.name, flight.prompt, now)
        engine = flight.replica.engine
        steps = 0 if self.options.apart else flight.tokens - 1
        if isinstance(engine, Engine) and engine.spec.guesses:
            flight.guesses = _guessed(steps, engine.spec.guesses, self.options.accepted, self._rng)
            steps = len(flight.guesses)
        self._inside[flight.key] = flight
        self._submit(flight, steps)

    def _submit(self, flight: Flight, steps: int) -> None:
        assert flight.replica is not None
        prompt = flight.prompt
        work = Work(flight.key, prompt.keys, prompt.tokens, steps, priority=PRIORITY[prompt.class_])
        flight.replica.engine.submit(work, self.time.now)
        self._arm(flight.replica)

    def _avoided(self) -> frozenset[str]:
        """Replicas that guess, where the product's policy says that it does not pay now."""
        if not self.options.by_load:
            return frozenset()
        guessing = [
            one.name for one in self.replicas.serving() if isinstance(one.engine, Engine) and one.engine.spec.guesses
        ]
        if not guessing:
            return frozenset()
        load = self.book.router.statistics().in_flight
        verdict = self.speculation.decide(_LANGUAGE, Pattern.NAME, min(load[name] for name in guessing))
        return frozenset() if verdict.on else frozenset(guessing)

    def stop(self, flight: Flight) -> None:
        """It is wanted no more; it ends now, or with the step that runs."""
        flight.stopped = True
        if flight.replica is not None and flight.replica.engine.cancel(flight.key, self.time.now):
            self._ended(flight)
        elif flight.replica is not None:
            self._arm(flight.replica)

    # What engines do

    def _arm(self, replica: Replica) -> None:
        due = replica.engine.due
        if due is None or self._armed.get(replica.name) == due:
            return
        self._armed[replica.name] = due
        self.time.at(due, lambda: self._rings(replica, due))

    def _rings(self, replica: Replica, due: float) -> None:
        if self._armed.get(replica.name) != due or replica.engine.due != due:
            return  # it was put off, or brought forward
        del self._armed[replica.name]
        for one in replica.engine.advance(due):
            flight = self._inside.get(one.key)
            if flight is not None and isinstance(one, First):
                self._began(flight, one.cached_tokens)
            elif flight is not None:
                self._hand_over(flight)
            elif isinstance(one, Ended) and one.key in self._warm:
                self._warm.pop(one.key)()
        self._arm(replica)

    def _hand_over(self, flight: Flight) -> None:
        """An engine is done with it; where one computes prompts alone, another one goes on."""
        options = self.options
        if not options.apart or flight.handed or flight.stopped or flight.tokens < 2:
            self._ended(flight)
            return
        flight.handed = True
        flight.replica = None
        self.time.at(self.time.now + flight.prompt.tokens * options.hand_over_s, lambda: self._go_on(flight))

    def _go_on(self, flight: Flight) -> None:
        decoders = self.replicas.serving()[self.options.apart :]
        if flight.stopped or not decoders or flight.key not in self._inside:
            if flight.key in self._inside:
                self._ended(flight)
            return
        flight.replica = min(decoders, key=lambda one: one.engine.running + one.engine.waiting)
        work = Work(flight.key, (), flight.prompt.tokens, flight.tokens - 1, prefilled=True)
        flight.replica.engine.submit(work, self.time.now)
        self._arm(flight.replica)

    def _began(self, flight: Flight, cached_tokens: int) -> None:
        assert flight.choice is not None
        flight.first_s = self.time.now
        self.book.router.prefilled(flight.choice, flight.prompt.tokens)
        self._told.first(flight, cached_tokens)

    def _ended(self, flight: Flight) -> None:
        assert flight.choice is not None
        if not flight.first_s:
            self.book.router.prefilled(flight.choice, flight.prompt.tokens)
        for tokens in flight.guesses:
            self.speculation.note(_LANGUAGE, Pattern.NAME, tokens)
        self.book.router.end(flight.choice)
        del self._inside[flight.key]
        self._told.ended(flight)

    # Who serves

    def add(self, *, ready: bool = False, after_s: float = 0.0) -> Replica:
        """One more, in service at once or `after_s` from now."""
        made = self.replicas.make(self.time.now)
        if ready:
            self._serve(made)
        else:
            self.time.at(self.time.now + after_s, lambda: self._serve(made))
        return made

    def fail(self, replica: Replica) -> None:
        """It dies with everything in it."""
        self.replicas.end(replica, self.time.now)
        self._members()
        for key in replica.engine.lose():
            flight = self._inside.pop(key, None)
            if flight is not None:
                if flight.choice is not None:
                    self.book.router.end(flight.choice)
                self._told.lost(flight)

    def drain(self, replica: Replica) -> None:
        """It gets nothing new, and ends when it is empty."""
        replica.draining = True
        self._members()
        self._drained(replica)

    def _drained(self, replica: Replica) -> None:
        if replica.engine.running or replica.engine.waiting:
            self.time.at(self.time.now + 0.5, lambda: self._drained(replica))
        else:
            self.replicas.end(replica, self.time.now)

    def _serve(self, replica: Replica) -> None:
        if replica.alive and not replica.draining:
            replica.serving = True
            self._members()

    def _members(self) -> None:
        serving = self.replicas.serving()
        self.book.set_replicas(one.name for one in (serving[: self.options.apart] or serving))

    def warm(
        self,
        key: str,
        replica: str,
        tenant: str,
        repository: str,
        session: str,
        prompt: Prompt,
        priority: int,
        done: Callable[[], None],
    ) -> None:
        """Compute the beginning of a prompt that nobody has asked with yet."""
        one = self.replicas.every[replica]
        self.book.believed(replica, tenant, repository, session, prompt, self.time.now)
        self._warm[key] = done
        one.engine.submit(Work(key, prompt.keys, prompt.tokens, 0, priority=priority), self.time.now)
        self._arm(one)


def _guessed(tokens: int, guesses: int, accepted: float, rng: Random) -> list[int]:
    """Tokens of each step until there are enough: one of the model's own, and guesses as long as they are taken."""
    made: list[int] = []
    while tokens > 0:
        step = 1
        while step <= guesses and rng.random() < accepted:
            step += 1
        made.append(step)
        tokens -= step
    return made
