"""A gateway whose answers are scripts of (seconds, text): what the flow meets, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from foretype_context.prompt.profile import Profile
from foretype_context.prompt.segments import Segment
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import ChangeReason, Complete, Delta, Done, Finish, Usage

PROFILE = Profile(model="test", grammar="foretype-1", tokenizer_digest="00")


@dataclass
class Script:
    """Deltas as (seconds after the former, text), then the end.

    Attributes:
        error: raised instead of the end.
        logprob: of each delta, which counts as one token.
    """

    deltas: Sequence[tuple[float, str]] = ()
    finish: Finish = Finish.END_OF_MIDDLE
    end_after_s: float = 0.0
    error: RequestRefusedError | GatewayGoneError | Exception | None = None
    logprob: float = -0.1
    usage: Usage = field(default_factory=lambda: Usage(prompt_tokens=100, cached_tokens=80))


class ScriptedStream:
    def __init__(self, call: Complete[Segment], script: Script, ended: Callable[[ScriptedStream], None]) -> None:
        self.call = call
        self.id = call.id
        self.cancels = 0
        self.ended = False
        self._script = script
        self._ended = ended
        self._stop = asyncio.Event()

    def cancel(self) -> None:
        self.cancels += 1
        self._stop.set()

    def stop(self) -> None:
        """What a gateway does with a request that a newer one supersedes."""
        self._stop.set()

    def __aiter__(self) -> AsyncIterator[Delta | Done]:
        return self._run()

    async def _run(self) -> AsyncIterator[Delta | Done]:
        script = self._script
        try:
            for seconds, text in script.deltas:
                if await self._stopped_within(seconds):
                    yield Done(id=self.id, finish=Finish.CANCELLED)
                    return
                yield Delta(id=self.id, text=text, logprob=script.logprob, tokens=1)
            if await self._stopped_within(script.end_after_s):
                yield Done(id=self.id, finish=Finish.CANCELLED)
                return
            if script.error is not None:
                raise script.error
            yield Done(id=self.id, finish=script.finish, usage=script.usage)
        finally:
            self.ended = True
            self._ended(self)

    async def _stopped_within(self, seconds: float) -> bool:
        if self._stop.is_set():
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True


class ScriptedGateway:
    """Answers each call by `answer(call)`; remembers everything that was asked of it."""

    def __init__(
        self,
        answer: Callable[[Complete[Segment]], Script] | Script | None = None,
        profile: Profile | None = PROFILE,
        *,
        connected: bool = True,
    ) -> None:
        self.answer = answer if answer is not None else Script([(0.02, "answer")])
        self.profile = profile
        self.connected = connected
        self.calls: list[Complete[Segment]] = []
        self.streams: list[ScriptedStream] = []
        self.running: set[str] = set()
        self.most_running = 0

    def complete(self, call: Complete[Segment]) -> ScriptedStream:
        self.calls.append(call)
        script = self.answer if isinstance(self.answer, Script) else self.answer(call)
        for stream in self.streams:
            if stream.id == call.supersedes:
                stream.stop()
        self.running.discard(call.supersedes or "")
        stream = ScriptedStream(call, script, lambda ended: self.running.discard(ended.id))
        self.streams.append(stream)
        self.running.add(call.id)
        self.most_running = max(self.most_running, len(self.running))
        return stream

    def changed(self, documents: Sequence[str], reason: ChangeReason) -> None:
        pass

    def given_up(self, call: Complete[Segment]) -> int:
        """How often `call` was cancelled: by itself or by the name of a newer one."""
        own = next(stream for stream in self.streams if stream.id == call.id)
        return own.cancels + sum(other.supersedes == call.id for other in self.calls)
