"""llama.cpp's own server by its own interface: ids, a slot for each document, and an end where the grammar ends.

Its `/v1/completions` writes control tokens as nothing and does not say their ids; `/infill` builds prompts of its own. Here prompts go as
ids to `/completion`, whose parts carry the ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final, cast

import msgspec
from foretype_context.text.pasted import shell_line

from foretype_backend.engines.openai.engine import LocalServerEngine
from foretype_backend.engines.openai.events import Event, OpenAIConfig, Reader, ServerFeatures, Token, all_of
from foretype_backend.engines.openai.http_stream import HttpStreams, StreamedResponse
from foretype_backend.engines.openai.model_list import pick_model
from foretype_backend.engines.openai.streaming import Stream
from foretype_backend.engines.port import Capabilities, EngineFinish, GenerationRequest
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError
from foretype_backend.prefix.origin import Origin

_LOADING_S: Final = 0.5
"""Between two questions to a server that still loads its model."""
_SAID_LAST: Final = ("content", "tokens", "stop", "stop_type", "tokens_predicted", "tokens_evaluated", "timings")
"""Of its last part: else the whole prompt comes back with it."""


class _Slots:
    """Which slot a document has: each keeps the cache of one prompt, so a document comes back to its own.

    Args:
        total: how many it has, at least 1.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._of: OrderedDict[object, int] = OrderedDict()

    def of(self, document: object) -> int:
        """The document's slot: the one that it had, else one that nobody has, else that of the document that was asked about longest ago."""
        slot = self._of.pop(document, None)
        if slot is None:
            slot = len(self._of) if len(self._of) < self.total else self._of.popitem(last=False)[1]
        self._of[document] = slot
        return slot


class _Timings(msgspec.Struct):
    cache_n: int | None = None


class _Progress(msgspec.Struct):
    total: int | None = None
    cache: int | None = None


class _Part(msgspec.Struct):
    content: str = ""
    tokens: list[int] = []
    stop: bool = False
    stop_type: str = ""
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: _Timings | None = None
    completion_probabilities: list[Token] | None = None
    prompt_progress: _Progress | None = None
    error: Any = None


class _AnswerParts(Reader):
    """What `/completion` streams: parts with their token, the last with `stop` and the counts.

    Source: llama.cpp 3f545be, tools/server/server-task.cpp (`to_json_non_oaicompat`) and server-context.cpp (`process_token`). A control
    token has no text there, only its id; and a part whose character is not whole yet is not sent, so the text is what counts and not the ids.

    Args:
        end_token_ids: control tokens: the text ends before the first of them, whatever the server goes on to write.
    """

    expected = "llama.cpp"
    nonsense = "a part that is none of llama.cpp's"
    decoder = msgspec.json.Decoder(_Part)

    def __init__(self, url: str, end_token_ids: frozenset[int]) -> None:
        super().__init__(url)
        self._end_token_ids = end_token_ids
        self._ended = False

    def _event(self, line: bytes) -> Event | None:
        name, _, payload = line.partition(b":")
        if name not in (b"data", b"error") or payload.strip() == b"[DONE]":
            return None
        return self._part_of(payload.strip(), failed=name == b"error")

    def _part_of(self, payload: bytes, *, failed: bool) -> Event:
        said: _Part = self._decoded(payload)
        if failed or said.error is not None:
            told = json.dumps(said.error)[:300] if said.error is not None else payload[:300].decode(errors="replace")
            raise self._failed(f"{told}; see its log")
        if said.stop:
            return self._last(said)
        if (progress := said.prompt_progress) is not None:  # once for every batch of the prompt
            return Event(prompt_tokens=progress.total, cached_tokens=progress.cache)
        if self._ended:  # it was no end to the server, which goes on
            return Event(finish=EngineFinish.END_TOKEN, last=True, cut=True)
        if not self._end_token_ids.isdisjoint(said.tokens):
            self._ended = True  # as a rule the next part is the last, with the counts
            return Event(finish=EngineFinish.END_TOKEN)
        values = [token.logprob for token in said.completion_probabilities or ()]
        return Event(
            text=said.content,
            tokens=len(said.tokens) or int(bool(said.content)),
            token_ids=tuple(said.tokens),
            logprobs=all_of(values) if said.content else (),
        )

    def _last(self, said: _Part) -> Event:
        limit = said.stop_type == "limit" and not self._ended
        return Event(
            text="" if self._ended else said.content,
            finish=EngineFinish.LENGTH if limit else EngineFinish.END_TOKEN,
            prompt_tokens=said.tokens_evaluated or 0,
            generated_tokens=said.tokens_predicted,
            cached_tokens=said.timings.cache_n if said.timings is not None else None,
            last=True,
        )


