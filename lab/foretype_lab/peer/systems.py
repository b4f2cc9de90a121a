"""The systems that are compared, each made on the loop that it will be typed on: its client, its server, its requests."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import psutil
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.flow.cache import CompletionCache
from foretype_client.flow.flow import CompletionFlow, FlowOptions
from foretype_client.flow.inflight import AnswerRules
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Policy, PolicyOptions
from foretype_client.ports import CompletionStream, Gateway
from foretype_client.session.session import Session
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.segments import Segment
from foretype_eval.gateway import GatewayOptions, connected
from foretype_eval.replay.answer_sources import LiveGateway
from foretype_eval.replay.virtual import VirtualLoop
from foretype_wire.messages import ChangeReason, Complete, Delta, Done, Profile

from foretype_lab.peer.assistants import CountingGateway, ForetypeAssistant, LlamaVimAssistant, RequestRow, row_of
from foretype_lab.peer.clocks import Clock
from foretype_lab.peer.llama_server import LlamaServer
from foretype_lab.peer.llama_vim import LlamaVimOptions
from foretype_lab.peer.options import PeerOptions
from foretype_lab.peer.single_asks import CONTINUE, SingleAsks

SERVER_ARGUMENTS: Final = ("--batch-size", "1024", "--ubatch-size", "1024", "--ctx-size", "0", "--cache-reuse", "256")
"""What `llama-server --fim-qwen-1.5b-default` sets, the plugin's own recipe for small models."""
LLAMA_VSCODE: Final = LlamaVimOptions(first_predict_ms=500, t_max_predict_ms=500, retry_ms=150, top_p=0.99)
"""What differs in llama.vscode at commit 3938fb3 (2026-08-19); one answer is asked for, not its three."""


class System(NamedTuple):
    """A client that can be typed through, and a row for each request that it made.

    `peer`: version of the other product's server; empty for ours.
    """

    assistant: LlamaVimAssistant | SingleAsks | ForetypeAssistant
    rows: Callable[[], list[RequestRow]]
    peer: str = ""


@asynccontextmanager
async def made(name: str, loop: Clock, options: PeerOptions) -> AsyncGenerator[System]:
    """The system of this name, from its server's start to its stop.

    Raises:
        LlamaServerError: the peer is not built, or failed.
        GatewayGoneError, OSError: our gateway could not be started.
    """
    rng = random.Random(options.seed)
    if name.startswith("foretype"):
        async with _gateway(loop, options) as (gateway, planner, rows):
            local = AdaptiveModel() if name == "foretype" else None
            yield System(_foretype(gateway, planner, loop, options, local, rng), rows)
        return
    with LlamaServer(options.model, threads=options.threads, arguments=SERVER_ARGUMENTS) as server:
        assistant = (
            SingleAsks(server, loop, CONTINUE)
            if name == "continue"
            else LlamaVimAssistant(server, loop, rng=rng, options=LLAMA_VSCODE if name == "llama_vscode" else None)
        )
        yield System(assistant, lambda: assistant.rows, server.version)


Opened = tuple[Gateway, Assembler, Callable[[], list[RequestRow]]]


@asynccontextmanager
async def _gateway(loop: Clock, options: PeerOptions) -> AsyncGenerator[Opened]:
    told = GatewayOptions(model=options.gguf)
    if isinstance(loop, VirtualLoop):
        with LiveGateway(told) as side:
            counting = CountingGateway(side.ask, side.profile, loop)
            yield counting, side.assembler(options.layout), lambda: counting.rows
        return
    async with connected(told) as side:
        live = CountedSession(side.session, loop.time)
        yield live, side.assembler(layout=options.layout), lambda: live.rows


def _foretype(
    gateway: Gateway,
    planner: Assembler,
    loop: Clock,
    options: PeerOptions,
    local: AdaptiveModel | None,
    rng: random.Random,
) -> ForetypeAssistant:
    flow = CompletionFlow(
        gateway,
        lambda _: planner,
        clock=loop.time,
        policy=Policy(PolicyOptions(debounce_ms=options.debounce_ms, switches=Switches().switched(on=options.with_))),
        cache=CompletionCache(),
        local=local,
        rng=rng,
        # As every editor that is told of growth; llama.vim never redraws.
        options=FlowOptions(answer=AnswerRules.growing()),
    )
    return ForetypeAssistant(flow, loop.time)


class CountedSession:
    """A session on the clock on the wall, with a row for each request that ended."""

    def __init__(self, session: Session, clock: Callable[[], float]) -> None:
        self._session = session
        self._clock = clock
        self.rows: list[RequestRow] = []

    @property
    def profile(self) -> Profile | None:
        return self._session.profile

    @property
    def connected(self) -> bool:
        return self._session.connected

    def complete(self, call: Complete[Segment]) -> CompletionStream:
        return _Counted(self._session.complete(call), call, self._clock, self.rows)

    def changed(self, documents: Sequence[str], reason: ChangeReason) -> None:
        self._session.changed(documents, reason)


class _Counted:
    def __init__(
        self, stream: CompletionStream, call: Complete[Segment], clock: Callable[[], float], rows: list[RequestRow]
    ) -> None:
        self._stream = stream
        self._call = call
        self._clock = clock
        self._rows = rows
        self._sent_s = clock()

    @property
    def id(self) -> str:
        return self._stream.id

    def cancel(self) -> None:
        self._stream.cancel()

    async def __aiter__(self) -> AsyncIterator[Delta | Done]:
        began, first_ms = time.perf_counter(), None
        async for item in self._stream:
            elapsed_ms = (time.perf_counter() - began) * 1000
            if isinstance(item, Done):
                self._rows.append(row_of(self._call, self._sent_s, first_ms, elapsed_ms, item.usage))
            elif first_ms is None:
                first_ms = elapsed_ms
            yield item


class Processor:
    """Processor seconds of this process, which is the client, and of those that it started, the servers, since it was made."""

    def __init__(self) -> None:
        self._client = psutil.Process()
        self._servers = self._client.children(recursive=True)
        self._before = self._used_s()

    def spent_s(self) -> tuple[float, float]:
        client, servers = self._used_s()
        return client - self._before[0], servers - self._before[1]

    def _used_s(self) -> tuple[float, float]:
        return sum(self._client.cpu_times()[:2]), sum(sum(one.cpu_times()[:2]) for one in self._servers)
