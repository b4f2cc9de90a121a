"""A server over HTTP, as an engine sees it, and its tenants, whom it has to keep apart."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import httpx
from foretype_context.authorities import trusted
from foretype_wire.tasks import end_tasks

from foretype_backend.engines.openai.events import OpenAIConfig, ServerFeatures, error_of, status_error
from foretype_backend.engines.openai.http_stream import HttpStreams
from foretype_backend.engines.openai.server_name import ServerName, named_transport
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


class Server:
    """One server over HTTP, as an engine sees it: how it is reached, what is asked of it now and then, and what its faults mean.

    Args:
        shared: tenants that do not trust each other reach it: each request must have a salt, and none is sent before the server was
            seen to keep salts apart: at the start, and again when it was lost or is another process (:mod:`foretype_backend.engines.salting`).
    """

    path: ClassVar[str] = "completions"
    """Where streams are asked for."""

    remote: ClassVar[bool] = True
    """It is a server, whose messages are for the operator."""

    scrapes: ClassVar[bool] = True
    """Whether a shared server's process is looked at by the engine itself; else :meth:`scrape` is called by the pool that owns it."""

    def __init__(self, config: OpenAIConfig, *, shared: bool) -> None:
        self._config = config
        self._starting = False
        self._client: httpx.AsyncClient | None = None  # for what is asked now and then
        self._streams: HttpStreams | None = None
        self._server_name: ServerName | None = None
        self._model = config.model or ""
        self._features = ServerFeatures()
        self._context_limit_tokens = config.context_limit_tokens
        self._shared = shared
        self._salting = SaltProof(self._prove_salts, time.monotonic)
        self._looking: asyncio.Task[None] | None = None
        self.metrics = VllmMetrics()

    def _open(self) -> None:
        config = self._config
        headers = {} if config.authorization is None else {"authorization": config.authorization}
        timeout = httpx.Timeout(config.idle_timeout_s, connect=config.connect_timeout_s)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
        # Whose certificates are trusted is read from a file, which takes longer than all else that is opened here.
        tls = trusted() if config.url.startswith("https://") else False
        name = self._server_name = ServerName.of(httpx.URL(config.url))
        transport = named_transport(name, tls, limits)
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout, transport=transport, trust_env=False)
        self._streams = HttpStreams(
            self._client.build_request("POST", config.endpoint(self.path)),
            connect_timeout_s=config.connect_timeout_s,
            idle_timeout_s=config.idle_timeout_s,
            name=name,
        )

    async def _hang_up(self) -> None:
        looking, self._looking = self._looking, None
        await end_tasks(looking)
        await self._salting.close()
        self._salting.forget()
        client, self._client = self._client, None
        if self._streams is not None:
            self._streams.close()
        if client is not None:
            await client.aclose()
        if self._server_name is not None:
            await self._server_name.close()

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

    def _refused(self, url: str, status: int, text: str) -> EngineUnavailableError | PromptRefusedError:
        """What an answer with a status of 400 or more means."""
        return status_error(url, status, text)

    def _body(self, prompt: object, max_tokens: int, fields: dict[str, Any]) -> dict[str, Any]:
        return {"model": self._model, "prompt": prompt, "max_tokens": max_tokens, **self._config.extra_body, **fields}

    @property
    def _url(self) -> str:
        return self._config.endpoint(self.path)

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            raise EngineUnavailableError(f"{self._config.url}: the engine is not started; call start() first")
        return self._client

    def _asked(self) -> HttpStreams:
        self._http()
        assert self._streams is not None  # made with the client
        return self._streams

    # Tenants

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
            except PromptRefusedError:  # refused with a salt and without: it is no server of completions
                raise EngineUnavailableError(str(error), fault=Fault.ERROR) from None
            raise SaltIgnoredError(
                f"{error}; so it cannot keep tenants apart. Put `vllm serve` there, which takes `cache_salt`"
            ) from None
        return cached_tokens_of(reply, self._config.url)

    def _salted_body(self, prompt: Sequence[int]) -> dict[str, Any]:
        return self._body(as_token_ids(prompt) if self._features.token_ids else as_text(prompt), 1, {})

    def _salt(self, salt: str | None) -> str:
        if not salt:
            raise PromptRefusedError("tenants share the engine and the request has no cache salt; configure identities")
        return salt

    async def scrape(self) -> VllmMetrics:
        """Read `/metrics`. Another process than before has everything to prove again.

        What it does not say stays as it was, except how full its cache is: an old figure of that is wrong.
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