class LlamaCppEngine(LocalServerEngine):
    """Engine port over `/completion`.

    Args:
        config: with the address of the server itself, without `/v1`.
    """

    kind = "llama.cpp"
    path = "completion"
    arguments = ("shared",)

    def __init__(self, config: OpenAIConfig, *, shared: bool = False) -> None:
        super().__init__(config, shared=shared)
        self._file = ""  # the model's, as the server says
        self._slots = _Slots(1)

    async def ready(self) -> None:
        await self._same_model()

    async def _find_model(self) -> None:
        props = await self._loaded()
        settings = cast("object", props.get("default_generation_settings"))
        if not isinstance(settings, dict):
            raise EngineUnavailableError(
                f"{self._config.url}: says no `default_generation_settings`; it is no llama-server: try `--engine openai`"
            )
        self._file = str(props.get("model_path") or "")
        name = PurePath(self._file).stem or str(props.get("model_alias") or "model")
        self._model = self._model or pick_model((name,), None, self._config.url)
        limit = cast("dict[str, object]", settings).get("n_ctx")
        self._has_context(limit, more="start llama-server with `-np 2 -c 8192`: `-c` is what its slots share")
        total = props.get("total_slots")
        self._slots = _Slots(total if isinstance(total, int) and total > 0 else 1)

    async def _loaded(self) -> dict[str, Any]:
        """`/props`, as soon as the model is loaded: until then it answers 503."""
        async with asyncio.timeout(self._config.load_timeout_s):
            while True:
                try:
                    return await self._request("GET", "props")
                except EngineUnavailableError as error:
                    if error.fault is not Fault.BUSY:
                        raise
                await asyncio.sleep(_LOADING_S)

    async def _probe(self) -> ServerFeatures:
        """One token, that is seen to come with its id: where it does not, prompts of ids may be anything."""
        reply = await self._request("POST", self.path, self._completion([1, 1, 1], 1, {}) | {"stream": False})
        if not reply.get("tokens") or reply.get("tokens_evaluated") not in (3, 4):
            raise EngineUnavailableError(
                f"{self._config.url}: does not count a prompt of three ids as three; it is no llama-server of 2025 or newer"
            )
        return ServerFeatures(token_ids=True, logprobs=True, usage=True)

    async def _listed(self) -> list[str]:
        """Its one model, under the name that it had at the start while it is the same file."""
        now = str((await self._request("GET", "props")).get("model_path") or "")
        return [self._model if now == self._file else PurePath(now).stem]

    async def _same_model(self) -> None:
        """Raises EngineUnavailableError where the server has another model than at the start."""
        now = str((await self._request("GET", "props")).get("model_path") or "")
        if now != self._file:
            raise EngineUnavailableError(
                f"{self._config.url}: serves {PurePath(now).name} now, not {PurePath(self._file).name}; start that again, or "
                f"`{shell_line('foretype', 'use', self._config.url)}`",
                fault=Fault.REPLACED,
            )

    async def _connect(self, stream: Stream, streams: HttpStreams) -> StreamedResponse:
        """Another process can only be there where no connection to the former is left."""
        if not streams.connections:
            await self._same_model()
        return await super()._connect(stream, streams)

    def _completion(self, prompt: Sequence[int], tokens: int, fields: dict[str, Any]) -> dict[str, Any]:
        return {
            "prompt": list(prompt),
            "n_predict": tokens,
            "cache_prompt": True,
            "return_tokens": True,
            "return_progress": True,  # says at the beginning what was cached: most answers are ended before their end
            "n_probs": 1,
            "temperature": 0.0,
            "response_fields": _SAID_LAST,
            **self._config.extra_body,
            **fields,
        }

    def _stream_body(self, request: GenerationRequest) -> dict[str, Any]:
        params = request.params
        tokens = self._most_tokens(request)
        fields: dict[str, Any] = {"stream": True, "temperature": params.temperature}
        if params.stop_strings:
            fields["stop"] = list(params.stop_strings)
        return self._completion(request.token_ids, tokens, fields | self._slot(request.origin))

    def _slot(self, origin: Origin | None) -> dict[str, Any]:
        """Where the document's cache is; a request of no document takes what the server gives it."""
        if origin is None or not origin.document:
            return {}
        return {"id_slot": self._slots.of((origin.tenant, origin.session, origin.repository, origin.document))}

    def _reader(self, request: GenerationRequest) -> Reader:
        return _AnswerParts(self._url, request.params.end_token_ids)

    async def warm(self, token_ids: Sequence[int], *, salt: str | None = None, origin: Origin | None = None) -> None:
        if self._live:
            return
        with contextlib.suppress(PromptRefusedError):
            await self._request(
                "POST", self.path, self._completion(token_ids, 0, self._slot(origin)) | {"stream": False}
            )

    def capabilities(self) -> Capabilities:
        notes = ("prompts go as token ids", f"a slot for each document, of {self._slots.total}")
        return replace(super().capabilities(), block_tokens=1, notes=notes)
