"""Any server that speaks OpenAI's completion interface, as an engine: vLLM, llama.cpp, TGI, a gateway of our own.

What the server understands is found out when the engine starts, with requests for one token each: prompts as token ids, log
probabilities, token counts of a stream, stop ids. Where token ids are refused the text is sent and counts are not exact.

Where more than one tenant reaches it every request has a salt, and none is sent before the server was seen to keep salts apart: at
the start, and again when it was lost or is another process (:mod:`foretype_backend.engines.salting`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import msgspec

from foretype_backend.engines.aborted_ids import AbortLedger
from foretype_backend.engines.openai.events import (
    Event,
    Events,
    OpenAIConfig,
    Reader,
    ServerFeatures,
    error_of,
    status_error,
)
from foretype_backend.engines.openai.http_stream import HttpStreams, StreamedResponse
from foretype_backend.engines.openai.model_list import pick_model
from foretype_backend.engines.openai.same_model import SameModel
from foretype_backend.engines.port import Capabilities, Chunk, EngineFinish, EngineStatistics, GenerationRequest, Origin
from foretype_backend.engines.prompt_limits import check_prompt
from foretype_backend.engines.salting import (
    SaltProof,
    as_text,
    as_token_ids,
    cached_tokens_of,
    prompt_lengths,
    prove_apart,
)
from foretype_backend.engines.vllm.metrics import LOOK_EVERY_S, VllmMetrics, read_metrics
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError, SaltIgnoredError

__all__ = ["OpenAIEngine", "Stream"]


@dataclass(slots=True, eq=False)
class Stream:
    """One request under way.

    Attributes:
        body, headers: what is sent.
        connecting: makes its connection, where none was free.
        answer: of the server, once it was asked.
        over: nobody wants it any more; what still comes is only counted.
        ended: done when nothing more of the answer will be read, for who waits for that.
        events, tokens, finish, usage: what was read of it.
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
    usage: Event | None = None
    cut: bool = False


