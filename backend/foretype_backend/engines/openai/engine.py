"""Any server that speaks OpenAI's completion interface, as an engine: vLLM, llama.cpp, TGI, a gateway of our own.

What the server understands is found out when the engine starts, with requests for one token each: prompts as token ids, log
probabilities, token counts of a stream, stop ids. Where token ids are refused the text is sent and counts are not exact.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Self, cast

import httpx

from foretype_backend.engines.openai.events import OpenAIConfig, ServerFeatures
from foretype_backend.engines.openai.model_list import pick_model
from foretype_backend.engines.openai.streaming import StreamingServer
from foretype_backend.engines.port import Capabilities, GenerationRequest
from foretype_backend.engines.prompt_limits import check_prompt
from foretype_backend.errors import EngineUnavailableError, PromptRefusedError, SaltIgnoredError
from foretype_backend.prefix.origin import Origin

_LEAST_CONTEXT: Final = 512
_WAKES_S: Final = 120.0


class OpenAIEngine(StreamingServer):
    """Engine port over HTTP. Chunks carry text, not token ids.

    Args:
        shared: tenants that do not trust each other reach it: each request must have a salt, and the server must keep salts apart.
        text: a prompt's ids as text in which nothing of a user's is a control token, for servers that take no ids; without it they get
            the request's own text.
    """

    may_chat = False
    """Whether a model that was trained to chat is taken unasked."""
    arguments: ClassVar[tuple[str, ...]] = ("shared", "text")
    """What stands in a configuration beside the fields of :class:`OpenAIConfig`."""

    def __init__(
        self, config: OpenAIConfig, *, shared: bool = False, text: Callable[[Sequence[int]], str] | None = None
    ) -> None:
        super().__init__(config, shared=shared)
        self._as_text = text

    @classmethod
    def from_config(cls, **config: object) -> Self:
        """Make an engine from the fields of :class:`OpenAIConfig`, and the arguments."""
        own: dict[str, Any] = {name: config.pop(name) for name in cls.arguments if name in config}
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
        self._has_context(next((m.get("max_model_len") for m in entries if m.get("id") == self._model), None))

    def _has_context(self, said: object, *, more: str = "") -> None:
        """What the server says of its context; `more` is how it gets a longer one, where a short one is a mistake.

        Raises:
            EngineUnavailableError: no prompt would fit.
        """
        if isinstance(said, int) and said > 0:
            self._context_limit_tokens = min(said, self._context_limit_tokens)
        if more and self._context_limit_tokens < _LEAST_CONTEXT:
            raise EngineUnavailableError(
                f"{self._config.url}: has a context of {self._context_limit_tokens} tokens, which no prompt fits into; {more}"
            )

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

    # Requests

    def _most_tokens(self, request: GenerationRequest) -> int:
        """What its context leaves of the tokens that are asked for. Raises PromptRefusedError: it leaves none."""
        return check_prompt(
            request.token_ids,
            request.params.max_tokens,
            context_limit_tokens=self._context_limit_tokens,
            vocabulary_tokens=None,
        )

    def _stream_body(self, request: GenerationRequest) -> dict[str, Any]:
        token_ids, params, prompt_text = request.token_ids, request.params, request.prompt_text
        max_tokens = self._most_tokens(request)
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
        return self._body(
            self._json_ids(token_ids, request.salt) if features.token_ids else prompt_text, max_tokens, fields
        )

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        if self._live or not self._features.token_ids:
            return
        await self.keep_apart()
        own = {"cache_salt": self._salt(salt)} if self._shared else {}
        await self._request("POST", "completions", self._body(list(token_ids), 1, own))

    # Questions

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


class LocalServerEngine(OpenAIEngine):
    """A server of one user: one that went to sleep loads its model again with the next key, and it keeps no tenants apart."""

    kind: ClassVar[str]
    base: ClassVar[str] = ""
    """What its URL ends in, whether the configuration says so or not."""

    @classmethod
    def from_config(cls, **config: object) -> Self:
        url = str(config.pop("url", "")).rstrip("/").removesuffix("/v1") + cls.base
        return super().from_config(**{"idle_timeout_s": _WAKES_S} | config | {"url": url})

    async def _prove_salts(self) -> None:
        raise SaltIgnoredError(
            f"{self._config.url}: {self.kind} cannot keep tenants apart. Put `vllm serve` there, which takes `cache_salt`"
        )


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
