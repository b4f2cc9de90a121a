"""Developers who type at a real gateway by a clock of the test's own, and tell what became of what it answered.

What a developer sees depends on the profile that the gateway sent and on nothing else: how many lines of other files go with a request is
its budget, the engine is right where as many lines came as the place needs, and the simulated model takes so long per token.
"""

import asyncio
import contextlib
import random
import re
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from backend.identity_world import NOW_MS, identity_of, minted, record, salts
from backend.telemetry_world import accept, display, event, opportunity, survive
from backend.world import Peer, World, closing, gateway, scripted, segment
from foretype_backend.config.settings import TelemetryConfig
from foretype_backend.experiments import live as live_module
from foretype_backend.experiments.experiment import Experiment, Spec, check_spec
from foretype_backend.experiments.live import LiveExperiments
from foretype_backend.experiments.store import ExperimentStore
from foretype_backend.experiments.variants import Knobs, Variant
from foretype_backend.telemetry.sink import TelemetrySink
from foretype_context.prompt.layouts import LAYOUTS
from foretype_context.prompt.profile import KNOBS
from foretype_context.prompt.segments import Kind
from foretype_wire.messages import Ack, Feedback, Hello, Profile

HOUR_MS = 3_600_000
MORNING_MS = NOW_MS - 12 * HOUR_MS  # midnight, UTC
EVERYTHING = [*KNOBS, *(f"layout.{name}" for name in LAYOUTS)]
_NEEDS = re.compile(r"needs (\d+)")
_LINE = "c = 1\n"


def answer(prompt: str) -> str:
    """Right where enough lines of other files came."""
    (needs,) = _NEEDS.findall(prompt)
    return "right()\n" if prompt.count(_LINE) >= int(needs) else "wrong()\n"


class Clock:
    """The gateway's, in Unix milliseconds."""

    def __init__(self) -> None:
        self.now_ms = MORNING_MS

    def __call__(self) -> int:
        return self.now_ms


def spec(*, treatment: Knobs | None = None, control: Knobs | None = None, **changes: Any) -> Spec:
    base = Knobs() if control is None else control
    given: dict[str, Any] = {
        "variants": (
            Variant(name="control", knobs=base),
            Variant(name="treatment", knobs=base if treatment is None else treatment),
        ),
        "salt": "0123456789abcdef",
        "planned_days": 1,
        "aa": treatment is None,
    }
    return check_spec(Spec(**(given | changes)))


class Developer:
    """One connection; `skew_ms` is how wrong its own clock is."""

    def __init__(self, peer: Peer, name: str, *, skew_ms: int = 0) -> None:
        self.peer = peer
        self.name = name
        self.profile: Profile | None = None
        self._skew_ms = skew_ms
        self._random = random.Random(name)
        self._seq = 0
        self._requests = 0
        self._batches = 0

    async def hello(self, knobs: Sequence[str] = EVERYTHING) -> None:
        await self.peer.send(Hello(v=1, client="test", user=self.name, knobs=list(knobs)))
        await self.told()

    async def told(self) -> Profile:
        """The next profile."""
        message = await self.peer.receive()
        assert isinstance(message, Profile), message
        self.profile = message
        return message

    async def work(self, clock: Clock, requests: int = 4) -> None:
        """A while at the keyboard, all of it told to the gateway."""
        profile = self.profile
        assert profile is not None
        events: list[dict[str, Any]] = []
        for _ in range(requests):
            self._requests += 1
            id = f"r{self._requests}"
            lines = profile.budgets.context_tokens // 10
            needs = self._random.randint(1, 100)
            parts = [
                segment(Kind.PATH, "", path="a.py"),
                segment(Kind.PREFIX, f"# needs {needs}\n" + _LINE * lines),
                segment(Kind.SUFFIX, "\n"),
                segment(Kind.MIDDLE, ""),
            ]
            text, done = await self.peer.answer(id, segments=parts, max_tokens=16)
            arm = {"experiment": profile.experiment, "variant": profile.variant, "block": profile.block}
            at = {"session": self.name, "t_ms": clock.now_ms + self._skew_ms, **arm}
            tokens = done.usage.prompt_tokens
            events += [opportunity(self._next(), parses=True, **at) for _ in range(5)]
            asked = {"id": id, "request_class": "interactive"}
            events.append(event("request", self._next(), prompt_tokens=tokens, **asked, **at))
            ended = {"first_ms": 20.0 + tokens / 5, "last_ms": 400.0, "finish": "stop", "generated_tokens": 4}
            events.append(event("result", self._next(), characters=len(text), **ended, **asked, **at))
            shown = f"s{self._requests}"
            events.append(display(self._next(), shown, 900.0, **at))
            if text.startswith("right"):
                events.append(accept(self._next(), shown, 10, **at))
                events.append(survive(self._next(), shown, 300, self._random.randint(6, 10), 1, **at))
        self._batches += 1
        await self.peer.send(Feedback(batch=f"b{self._batches}", events=events))
        ack = await self.peer.receive()
        assert isinstance(ack, Ack) and not ack.refused, ack

    def _next(self) -> int:
        self._seq += 1
        return self._seq