class OpenAIEngine:
    """Engine port over HTTP. Chunks carry text, not token ids.

    Args:
        shared: tenants that do not trust each other reach it: each request must have a salt, and the server must keep salts apart.
        text: a prompt's ids as text in which nothing of a user's is a control token, for servers that take no ids; without it they get
            the request's own text.
    """

    path = "completions"
    """Where streams are asked for."""

    remote = True
    """It is a server, whose messages are for the operator."""

    scrapes = True
    """Whether a shared server's process is looked at by the engine itself; else :meth:`scrape` is called by the pool that owns it."""

    may_chat = False
    """Whether a model that was trained to chat is taken unasked."""

    def __init__(
        self, config: OpenAIConfig, *, shared: bool = False, text: Callable[[Sequence[int]], str] | None = None
    ) -> None:
        self._config = config
        self._shared = shared
        self._as_text = text
        self._starting = False
        self._salting = SaltProof(self._prove_salts, time.monotonic)
        self._looking: asyncio.Task[None] | None = None
        self._same = SameModel(self._listed, config.url, time.monotonic)
        self.metrics = VllmMetrics()
        self._client: httpx.AsyncClient | None = None  # for what is asked now and then
        self._streams: HttpStreams | None = None
        self._model = config.model or ""
        self._features = ServerFeatures()
        self._context_limit_tokens = config.context_limit_tokens
        self._live: dict[str, Stream] = {}
        self._ledger = AbortLedger()
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._generated_tokens = 0
        self._tokens_after_cancel = 0

    @classmethod
    def from_config(cls, **config: object) -> OpenAIEngine:
        """Make an engine from the fields of :class:`OpenAIConfig`, and the arguments."""
        own: dict[str, Any] = {name: config.pop(name) for name in ("shared", "text") if name in config}
        return cls(OpenAIConfig.of(**config), **own)

    # Life

    async def start(self) -> None:
        if self._client is not None:
            return
        self._open()
        if self._shared and self.scrapes:
            self._looking = asyncio.create_task(self._look_again(), name="the server's process")
        self._starting = True
        try:
            await self._find_model()
            self._same.seen()
            self._features = await self._probe()
            await self.keep_apart()
        except TimeoutError:
            await self._hang_up()
            remedy = "raise 'load_timeout_s', or look at the server"
            raise EngineUnavailableError(f"{self._config.url}: is still loading its model; {remedy}") from None
        except BaseException as error:
            await self._hang_up()
            if isinstance(error, PromptRefusedError):
                raise EngineUnavailableError(f"{self._config.url}: refuses a prompt of one token: {error}") from None
            raise
        finally:
            self._starting = False

    async def close(self) -> None:
        for request_id in list(self._live):
            self.abort(request_id)
        await self._hang_up()

    async def ready(self) -> None:
        await self._request("GET", "models")

    def _open(self) -> None:
        config = self._config
        headers = {} if config.authorization is None else {"authorization": config.authorization}
        timeout = httpx.Timeout(config.idle_timeout_s, connect=config.connect_timeout_s)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout, limits=limits, trust_env=False)
        self._streams = HttpStreams(
            self._client.build_request("POST", config.endpoint(self.path)),
            connect_timeout_s=config.connect_timeout_s,
            idle_timeout_s=config.idle_timeout_s,
        )

    async def keep_apart(self) -> None:
        """Returns at once where the engine has one tenant, else when the server is known to keep salts apart.

        Raises:
            SaltIgnoredError: it does not.
            EngineUnavailableError: it is away.
        """
        if self._shared:
            await self._salting.hold()

    async def _prove_salts(self) -> None:
        await self.scrape()
        for model in self._models():
            ask = functools.partial(self._ask_salted, model)
            lengths = prompt_lengths(self.metrics.block_tokens, self._context_limit_tokens)
            await prove_apart(ask, lengths, self._config.url)

    def _models(self) -> tuple[str, ...]:
        """Whatever requests may name."""
        return (self._model,)

    async def _ask_salted(self, model: str, prompt: Sequence[int], salt: str) -> int:
        body = self._salted_body(prompt) | {"model": model}
        try:
            reply = await self._request("POST", self.path, body | {"cache_salt": salt})
        except PromptRefusedError as error:
            try:
                await self._request("POST", self.path, body)
            except PromptRefusedError:  # whoever asks: a server of completions has no chat
                raise EngineUnavailableError(str(error), fault=Fault.ERROR) from None
            raise SaltIgnoredError(
                f"{error}; so it cannot keep tenants apart. Put `vllm serve` there, which takes `cache_salt`"
            ) from None
        return cached_tokens_of(reply, self._config.url)

    def _salted_body(self, prompt: Sequence[int]) -> dict[str, Any]:
        return self._body(as_token_ids(prompt) if self._features.token_ids else as_text(prompt), 1, {})

    async def scrape(self) -> VllmMetrics:
        """Read `/metrics`. Another process than before has everything to prove again.

        What it does not say stays as it was, but for how full its cache is: an old figure of that is wrong.
        """
        said = False
        with contextlib.suppress(httpx.HTTPError, ValueError):
            response = await self._http().get(self._config.root("/metrics"))
            if response.status_code == 200:
                before, self.metrics = self.metrics.started_s, read_metrics(response.text)
                said = True
                if before is not None and before != self.metrics.started_s:
                    self._salting.forget()
        if not said:
            self.metrics = self.metrics._replace(kv_use=None)
        return self.metrics

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.scrape()

    async def _hang_up(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        await self._same.close()
        await self._salting.close()
        self._salting.forget()
        client, self._client = self._client, None
        if self._streams is not None:
            self._streams.close()
        if client is not None:
            await client.aclose()

    async def _entries(self) -> list[dict[str, Any]]:
        models = (await self._request("GET", "models")).get("data")
        if not isinstance(models, list):
            return []
        return [cast("dict[str, Any]", m) for m in cast("list[object]", models) if isinstance(m, dict)]

    async def _listed(self) -> list[str]:
        return [str(entry.get("id")) for entry in await self._entries()]

    async def _find_model(self) -> None:
        entries = await self._entries()
        names = [str(m.get("id")) for m in entries]
        if names and not self._model and self.may_chat:
            self._model = names[0]
        self._model = pick_model(names, self._model or None, self._config.url)
        limit = next((m.get("max_model_len") for m in entries if m.get("id") == self._model), None)
        if isinstance(limit, int) and limit > 0:
            self._context_limit_tokens = min(limit, self._context_limit_tokens)

    async def _probe(self) -> ServerFeatures:
        """What the server understands, asked one by one: servers refuse what they do not know in different words."""
        send_ids = self._config.send_token_ids
        if send_ids is None:
            await self._refuse_ollama()
            send_ids = _read_as_ids(await self._accepts({"prompt": [1]}))
        prompt: Any = [1] if send_ids else "a"
        await self._request("POST", "completions", self._body(prompt, 1, {}))
        reply = await self._accepts({"prompt": prompt, "logprobs": 1})
        return ServerFeatures(
            token_ids=send_ids,
            logprobs=bool(reply) and bool(_first_choice(reply).get("logprobs")),
            usage=bool(
                await self._accepts({"prompt": prompt, "stream": True, "stream_options": {"include_usage": True}})
            ),
            stop_token_ids=bool(await self._accepts({"prompt": prompt, "stop_token_ids": [0]})),
        )

    async def _refuse_ollama(self) -> None:
        with contextlib.suppress(httpx.HTTPError, ValueError):
            said: object = (await self._http().get(self._config.root("/api/version"))).json()
            if isinstance(said, dict) and set(cast("dict[str, object]", said)) == {"version"}:
                raise EngineUnavailableError(
                    f"{self._config.url}: is an Ollama, whose /v1 puts prompts into a chat template; use `--engine ollama`"
                )

    async def _accepts(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request with these fields; empty where the server refuses them."""
        try:
            return await self._request("POST", "completions", self._body(fields.pop("prompt"), 1, fields))
        except PromptRefusedError:
            return {}

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The reply, as JSON. `path` is a whole URL where it is not below the base."""
        url = path if "://" in path else self._config.endpoint(path)
        config = self._config
        idle_s = max(config.load_timeout_s, config.idle_timeout_s) if self._starting else config.idle_timeout_s
        timeout = httpx.Timeout(idle_s, connect=config.connect_timeout_s)
        try:
            response = await self._http().request(method, url, json=body, timeout=timeout)
        except httpx.HTTPError as error:
            raise error_of(url, error) from None
        if response.status_code >= 400:
            raise self._refused(url, response.status_code, response.text)
        if body is not None and body.get("stream"):
            return {"stream": True}
        try:
            reply: object = response.json()
        except ValueError:  # no JSON, or no text at all
            reply = None
        if not isinstance(reply, dict):
            told = f"{url}: does not answer with JSON; is this the base URL, up to and with /v1?"
            raise EngineUnavailableError(told, fault=Fault.GARBAGE)
        return cast("dict[str, Any]", reply)

    # Requests

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
            await self._ask(stream)
            while not whole:
                for chunk in await self._more(stream):
                    whole = chunk.finish is not None
                    yield chunk
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

    def _reader(self, request: GenerationRequest) -> Reader:
        """Of one answer."""
        return Events(self._url)

    @property
    def _url(self) -> str:
        return self._config.endpoint(self.path)

    def _address(self, stream: Stream, request: GenerationRequest) -> None:
        """Adds what the protocol has no field for: whose cache it is."""
        if self._shared:
            stream.body["cache_salt"] = self._salt(request.salt)

    def _salt(self, salt: str | None) -> str:
        if not salt:
            raise PromptRefusedError("tenants share the engine and the request has no cache salt; configure identities")
        return salt

    async def _ask(self, stream: Stream) -> None:
        """Send it, on a connection that is free or on a new one; returns with the head of the answer."""
        streams = self._asked()
        request = streams.request(msgspec.json.encode(stream.body), stream.headers)
        stream.answer = streams.kept() or await self._connect(stream, streams)
        await stream.answer.ask(request)
        if stream.answer.status >= 400:
            raise self._refused(self._url, stream.answer.status, await stream.answer.text())

    def _refused(self, url: str, status: int, text: str) -> EngineUnavailableError | PromptRefusedError:
        """What an answer with a status of 400 or more means."""
        return status_error(url, status, text)

    async def _connect(self, stream: Stream, streams: HttpStreams) -> StreamedResponse:
        connecting = stream.connecting = asyncio.create_task(streams.connect(), name=f"openai {stream.request_id}")
        try:
            return await connecting
        except asyncio.CancelledError:
            if stream.over and connecting.cancelled():
                raise EngineUnavailableError("aborted") from None
            raise

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
        if not whole:
            stream.over = True
            self._stop(stream)
        if answer is None:
            return
        try:
            with contextlib.suppress(httpx.HTTPError, EngineUnavailableError):
                while not whole:
                    whole = bool(await self._more(stream))
        finally:
            if whole and not stream.cut:
                answer.leave()
            else:
                answer.close()
            if stream.ended is not None and not stream.ended.done():
                stream.ended.set_result(None)

    def _stream_body(self, request: GenerationRequest) -> dict[str, Any]:
        token_ids, params, prompt_text = request.token_ids, request.params, request.prompt_text
        max_tokens = check_prompt(
            token_ids, params.max_tokens, context_limit_tokens=self._context_limit_tokens, vocabulary_tokens=None
        )
        features = self._features
        if not features.token_ids and self._as_text is not None:
            prompt_text = self._as_text(token_ids)
        if not features.token_ids and prompt_text is None:
            raise PromptRefusedError(f"{self._config.url} takes no token ids and the request carries no text")
        fields: dict[str, Any] = {"stream": True, "temperature": params.temperature}
        if params.stop_strings:
            fields["stop"] = list(params.stop_strings[:4])
        if features.usage:
            fields["stream_options"] = {"include_usage": True}
        if features.logprobs:
            fields["logprobs"] = 1
        if features.stop_token_ids and params.end_token_ids:
            fields["stop_token_ids"] = sorted(params.end_token_ids)
        return self._body(list(token_ids) if features.token_ids else prompt_text, max_tokens, fields)

    def _body(self, prompt: object, max_tokens: int, fields: dict[str, Any]) -> dict[str, Any]:
        return {"model": self._model, "prompt": prompt, "max_tokens": max_tokens, **self._config.extra_body, **fields}

    async def _more(self, stream: Stream) -> list[Chunk]:
        """What came, up to the event that says its last; of what is over nothing but that. Raises what the connection raises."""
        assert stream.answer is not None
        data, found = await stream.answer.read(), list[Chunk]()
        for event in stream.events.feed(data):
            stream.tokens += event.tokens
            stream.cut = event.cut
            if stream.usage is None or event.prompt_tokens is None:  # some say it twice
                self._count(event, stream.tokens)
                stream.usage = event if event.prompt_tokens is not None else stream.usage
            stream.finish = event.finish or stream.finish
            if stream.over:
                self._tokens_after_cancel += event.tokens
            elif (piece := self._piece(stream, event)) is not None:
                found.append(piece)
            if event.last or (stream.finish is not None and not self._features.usage):
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
        return self._end(finish, cached_tokens)

    def _piece(self, stream: Stream, event: Event) -> Chunk | None:
        """What an event says of the output; None where it says nothing."""
        return Chunk(text=event.text, logprobs=event.logprobs) if event.text else None

    def _end(self, finish: EngineFinish, cached_tokens: int | None = None) -> Chunk:
        return Chunk(text="", finish=finish, cached_tokens=cached_tokens)

    def _count(self, event: Event, counted: int) -> None:
        if event.prompt_tokens is None:
            self._generated_tokens += event.tokens
            return
        self._prompt_tokens += event.prompt_tokens
        self._cached_tokens += event.cached_tokens or 0
        if event.generated_tokens is not None:
            self._generated_tokens += event.generated_tokens - counted

    def abort(self, request_id: str) -> None:
        stream = self._live.get(request_id)
        if stream is None:
            self._ledger.aborted(request_id)
        elif not stream.over:
            stream.over = True
            self._stop(stream)

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        if self._live or not self._features.token_ids:
            return
        await self.keep_apart()
        own = {"cache_salt": self._salt(salt)} if self._shared else {}
        await self._request("POST", "completions", self._body(list(token_ids), 1, own))

    # Questions

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(
            running=len(self._live),
            waiting=0,
            restarts=0,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            generated_tokens=self._generated_tokens,
            tokens_after_cancel=self._tokens_after_cancel,
        )

    def capabilities(self) -> Capabilities:
        exact = "prompts go as token ids" if self._features.token_ids else "prompts go as text (exact: false)"
        return Capabilities(
            salt=self._shared and self._salting.holds,
            priority=False,
            cached_tokens=self._features.usage,
            token_ids=False,
            logprobs=self._features.logprobs,
            context_limit_tokens=self._context_limit_tokens,
            block_tokens=self._config.block_tokens,
            model=self._model,
            notes=(
                exact,
                "queue and prefill times are not known",
                "the server decides whether end token ids are honoured",
            ),
        )

    @property
    def exact(self) -> bool:
        """Whether token counts are those of the server: true where it takes token ids."""
        return self._features.token_ids

    def __repr__(self) -> str:
        return f"<OpenAIEngine {self._config.url} {self._model!r} running={len(self._live)}>"

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            raise EngineUnavailableError(f"{self._config.url}: the engine is not started; call start() first")
        return self._client

    def _asked(self) -> HttpStreams:
        self._http()
        assert self._streams is not None  # made with the client
        return self._streams


def _read_as_ids(reply: dict[str, Any]) -> bool:
    """Whether a prompt of one id was one, or two with a start token: a server may accept a list and read it as text."""
    usage = reply.get("usage")
    counted = cast("dict[str, object]", usage).get("prompt_tokens") if isinstance(usage, dict) else None
    return bool(reply) and (not isinstance(counted, int) or counted <= 2)


def _first_choice(reply: dict[str, Any]) -> dict[str, Any]:
    choices = reply.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return cast("dict[str, Any]", choices[0])
    return {}
