"""OpenAI's `/v1/chat/completions`: history in, one answer out, streamed or whole.

The gateway renders nothing: messages go to the quality pool as they are, and its server applies its model's template, so any
instruct model works. What a client sends besides is checked by field; what this door does not know is refused, not dropped.
"""

from __future__ import annotations

import asyncio
import itertools
from array import array
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from foretype_context.prompt.profile import Stop
from foretype_context.tokens.tokenizer import Tokenizer
from foretype_wire.errors import InvalidRequestError
from foretype_wire.gateway_protocol import check_stop
from foretype_wire.messages import RequestClass
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foretype_backend.admission.outcomes import HTTP_STATUS, Decision, Reason
from foretype_backend.chat.templates import TemplateHitRates, template_name
from foretype_backend.doors.answers.errors import GatewayError
from foretype_backend.doors.answers.openai import ChatCompletion, ChatCompletionChunk
from foretype_backend.doors.auth import principal_of
from foretype_backend.doors.contract import DocumentedAnswer, DocumentedApp
from foretype_backend.doors.http import EventStream, all_text, asked_by, completion_errors, read_body, refused
from foretype_backend.doors.openai import DONE, error_body, event, unknown_model, usage_body
from foretype_backend.doors.openai_request import StreamOptions
from foretype_backend.errors import BudgetExceededError
from foretype_backend.identity.directory import Tier
from foretype_backend.serving.completion import Claim
from foretype_backend.serving.encoding import EncodePool
from foretype_backend.serving.output_text import TextDelta
from foretype_backend.serving.render import Prompt
from foretype_backend.serving.service import AdmittedRequest, CompletionOutcome

if TYPE_CHECKING:  # it brings an HTTP client, which a gateway with one pool never loads
    from foretype_backend.chat.pool import QualityPool

_FINISH: Final = {Reason.LENGTH: "length", Reason.EXPIRED: "length"}
_MAX_MESSAGES: Final = 1024
_INLINE_CHARS: Final = 4096
"""Of a history, that are counted on the event loop: 3 ms, where they are nothing but line ends."""
_PER_MESSAGE_TOKENS: Final = 4
"""What a chat template adds to a message, about."""


_Tokens = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1})]
_Stop = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": 256})]


class ChatPart(msgspec.Struct, frozen=True):
    type: Literal["text"]
    text: str


class ChatMessage(msgspec.Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ChatPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last message is the user's. Null counts as left out, also of fields of OpenAI's that nothing here honours."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(extra_json_schema={"minItems": 1, "maxItems": _MAX_MESSAGES})]
    model: str | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    temperature: Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": 2})] | None = None
    top_p: Annotated[float, msgspec.Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 1})] | None = None
    stop: _Stop | Annotated[list[_Stop], msgspec.Meta(extra_json_schema={"maxItems": 16})] | None = None
    seed: int | None = None
    n: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": 1})] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    frequency_penalty: None = None
    presence_penalty: None = None
    logit_bias: None = None
    logprobs: None = None
    top_logprobs: None = None
    modalities: None = None
    audio: None = None
    prediction: None = None
    metadata: None = None
    store: None = None
    service_tier: None = None
    reasoning_effort: None = None