class Office:
    """A gateway with live experiments, and the developers at it."""

    def __init__(
        self, world: World, live: LiveExperiments, store: ExperimentStore, identity: Any, clock: Clock, token: str
    ) -> None:
        self.world = world
        self.live = live
        self.store = store
        self.identity = identity
        self.clock = clock
        self.developers: list[Developer] = []
        self._token = token
        self._stack = contextlib.AsyncExitStack()

    async def developer(self, name: str, *, skew_ms: int = 0, knobs: Sequence[str] = EVERYTHING) -> Developer:
        headers = {"Authorization": f"Bearer {self._token}"}
        peer = await self._stack.enter_async_context(self.world.peer(hello=None, additional_headers=headers))
        made = Developer(peer, name, skew_ms=skew_ms)
        await made.hello(knobs)
        self.developers.append(made)
        return made

    async def follow(self) -> None:
        """The gateway looks at its store now."""
        await self.identity.watch.look()

    async def hour(self) -> None:
        """Everybody works, and the block ends: the gateway tells everybody, and decides."""
        await asyncio.gather(*(one.work(self.clock) for one in self.developers))
        self.clock.now_ms += HOUR_MS
        self.live.turn()
        await self.live.decide()
        await self.follow()

    async def close(self) -> None:
        await self._stack.aclose()


@contextlib.asynccontextmanager
async def office(
    folder: Path, *, identities: str = "", events: str = "", name: str = "gateway", turn_s: float = 3600.0, **parts: Any
) -> AsyncGenerator[Office]:
    """Args: `parts` of the application, beside those that are made here; `turn_s`: how often it decides by itself."""
    clock = Clock()
    token = minted()
    identified = identity_of(identities or folder / "identity.db", poll_s=3600.0, clock=clock)
    with patch.object(live_module, "TURN_S", turn_s):
        async with identified as (identity, store):
            await store.add_key(token, record(token), NOW_MS)
            await identity.watch.look()
            config = TelemetryConfig(url=events or str(folder / "events.db"))
            sink = TelemetrySink(config, folder, clock=time.monotonic, wall_ms=clock)
            live = LiveExperiments(ExperimentStore(store), name=name, wall_ms=clock, telemetry=sink.open)
            options: dict[str, Any] = {"identity": identity, "salts": salts(), "feedback": sink, "experiments": live}
            async with gateway(scripted(answer), **options | parts) as world:
                made = Office(world, live, ExperimentStore(store), identity, clock, token.text)
                async with closing(made, live, sink):
                    yield made


async def drafted(store: ExperimentStore, name: str, made: Spec, clock: Clock, **whom: str) -> Experiment:
    whole = {"tenant": "acme", "team": ""} | whom
    return await store.create(Experiment(name, spec=made, **whole), clock.now_ms)
