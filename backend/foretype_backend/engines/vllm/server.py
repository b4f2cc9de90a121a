"""One replica of `vllm serve` as an engine: token ids in, token ids out, salted and prioritised.

Beside OpenAI's protocol it speaks vLLM's own fields: `cache_salt`, `priority`, `kv_transfer_params`, `return_token_ids`. Which of
them a server understands is found out when the engine starts. A request is aborted by closing its stream; where the server has
vLLM's abort endpoint (`--enable-scale-out`), that is asked first, which keeps the connection for the next request.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, cast

import httpx

from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.engines.openai.events import OpenAIConfig, ServerFeatures, error_of
from foretype_backend.engines.openai.http_stream import StreamedResponse
from foretype_backend.engines.openai.streaming import Stream
from foretype_backend.engines.port import (
    WARM_PRIORITY,
    Capabilities,
    EngineStatistics,
    GenerationParams,
    GenerationRequest,
)
from foretype_backend.engines.prompt_limits import check_prompt
from foretype_backend.errors import EngineUnavailableError, PromptRefusedError
from foretype_backend.prefix.origin import Origin

_DRAIN_S: Final = 0.25
"""How long an aborted stream may take to end by itself; then its connection is closed."""


TransferParameters = Callable[[Origin, str], Mapping[str, Any]]
"""Origin and salt of a request to its `kv_transfer_params`; empty for none."""


class ReplicaIdentity(NamedTuple):
    """What replicas of one pool must have in common."""

    model: str
    context_limit_tokens: int
    block_tokens: int

    def __str__(self) -> str:
        return f"{self.model!r} ({self.context_limit_tokens} tokens, blocks of {self.block_tokens})"


class VllmServerEngine(OpenAIEngine):
    """Engine port over `vllm serve`.

    Args:
        shared: as of :class:`OpenAIEngine`.
        vocabulary_tokens: of the gateway's tokenizer: a server whose model has fewer is refused at start.
        transfer_parameters: what the cache tiers of the server are told of a request.
        name: of the replica; its URL where it has none.

    Raises:
        EngineUnavailableError: by :meth:`start`: the server is not there, is no vLLM, or its vocabulary is another.
    """

    aborted_as = "cmpl-{}-0"
    """What the server calls a request of ours."""
    scrapes = False
    reads_ids = True
    arguments = ("vocabulary_tokens", "transfer_parameters", "shared", "name")
    checked_with: ClassVar[str | None] = None
    """What stands beside the token id of a check, for a server that takes no ids."""
    may_chat = True  # who starts `vllm serve` names its model there

    def __init__(
        self,
        config: OpenAIConfig,
        *,
        vocabulary_tokens: int | None = None,
        transfer_parameters: TransferParameters | None = None,
        shared: bool = False,
        name: str = "",
    ) -> None:
        super().__init__(config, shared=shared)
        self._name = name
        self._ours = secrets.token_hex(4)
        """Begins the ids of this engine's requests at the server, which ends every request of an id: others count as we do."""
        self._vocabulary_tokens = vocabulary_tokens
        self._transfer_parameters = transfer_parameters
        self._priority = False
        self._abort_endpoint = False
        self._checks = 0
        self._aborting: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """What names a replica in metrics and to operators: as it is announced, else the base URL without `/v1`."""
        return self._name or self._config.url.removesuffix("/v1")

    @property
    def identity(self) -> ReplicaIdentity:
        return ReplicaIdentity(self._model, self._context_limit_tokens, self.metrics.block_tokens)

    @property
    def process(self) -> float | None:
        """Start of the server's process, where it says: another one has an empty cache."""
        return self.metrics.started_s

    @property
    def guesses(self) -> float:
        """Tokens that the server guesses per step; 0 where it does not speculate."""
        return self.metrics.guesses

    # Life

    async def _probe(self) -> ServerFeatures:
        """Refuses a server that lacks what this engine is made of; finds out the rest."""
        base = {"prompt": [1], "logprobs": 0, "cache_salt": "foretype", "return_token_ids": True, "temperature": 0.0}
        reply = await self._accepts(dict(base))
        choices: Any = reply.get("choices") or [{}]
        if not (isinstance(choices[0], dict) and choices[0].get("token_ids")):  # pyright: ignore[reportUnknownMemberType]
            return await self._without_token_ids()
        self._priority = bool(await self._accepts(base | {"priority": 1}))
        if self._vocabulary_tokens is not None and not await self._accepts(
            base | {"prompt": [self._vocabulary_tokens - 1]}
        ):
            raise EngineUnavailableError(
                f"{self._config.url}: refuses token id {self._vocabulary_tokens - 1}, which the tokenizer has; model and "
                "tokenizer do not match. Name the model's own with `[model] tokenizer`"
            )
        self._abort_endpoint = await self._post_abort(["foretype-probe"])
        await self.scrape()
        return ServerFeatures(token_ids=True, logprobs=True, usage=True, stop_token_ids=True)

    async def _without_token_ids(self) -> ServerFeatures:
        """What is left of a server that returns no token ids. Raises EngineUnavailableError: nothing."""
        raise EngineUnavailableError(
            f"{self._config.url}: returns no token ids; it is no `vllm serve` of 0.11 or newer. Use the engine "
            "`openai` for other servers"
        )

    async def check(self) -> None:
        """Two streamed tokens and the server's own figures. Raises EngineUnavailableError, also where the model is gone."""
        await self._find_model()
        self._checks += 1
        two = GenerationParams(max_tokens=2)
        id, text = f"foretype-check-{self._checks}", self.checked_with
        async for _ in self.generate(GenerationRequest(id, [1], two, salt="foretype", prompt_text=text)):
            pass
        await self.scrape()

    async def tokens_of(self, text: str) -> list[int] | None:
        """The ids of a text as the server's own tokenizer has them; None where it does not say. Raises EngineUnavailableError."""
        url = self._config.root("/tokenize")
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        try:
            response = await self._http().post(url, json=body)
            found: object = response.json().get("tokens") if response.status_code == 200 else None
        except httpx.HTTPError as error:
            raise error_of(url, error) from None
        except (ValueError, AttributeError):  # a page, or a list
            return None
        return cast("list[int]", found) if isinstance(found, list) else None

    async def close(self) -> None:
        await super().close()
        for task in list(self._aborting):
            task.cancel()

    # Requests

    def _stream_body(self, request: GenerationRequest) -> dict[str, Any]:
        params = request.params
        max_tokens = check_prompt(
            request.token_ids,
            params.max_tokens,
            context_limit_tokens=self._context_limit_tokens,
            vocabulary_tokens=self._vocabulary_tokens,
        )
        fields: dict[str, Any] = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": params.temperature,
            "logprobs": 0,  # of the chosen token alone
            "return_token_ids": True,
            "stop_token_ids": sorted(params.end_token_ids),
        }
        if params.first_of:
            fields["allowed_token_ids"] = list(params.first_of)
        if params.stop_strings:
            fields["stop"] = list(params.stop_strings[:4])
        return self._body(self._json_ids(request.token_ids, request.salt), max_tokens, fields)

    def _address(self, stream: Stream, request: GenerationRequest) -> None:
        stream.headers["X-Request-Id"] = self._known_as(stream.request_id)
        self._mark(stream.body, request)

    def _known_as(self, request_id: str) -> str:
        return f"{self._ours}-{request_id}"

    def _mark(self, body: dict[str, Any], request: GenerationRequest) -> None:
        if request.salt or self._shared:
            body["cache_salt"] = self._salt(request.salt)
        if self._priority:
            body["priority"] = request.priority
        if self._transfer_parameters is not None and request.origin is not None:
            parameters = self._transfer_parameters(request.origin, request.salt or "")
            if parameters:
                body["kv_transfer_params"] = dict(parameters)
        if request.handed:
            body["kv_transfer_params"] = {**body.get("kv_transfer_params", {}), **request.handed}

    def _stop(self, stream: Stream) -> None:
        answer = stream.answer
        if answer is None or not self._abort_endpoint:
            super()._stop(stream)
        elif stream.ended is None:
            stream.ended = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._abort_then_close(stream.request_id, answer, stream.ended))
            self._aborting.add(task)
            task.add_done_callback(self._aborting.discard)

    async def _abort_then_close(self, request_id: str, answer: StreamedResponse, ended: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(_DRAIN_S):
                if await self._post_abort([self.aborted_as.format(self._known_as(request_id))]):
                    await asyncio.shield(ended)
        except (TimeoutError, EngineUnavailableError):
            pass
        finally:
            if not ended.done():
                answer.abort()

    async def _post_abort(self, request_ids: list[str]) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            response = await self._http().post(
                self._config.root("/inference/v1/abort_requests"), json={"request_ids": request_ids}
            )
            return response.status_code == 200
        return False

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        await self.keep_apart()
        body = self._body(list(token_ids), 1, {"temperature": 0.0})
        one = GenerationParams(max_tokens=1)
        self._mark(body, GenerationRequest("", token_ids, one, priority=WARM_PRIORITY, salt=salt, origin=origin))
        with contextlib.suppress(PromptRefusedError):
            await self._request("POST", "completions", body)

    async def prefill(
        self, request: GenerationRequest, parameters: Mapping[str, Any], *, max_tokens: int
    ) -> Mapping[str, Any]:
        """Compute a prompt that another replica answers.

        Args:
            parameters: of `kv_transfer_params`: how it is handed over.
            max_tokens: that it writes, and nobody reads.

        Returns:
            what the server says of where it is; empty where it says nothing.

        Raises:
            EngineUnavailableError, PromptRefusedError: it was not computed.
        """
        await self.keep_apart()
        body = self._body(list(request.token_ids), max_tokens, {"temperature": 0.0, "ignore_eos": True})
        self._mark(body, request)
        body["kv_transfer_params"] = {**body.get("kv_transfer_params", {}), **parameters}
        said: object = (await self._request("POST", "completions", body)).get("kv_transfer_params")
        return cast("dict[str, Any]", said) if isinstance(said, dict) else {}

    # Questions

    @property
    def kv_tokens(self) -> int:
        return self.metrics.cache_blocks * self.metrics.block_tokens

    @property
    def kv_use(self) -> float | None:
        """As :meth:`scrape` last found it; see :class:`EngineStatistics`."""
        return self.metrics.kv_use

    @property
    def prompt_tokens_by_tier(self) -> Mapping[str, int]:
        """As :meth:`scrape` last found them; see :class:`VllmMetrics`."""
        return self.metrics.prompt_tokens_by_tier

    def statistics(self) -> EngineStatistics:
        return super().statistics()._replace(kv_use=self.kv_use)

    def capabilities(self) -> Capabilities:
        return Capabilities(
            salt=not self._shared or self._salting.holds,
            priority=self._priority,
            cached_tokens=True,
            token_ids=True,
            logprobs=True,
            context_limit_tokens=self._context_limit_tokens,
            block_tokens=self.metrics.block_tokens or self._config.block_tokens,
            model=self._model,
            notes=(
                "aborts by endpoint" if self._abort_endpoint else "aborts by closing the stream",
                *(() if self._priority else ("no priorities: start it with --scheduling-policy priority",)),
            ),
        )