class ChatDoor:
    """Args: `pool` None answers every request with what is missing; `pool_of_threads` counts long histories."""

    def __init__(
        self,
        pool: QualityPool | None,
        tokenizer: Tokenizer,
        *,
        max_body_bytes: int,
        pool_of_threads: EncodePool | None = None,
    ) -> None:
        self._pool = pool
        self._threads = pool_of_threads or EncodePool()
        self._tokenizer = tokenizer
        self._max_body_bytes = max_body_bytes
        self._numbers = itertools.count(1)
        self.templates = TemplateHitRates()

    def register(self, app: DocumentedApp) -> None:
        answers = {
            200: DocumentedAnswer("the answer", [ChatCompletion], [ChatCompletionChunk, GatewayError], DONE),
            **completion_errors(GatewayError),
        }
        app.door(
            "POST",
            "/v1/chat/completions",
            self.chat_completions,
            tag="completions",
            takes=ChatRequest,
            answers=answers,
            direct=True,
        )

    def tpot_p99_ms(self) -> dict[str, float]:
        """Time per token by tier, over the last two seconds."""
        return {} if self._pool is None or self._pool.pace is None else self._pool.pace.p99_ms()

    async def chat_completions(self, request: Request) -> Response:
        """Answer a conversation, as OpenAI's API does.

        A field that is not named here is refused. Without a pool for chat the answer is 404.
        """
        if self._pool is None:
            told = "this gateway answers no chat: it has no quality pool (its operator finds more in docs/operations.md, Chat)"
            return JSONResponse(error_body(told, "pool_missing", None), status_code=404)
        received = self._pool.chat.clock()
        try:
            body = await read_body(request, ChatRequest, max_bytes=self._max_body_bytes)
            if (unknown := unknown_model(body.model, chat_models(self._pool))) is not None:
                return unknown
            _check(body)
            if (shed := self._shed(self._pool, principal_of(request.scope).tier)) is not None:
                return shed
            job = await self._job(self._pool, body, request, received)
        except InvalidRequestError as error:
            return JSONResponse(error_body(error.message, "invalid_request", error.field), status_code=400)
        except BudgetExceededError as limited:
            return refused(limited.outcome, error_body)
        system = "\n".join(message.text for message in body.messages if message.role in ("system", "developer"))
        template = self.templates.asked(template_name(request.headers.get("x-foretype-template")), system)
        model = _model_of(self._pool, job) or body.model or ""
        if body.stream:
            return self._stream(self._pool, body, job, template, model)
        return await self._whole(self._pool, request, job, template, model)

    def _shed(self, pool: QualityPool, tier: Tier) -> Response | None:
        """The refusal of a tier whose answers are slower than promised; before anything of its budget is claimed."""
        if pool.pace is None or not pool.pace.sheds(tier, asyncio.get_running_loop().time()):
            return None
        pool.chat.metrics.decided(RequestClass.CHAT, Decision.CLASS_SHED)
        pool.chat.metrics.refused(RequestClass.CHAT, Reason.OVERLOADED)
        told = f"answers of the {tier} tier are slower than promised; try again shortly"
        response = JSONResponse(error_body(told, "overloaded", None), status_code=503)
        response.headers["Retry-After"] = "2"
        return response

    async def _job(self, pool: QualityPool, body: ChatRequest, request: Request, received: float) -> AdmittedRequest:
        principal = principal_of(request.scope)
        limit = pool.config.context_limit_tokens
        texts = [message.text for message in body.messages]
        size = sum(map(len, texts))
        wanted = body.max_completion_tokens or body.max_tokens or limit
        with pool.chat.claim(
            principal, RequestClass.CHAT, characters=size, context_tokens=limit, max_tokens=min(wanted, limit)
        ) as claim:
            ids = await self._ids(texts, size, principal.tenant)
            claim.counted(len(ids))
            if len(ids) >= limit:
                told = f"about {len(ids)} tokens, and the model takes {limit}; send less history"
                raise InvalidRequestError("messages", told)
            return self._made(pool, body, request, received, ids, claim)

    async def _ids(self, texts: list[str], size: int, tenant: str) -> array[int]:
        """About what the server will make of it: how much it is, and which replica is likely to have its beginning cached."""
        if size <= _INLINE_CHARS:
            return self._encoded(texts)
        return await self._threads.run(tenant, lambda: self._encoded(texts))

    def _encoded(self, texts: list[str]) -> array[int]:
        ids = array("Q")
        for text in texts:
            ids.extend([0] * _PER_MESSAGE_TOKENS)
            ids.extend(self._tokenizer.encode(text))
        return ids

    def _made(
        self,
        pool: QualityPool,
        body: ChatRequest,
        request: Request,
        received: float,
        ids: array[int],
        claim: Claim,
    ) -> AdmittedRequest:
        limit = pool.config.context_limit_tokens
        stops = [body.stop] if isinstance(body.stop, str) else list(body.stop or ())
        upstream = _given(
            messages=[{"role": message.role, "content": message.text} for message in body.messages],
            temperature=body.temperature,
            top_p=body.top_p,
            seed=body.seed,
            stop=stops[:4] or None,
        )
        if principal_of(request.scope).tier is Tier.FREE and pool.config.free_model is not None:
            upstream["model"] = pool.config.free_model
        return AdmittedRequest.of(
            asked_by(request, f"chat{next(self._numbers)}", pool.chat, received, RequestClass.CHAT),
            # The server makes its own of the text, by its template; admission and routing go by these.
            Prompt(ids=ids, text=msgspec.json.encode(upstream).decode()),
            claim,
            max_tokens=body.max_completion_tokens or body.max_tokens or limit,
            context_tokens=limit,
            stop=Stop(strings=stops),
        )

    async def _whole(
        self, pool: QualityPool, request: Request, job: AdmittedRequest, template: str, model: str
    ) -> Response:
        found = await all_text(request, lambda deliver: pool.chat.run(job, deliver))
        if found is None:
            return Response(status_code=HTTP_STATUS[Reason.DISCONNECTED])
        text, outcome = found
        if outcome.finish is None:
            return refused(outcome, error_body)
        self._note(pool, job, template, outcome)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": _FINISH.get(outcome.reason, "stop")}
        return JSONResponse(_base(job, model, "chat.completion") | {"choices": [choice], "usage": usage_body(outcome)})

    def _stream(
        self, pool: QualityPool, body: ChatRequest, job: AdmittedRequest, template: str, model: str
    ) -> Response:
        base = _base(job, model, "chat.completion.chunk")
        with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        role: dict[str, str] = {"role": "assistant"}

        def on_delta(delta: TextDelta) -> bytes:
            content = {**role, "content": delta.text}
            role.clear()
            return event(base | {"choices": [{"index": 0, "delta": content, "finish_reason": None}]})

        def on_end(outcome: CompletionOutcome) -> bytes:
            if outcome.refusal is not None:
                failed = error_body(outcome.refusal.message, str(outcome.refusal.code), None)
                return event(failed) + b"data: [DONE]\n\n"
            self._note(pool, job, template, outcome)
            finish = _FINISH.get(outcome.reason, "stop")
            last = event(base | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
            if with_usage:
                last += event(base | {"choices": [], "usage": usage_body(outcome)})
            return last + b"data: [DONE]\n\n"

        return EventStream(
            lambda deliver: pool.chat.run(job, deliver),
            on_delta=on_delta,
            on_end=on_end,
            on_refusal=lambda outcome: refused(outcome, error_body),
            empty_when_shed=False,
        )

    def _note(self, pool: QualityPool, job: AdmittedRequest, template: str, outcome: CompletionOutcome) -> None:
        usage, timings = outcome.usage, outcome.timings_ms
        self.templates.answered(template, usage.prompt_tokens, usage.cached_tokens)
        ttft_ms = timings.admit + timings.queue + timings.prefill + timings.decode_first
        tpot_ms = timings.stream / (usage.generated_tokens - 1) if usage.generated_tokens > 1 else None
        if pool.pace is not None and tpot_ms is not None:
            pool.pace.note(job.principal.tier, tpot_ms / 1000)
        pool.chat.metrics.chat(job.principal.tier.value, ttft_ms / 1000, None if tpot_ms is None else tpot_ms / 1000)


def _model_of(pool: QualityPool, job: AdmittedRequest) -> str | None:
    free = job.principal.tier is Tier.FREE and pool.config.free_model
    return free or pool.config.model


def chat_models(pool: QualityPool | None) -> list[str]:
    """Names that may be asked for; none where the file names none, and the server's only one answers to any."""
    return [] if pool is None else [name for name in (pool.config.model, pool.config.free_model) if name]


def _base(job: AdmittedRequest, model: str, kind: str) -> dict[str, Any]:
    created = int(datetime.now(UTC).timestamp())
    return {"id": f"chatcmpl-{job.key}", "object": kind, "created": created, "model": model}


def _check(body: ChatRequest) -> None:
    if not 0 < len(body.messages) <= _MAX_MESSAGES:
        raise InvalidRequestError("messages", f"must be 1 to {_MAX_MESSAGES} messages")
    if body.messages[-1].role != "user":
        raise InvalidRequestError(f"messages[{len(body.messages) - 1}].role", "the last message must be the user's")
    for name in ("max_tokens", "max_completion_tokens"):
        value = getattr(body, name)
        if value is not None and value < 1:
            raise InvalidRequestError(name, "must be at least 1")
    if body.temperature is not None and not 0 <= body.temperature <= 2:
        raise InvalidRequestError("temperature", "must be between 0 and 2")
    if body.top_p is not None and not 0 < body.top_p <= 1:
        raise InvalidRequestError("top_p", "must be above 0 and at most 1")
    if (body.n or 1) != 1:
        raise InvalidRequestError("n", "one answer per request; ask again for more")
    check_stop([body.stop] if isinstance(body.stop, str) else list(body.stop or ()), None, None, prefix="stop.")


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
