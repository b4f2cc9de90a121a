"""Requests under way at a server: asked, read, counted, stopped."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import msgspec

from foretype_backend.engines.aborted_ids import AbortLedger
from foretype_backend.engines.openai.events import Event, Events, OpenAIConfig, Reader, error_of
from foretype_backend.engines.openai.http_stream import HttpStreams, StreamedResponse
from foretype_backend.engines.openai.json_ids import JsonIds
from foretype_backend.engines.openai.same_model import SameModel
from foretype_backend.engines.openai.server import Server
from foretype_backend.engines.port import Chunk, EngineFinish, EngineStatistics, GenerationRequest
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError


@dataclass(slots=True, eq=False)
class Stream:
    """One request under way.

    Attributes:
        body, headers: what is sent.
        connecting: makes its connection, where none was free.
        answer: of the server, once it was asked.
        over: nobody wants it any more; what still comes is only counted.
        ended: done when nothing more of the answer will be read, for who waits for that.
        events, tokens, finish, end_logprob, usage: what was read of it.
        begun: text of it was given on.
        left: what its reader did not take.
        failed: what ended the reading.
        cut: enough was read, and the server goes on.
    """

    request_id: str
    body: dict[str, Any]
    events: Reader
    headers: dict[str, str] = field(default_factory=dict[str, str])
    end_token_ids: frozenset[int] = frozenset()
    connecting: asyncio.Task[StreamedResponse] | None = None
    answer: StreamedResponse | None = None
    over: bool = False
    ended: asyncio.Future[None] | None = None
    tokens: int = 0
    finish: EngineFinish | None = None
    end_logprob: float | None = None
    usage: Event | None = None
    begun: bool = False
    left: Sequence[Chunk] = ()
    failed: Exception | None = None
    cut: bool = False


class StreamingServer(Server, ABC):
    """The half of the engine port that streams."""

    restarts = 0
    reads_ids = False
    """Whether chunks carry the token ids of the answer, which the server was asked for, or its text."""

    def __init__(self, config: OpenAIConfig, *, shared: bool) -> None:
        super().__init__(config, shared=shared)
        self._same = SameModel(self._listed, config.url, time.monotonic)
        self._live: dict[str, Stream] = {}
        self._ledger = AbortLedger()
        self._json_ids = JsonIds()
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._generated_tokens = 0
        self._tokens_after_cancel = 0

    @abstractmethod
    async def _listed(self) -> list[str]:
        """Models that the server names now."""

    @abstractmethod
    def _stream_body(self, request: GenerationRequest) -> dict[str, Any]:
        """What is sent. Raises PromptRefusedError."""

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        await self.keep_apart()
        if self.scrapes:  # else a pool looks at its servers itself
            await self._same.check(self._model)
        request_id, deadline = request.id, request.deadline
        if request_id in self._live:
            raise ValueError(f"request id {request_id!r} is already running; ids must be unique")
        if self._ledger.begin(request_id) or (deadline is not None and deadline < asyncio.get_running_loop().time()):
            self._ledger.end(request_id)
            yield Chunk(finish=EngineFinish.ABORTED)
            return
        self._asked()
        stream = Stream(request_id, self._stream_body(request), self._reader(request))
        stream.end_token_ids = request.params.end_token_ids
        if request.traceparent:
            stream.headers["traceparent"] = request.traceparent
        self._address(stream, request)
        self._live[request_id] = stream
        whole = False
        try:
            answer = await self._ask(stream, request.take)
            chunks = stream.left
            while not whole:
                for chunk in chunks or self._chunks(stream, await answer.read()):
                    whole = chunk.finish is not None
                    if not (stream.over and self._only_counted(chunk)):
                        yield chunk
                chunks = ()
        except (httpx.HTTPError, EngineUnavailableError, PromptRefusedError) as error:
            if not stream.over:
                self._drop(stream)
                told = error_of(self._url, error) if isinstance(error, httpx.HTTPError) else error
                if isinstance(told, EngineUnavailableError) and told.fault in (Fault.LOST, Fault.CERTIFICATE):
                    self._salting.forget()
                    self._same.lost()
                raise told from None
            yield self._end(EngineFinish.ABORTED)
        finally:
            del self._live[request_id]
            self._ledger.end(request_id)
            await self._let_go(stream, whole=whole)

    def abort(self, request_id: str) -> None:
        stream = self._live.get(request_id)
        if stream is None:
            self._ledger.aborted(request_id)
        elif not stream.over:
            stream.over = True
            self._stop(stream)

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(
            running=len(self._live),
            waiting=0,
            restarts=self.restarts,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            generated_tokens=self._generated_tokens,
            tokens_after_cancel=self._tokens_after_cancel,
        )

    def _reader(self, request: GenerationRequest) -> Reader:
        """Of one answer."""
        return Events(self._url)

    def _address(self, stream: Stream, request: GenerationRequest) -> None:
        """Adds what the protocol has no field for: whose cache it is."""
        if self._shared:
            stream.body["cache_salt"] = self._salt(request.salt)

    async def _ask(self, stream: Stream, take: Callable[[Chunk], bool] | None) -> StreamedResponse:
        """Send it, on a connection that is free or on a new one; returns with what follows the head of the answer, or what was not taken of it."""
        streams = self._asked()
        request = streams.request(msgspec.json.encode(stream.body), stream.headers)
        piece = None if take is None else partial(self._took, stream, take)
        kept = streams.kept()
        stream.answer = kept or await self._connect(stream, streams)
        try:
            await stream.answer.ask(request, piece)
        except httpx.RemoteProtocolError:
            # A server may close a connection that is kept whenever it likes: llama.cpp's does behind every streamed answer.
            if kept is None or kept.began or stream.over:
                raise
            stream.answer = None
            stream.answer = await self._connect(stream, streams)
            await stream.answer.ask(request, piece)
        if stream.answer.status >= 400:
            raise self._refused(self._url, stream.answer.status, await stream.answer.text())
        if stream.failed is not None:
            raise stream.failed
        return stream.answer

    def _took(self, stream: Stream, take: Callable[[Chunk], bool], data: bytes) -> bool:
        """What came, as it comes; false when its reader does not take the next chunk as well."""
        try:
            chunks = self._chunks(stream, data)
            for at, chunk in enumerate(chunks):
                if stream.over and self._only_counted(chunk):
                    continue
                if chunk.finish is not None or not take(chunk):
                    stream.left = chunks[at:]
                    return False
        except Exception as error:  # noqa: BLE001 - ours or the server's: whoever waits for the answer raises it, not the parser that calls
            stream.failed = error
            return False
        return True

    def _only_counted(self, chunk: Chunk) -> bool:
        """Of a request that was given up at a chunk that came together with this one: true of any but the last."""
        if chunk.finish is None:
            self._tokens_after_cancel += len(chunk.token_ids) or 1
        return chunk.finish is None

    async def _connect(self, stream: Stream, streams: HttpStreams) -> StreamedResponse:
        connecting = stream.connecting = asyncio.create_task(streams.connect(), name=f"openai {stream.request_id}")
        try:
            # Not the task itself: an abort that ends it is no cancellation of who asks.
            await asyncio.wait([connecting])
        finally:
            connecting.cancel()
        if not connecting.cancelled():
            answer = connecting.result()
            if not stream.over:
                return answer
            answer.abort()  # the abort came in the moment in which it was there
        raise EngineUnavailableError("aborted")

    def _stop(self, stream: Stream) -> None:
        """Make the server stop at once: closing the connection aborts the request. Idempotent."""
        if stream.answer is not None:
            stream.answer.abort()
        elif stream.connecting is not None:
            stream.connecting.cancel()

    def _drop(self, stream: Stream) -> None:
        """The answer is of no use; its connection may be, where nothing is left to come."""
        answer, stream.answer = stream.answer, None
        if answer is not None:
            answer.close()

    async def _let_go(self, stream: Stream, *, whole: bool) -> None:
        """Nobody reads it any more; returns when nothing of it is left here.

        Args:
            whole: its last chunk was read, and what is left of the answer comes at once.
        """
        answer = stream.answer
        if answer is None:
            stream.over = True
            self._stop(stream)
            return
        try:
            if not whole and (here := answer.here()):  # it came before anybody was told to stop
                whole = any(chunk.finish for chunk in self._chunks(stream, here))
            if not whole:
                stream.over = True
                self._stop(stream)
            while not whole:
                whole = bool(self._chunks(stream, await answer.read()))
        except (httpx.HTTPError, EngineUnavailableError):
            pass  # nobody waits for it
        finally:
            if whole and not stream.cut:
                answer.leave()
            else:
                answer.close()
            if stream.ended is not None and not stream.ended.done():
                stream.ended.set_result(None)

    def _chunks(self, stream: Stream, data: bytes) -> list[Chunk]:
        """What came, up to the event that says its last; of what is over nothing but that. Nothing comes at the end of the answer."""
        found: list[Chunk] = []
        for event in stream.events.feed(data):
            self._count(stream, event)
            if event.finish is not None:
                stream.finish = event.finish
            if stream.over:
                self._tokens_after_cancel += event.tokens
            elif (piece := self._piece(stream, event)) is not None:
                found.append(piece)
            if event.last or (stream.finish is not None and not self._features.usage):
                stream.cut = event.cut
                usage = stream.usage or event
                end = self._last(stream, usage.cached_tokens)
                counts = {"prompt_tokens": usage.prompt_tokens, "generated_tokens": usage.generated_tokens}
                return [*found, msgspec.structs.replace(end, **counts)]
        if data:
            return found
        if stream.finish is None:
            told = f"{self._url}: the stream ended without a finish reason; retry"
            raise EngineUnavailableError(told, fault=Fault.GARBAGE)
        return [*found, self._last(stream)]

    def _last(self, stream: Stream, cached_tokens: int | None = None) -> Chunk:
        finish = EngineFinish.ABORTED if stream.over else stream.finish or EngineFinish.END_TOKEN
        end = self._end(finish, cached_tokens)
        return end if stream.end_logprob is None else msgspec.structs.replace(end, end_logprob=stream.end_logprob)

    def _piece(self, stream: Stream, event: Event) -> Chunk | None:
        """What an event says of the output; None where it says nothing."""
        if self.reads_ids:
            ids, logprobs = event.token_ids, event.logprobs
            for at, token_id in enumerate(ids):
                if token_id in stream.end_token_ids:  # vLLM delivers the id that ended it
                    stream.end_logprob = logprobs[at] if at < len(logprobs) else None
                    ids, logprobs = ids[:at], logprobs[:at]
                    break
            return Chunk(token_ids=ids, logprobs=logprobs) if ids else None
        if not event.text:
            return None
        cached, stream.begun = None if stream.begun or stream.usage is None else stream.usage.cached_tokens, True
        return Chunk(text=event.text, logprobs=event.logprobs, cached_tokens=cached)

    def _end(self, finish: EngineFinish, cached_tokens: int | None = None) -> Chunk:
        return Chunk(text=None if self.reads_ids else "", finish=finish, cached_tokens=cached_tokens)

    def _count(self, stream: Stream, event: Event) -> None:
        """Counts come with the first event, or with the last, or twice."""
        stream.tokens += event.tokens
        self._generated_tokens += event.tokens
        if event.prompt_tokens is None:
            return
        if stream.usage is None:
            self._prompt_tokens += event.prompt_tokens
            self._cached_tokens += event.cached_tokens or 0
        if event.generated_tokens is not None:
            self._generated_tokens += event.generated_tokens - stream.tokens
            stream.tokens = event.generated_tokens
        stream.usage = event

    async def _hang_up(self) -> None:
        await self._same.close()
        await super()._hang_up()
