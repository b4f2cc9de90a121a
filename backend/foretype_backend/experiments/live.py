"""Experiments on one gateway: who sees what now, told to clients by their profile, and the one gateway that decides for all.

What runs comes with the directory of tenants and keys: while its store is away the last one counts, and its age says so. Blocks begin by
this gateway's clock. Which gateway looks at the guardrails is a lease in the store; each says there what it sees of its own clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from foretype_context.prompt.profile import Profile
from foretype_wire.messages import Hello
from foretype_wire.redaction import log_fault
from foretype_wire.tasks import end_tasks

from foretype_backend.admission.degradation import profile_at
from foretype_backend.errors import EntryError, StoreError, VariantError
from foretype_backend.experiments.assign import Arm, LeftOut, Person, ToldArm, block_at
from foretype_backend.experiments.experiment import Experiment, arm_of
from foretype_backend.experiments.store import ExperimentStore, Seen, readable
from foretype_backend.experiments.variants import applied
from foretype_backend.identity.directory import Directory, Principal
from foretype_backend.telemetry.intake import safe_name

if TYPE_CHECKING:
    from foretype_backend.telemetry.store import Store

_log = logging.getLogger("foretype.gateway")

TURN_S: Final = 1.0
SAY_MS: Final = 10_000
LEASE_MS: Final = 30_000
LOOK_MS: Final = 60_000
_GOODBYE_S: Final = 1.0
_KEPT: Final = 256


class Follower(Protocol):
    """A connection."""

    @property
    def arm(self) -> Arm | LeftOut | None: ...


class LiveExperiments:
    """See the module.

    Args:
        name: of this process among all gateways.
        wall_ms: Unix milliseconds.
        telemetry: opens the store that clients report to; None where this gateway keeps none, so that nothing is measured here.
    """

    def __init__(
        self,
        store: ExperimentStore,
        *,
        name: str,
        wall_ms: Callable[[], int],
        telemetry: Callable[[], Awaitable[Store]] | None = None,
    ) -> None:
        self.leads = False
        self.looked_ms = 0
        """When this gateway looked at guardrails last; 0 for never, and where another one does."""
        self._store = store
        self._name = name
        self._wall_ms = wall_ms
        self._telemetry = telemetry
        self._running: tuple[Experiment, ...] = ()
        self._rows: Any = ()
        self._tenants: Collection[str] = ()
        self._blocks: dict[str, int] = {}
        self._errors: dict[str, str] = {}
        self._alone_ms: dict[str, int] = {}
        self._made: dict[tuple[str, str, int, str], tuple[Profile, Profile]] = {}
        self._said_ms = 0
        self._layouts: Collection[str] = ()
        self._pools: Collection[str] = ("fast",)
        self._profile: Callable[[], Profile] | None = None
        self._followers: Callable[[], Iterable[Follower]] = tuple
        self._tell: Callable[[], None] = lambda: None
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> tuple[str, ...]:
        """Names of experiments, as they are known here."""
        return tuple(one.name for one in self._running)

    def attach(
        self,
        *,
        profile: Callable[[], Profile],
        layouts: Collection[str],
        pools: Collection[str],
        followers: Callable[[], Iterable[Follower]],
        tell: Callable[[], None],
    ) -> None:
        """Put in front of the stream door.

        Args:
            profile: without any experiment.
            layouts: of the model's grammar.
            pools: that requests may go to.
            followers: every connection that has said hello.
            tell: tells each of them its profile, where that changed.
        """
        self._profile, self._layouts, self._pools = profile, layouts, pools
        self._followers, self._tell = followers, tell

    def follow(self, directory: Directory) -> None:
        """What runs may have changed; on the event loop."""
        self._tenants = frozenset(directory.tenants)
        if directory.experiments == self._rows:
            return
        self._rows = directory.experiments
        found = [(row.name, readable(row)) for row in directory.experiments]
        for name, one in found:
            if one is None:
                _log.warning("experiment %s was written by a newer Foretype: nobody here takes part in it", name)
        self._running = tuple(one for _, one in found if one is not None)
        self._check()
        self._made.clear()
        self._said_ms = 0  # others wait to hear of it
        self._blocks = self._now_blocks()
        self._tell()

    def told(self, profile: Profile, plain: Profile, principal: Principal, hello: Hello) -> ToldArm:
        """What one client is told now.

        Args:
            profile: of the full service.
            plain: what it is told without an experiment; budgets of a variant shrink with its service like all others.
        """
        if not self._running:
            return ToldArm(plain)
        service = plain.service
        user = principal.user or hello.user
        person = Person(principal.tenant, principal.team, safe_name(user) if user else "")
        arm = arm_of(self._running, person, frozenset(hello.knobs), self._wall_ms())
        if arm is None or arm.experiment in self._errors:
            return ToldArm(plain)
        if self._telemetry is None:
            arm = LeftOut(arm.experiment, ("telemetry",))
        if isinstance(arm, LeftOut):
            return ToldArm(plain, arm)
        key = (arm.experiment, arm.variant, arm.block, service.value)
        known = self._made.get(key)
        if known is None or known[0] is not profile:
            if len(self._made) >= _KEPT:
                self._made.clear()
            try:
                known = self._made[key] = profile, profile_at(self._profile_of(profile, arm), service)
            except VariantError as error:  # the configuration has changed since it was checked
                self._errors[arm.experiment] = f"variant {arm.variant}: {error}"
                return ToldArm(plain)
        return ToldArm(known[1], arm, arm.knobs.pool)

    def turn(self) -> bool:
        """Look at the clock; True where a block has ended, and everybody was told."""
        blocks = self._now_blocks()
        if blocks == self._blocks:
            return False
        self._blocks = blocks
        self._tell()
        return True

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="foretype experiments")

    async def close(self) -> None:
        await end_tasks(self._task)
        if self.leads:
            with contextlib.suppress(StoreError, TimeoutError):  # then its lease runs out
                async with asyncio.timeout(_GOODBYE_S):
                    await self._store.resign(self._name)

    async def decide(self) -> None:
        """Say what is seen here, and decide for all where that is this gateway's part. Raises StoreError."""
        now_ms = self._wall_ms()
        if now_ms - self._said_ms >= SAY_MS:
            self.leads = bool(self._running) and await self._store.lead(self._name, now_ms, LEASE_MS)
            for one in self._running:
                await self._store.saw(one.name, self.seen(one.name))
            self._said_ms = now_ms
        if self.leads and now_ms - self.looked_ms >= LOOK_MS:
            await self.look()
            self.looked_ms = now_ms

    def seen(self, name: str) -> Seen:
        """What this gateway sees of an experiment."""
        now_ms = self._wall_ms()
        followed, missing, left_out = 0, dict[str, int](), 0
        for one in self._followers():
            arm = one.arm
            if arm is None or arm.experiment != name:
                continue
            if isinstance(arm, Arm):
                followed += 1
                continue
            left_out += 1
            for knob in arm.missing:
                missing[knob] = missing.get(knob, 0) + 1
        since_ms = 0
        if left_out and not followed:
            since_ms = self._alone_ms.setdefault(name, now_ms)
        else:
            self._alone_ms.pop(name, None)
        return Seen(self._name, now_ms, followed, left_out, missing, self._errors.get(name, ""), since_ms)

    async def look(self) -> None:
        """At every experiment that runs: its guardrails, its plan, and whether it can go on at all. Raises StoreError."""
        from foretype_backend.experiments import judge
        from foretype_backend.experiments.results import rows_of

        for one in self._running:
            now_ms = self._wall_ms()
            stop = judge.problem(one, self._tenants, await self._store.seen(one.name), now_ms)
            if stop is None and self._telemetry is not None:
                rows = await rows_of(await self._telemetry(), one, now_ms)
                findings = await asyncio.to_thread(judge.judge_guardrails, one, rows)
                await self._store.noted(one.name, findings, now_ms)
                stop = judge.to_stop(one, rows, findings, now_ms)
            if stop is not None:
                _log.warning("experiment %s stops itself: %s", one.name, stop.reason)
                # Of an experiment that somebody stopped meanwhile there is nothing left to say.
                with contextlib.suppress(EntryError):
                    await self._store.stop(one.name, now_ms, reason=stop.reason, by=stop.by, version=one.version)

    def _check(self) -> None:
        """Which of them this gateway cannot do."""
        errors: dict[str, str] = {}
        for one in self._running:
            for variant in one.spec.variants:
                if self._profile is None:
                    continue
                try:
                    applied(self._profile(), variant.knobs, layouts=self._layouts, pools=self._pools)
                except VariantError as error:
                    errors[one.name] = f"variant {variant.name}: {error}"
                    _log.warning("experiment %s cannot be applied here: %s", one.name, errors[one.name])
        self._errors = errors

    def _profile_of(self, profile: Profile, arm: Arm) -> Profile:
        changed = applied(profile, arm.knobs, layouts=self._layouts, pools=self._pools)
        return msgspec.structs.replace(changed, experiment=arm.experiment, variant=arm.variant, block=arm.block)

    def _now_blocks(self) -> dict[str, int]:
        now_ms = self._wall_ms()
        return {one.name: block_at(now_ms, one.spec.block_hours) for one in self._running}

    async def _run(self) -> None:
        while True:
            try:
                self.turn()
                await self.decide()
                self._failing = False
            except StoreError as error:
                if not self._failing:
                    told = "the last known assignment serves, guardrails wait"
                    _log.warning("experiments: %s; %s", error, told)
                self._failing = True
            except Exception as error:  # noqa: BLE001 - the clock must outlive any fault: without it no block ends
                log_fault(_log, "looking at experiments failed", error)
            await asyncio.sleep(TURN_S)
