"""A server over HTTP, as an engine sees it: what is asked of it now and then, the connections of its streams, and what its faults mean."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import httpx
from foretype_context.authorities import trusted

from foretype_backend.engines.openai.events import OpenAIConfig, ServerFeatures, error_of, status_error
from foretype_backend.engines.openai.http_stream import HttpStreams
from foretype_backend.engines.openai.server_name import ServerName, named_transport
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError


class HttpServer:
    """One server: how it is reached, and what was found out of it.

    Args:
        config: how to reach it.
    """

    path: ClassVar[str] = "completions"
    """Where streams are asked for."""

    remote: ClassVar[bool] = True
    """It is a server, whose messages are for the operator."""

    def __init__(self, config: OpenAIConfig) -> None:
        self._config = config
        self._starting = False
        self._client: httpx.AsyncClient | None = None  # for what is asked now and then
        self._streams: HttpStreams | None = None
        self._server_name: ServerName | None = None
        self._model = config.model or ""
        self._features = ServerFeatures()
        self._context_limit_tokens = config.context_limit_tokens

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
