"""Where answers come from: a real gateway on a real event loop, or a simulation that needs none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from random import Random
from typing import Self, TypeVar

import msgspec
from foretype_client.adaptive.candidates import CopyLine
from foretype_client.session.session import EditAnswer
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.segments import Kind, Segment
from foretype_context.syntax.document import Document
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_models.artifacts import locate
from foretype_wire.messages import Complete, NextEdit, Profile

from foretype_eval.gateway import Connected, GatewayOptions, connected
from foretype_eval.replay.trace import Answer, LatencyTrace, MeasuredGateway, SimulatedGateway, measure
from foretype_eval.replay.virtual import VirtualLoop

T = TypeVar("T")


class LiveGateway:
    """The real connection, on a real event loop in a thread of its own."""

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="foretype replay", daemon=True)
        self._stack = contextlib.AsyncExitStack()

    def __enter__(self) -> Self:
        self._thread.start()
        self.connected: Connected = self._call(self._stack.enter_async_context(connected(self._options)))
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def profile(self) -> Profile:
        return self.connected.profile

    def assembler(self, layout: str | None) -> Assembler:
        return self.connected.assembler(layout=layout)

    def gateway(self, loop: VirtualLoop, trace: LatencyTrace | None, rng: Random) -> MeasuredGateway:
        return MeasuredGateway(self.ask, self.profile, loop, trace=trace)

    def ask(self, call: Complete[Segment]) -> concurrent.futures.Future[Answer]:
        return asyncio.run_coroutine_threadsafe(measure(self.connected.session, call), self._loop)

    def next_edit(self, call: NextEdit) -> EditAnswer:
        """What its model of next edits says. Raises RequestRefusedError, GatewayGoneError."""
        return self._call(self.connected.session.next_edit(call))

    def _call(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class Simulator:
    """Prompts as for the shipped model, answers from the copy-line predictor over the prompt: for sweeps."""

    def __init__(self, tokenizer: Tokenizer, profile: Profile, trace: LatencyTrace) -> None:
        self._tokenizer = tokenizer
        self.profile = profile
        self._trace = trace

    @classmethod
    def make(cls, trace: LatencyTrace) -> Self:
        artifact = locate()
        tokenizer = load_tokenizer(artifact.tokenizer_path)
        profile = Profile(model="copy-line", grammar=artifact.grammar, tokenizer_digest=tokenizer.digest)
        return cls(tokenizer, profile, trace)

    def assembler(self, layout: str | None) -> Assembler:
        profile = self.profile if layout is None else msgspec.structs.replace(self.profile, layout=layout)
        return Assembler(self._tokenizer, profile)

    def gateway(
        self,
        loop: VirtualLoop,
        trace: LatencyTrace | None,
        rng: Random,
        predict: Callable[[Complete[Segment]], str] | None = None,
    ) -> SimulatedGateway:
        return SimulatedGateway(predict or copy_line_of, self.profile, loop, trace=trace or self._trace, rng=rng)


def copy_line_of(call: Complete[Segment]) -> str:
    """What the copy-line predictor says to a prompt: it sees the prompt's own text alone, as a model would."""
    parts = {kind: "".join(s.text for s in call.segments if s.kind is kind) for kind in Kind}
    left = parts[Kind.PREFIX] + parts[Kind.MIDDLE]
    right = parts[Kind.TAIL] + "\n" + parts[Kind.SUFFIX]
    snapshot = Document(call.document, left + right, language="plaintext").snapshot()
    found = CopyLine().suggest(snapshot, len(left))
    return found.text if found is not None else ""
