"""OpenAI's `/v1/completions` and `/v1/models`, so that existing clients work unchanged.

With `suffix` the prompt is fill-in-the-middle in the profile's grammar. Without it the prompt is taken as it is; control
tokens of the grammar that it carries are parsed, so that a client may render FIM itself.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from foretype_context.prompt.profile import Profile
from foretype_wire.errors import InvalidRequestError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foretype_backend.admission.outcomes import HTTP_STATUS, Reason
from foretype_backend.doors.answers.errors import GatewayError
from foretype_backend.doors.answers.openai import Completion, Model, Models, Usage
from foretype_backend.doors.auth import principal_of
from foretype_backend.doors.contract import DocumentedAnswer, DocumentedApp
from foretype_backend.doors.http import (
    OUTCOME,
    EventStream,
    HttpJobs,
    all_text,
    completion_errors,
    fim_segments,
    read_body,
    refused,
    was_shed,
)
from foretype_backend.doors.openai_request import CompletionRequest, Ids, check, prompt_of, stop_of
from foretype_backend.errors import BudgetExceededError
from foretype_backend.identity.directory import Principal
from foretype_backend.serving.output_text import TextDelta
from foretype_backend.serving.render import Prompt
from foretype_backend.serving.service import AdmittedRequest, CompletionOutcome

DONE: Final = "[DONE]"
"""Of the last event of a stream, which holds no JSON."""
_DEFAULT_MAX_TOKENS: Final = 16  # OpenAI's own default
_INLINE_IDS: Final = 8192
"""Token ids that are looked at on the event loop, in a millisecond."""
_CLIENTS_FAULTS: Final = frozenset(
    {"invalid_request", "tokenizer_mismatch", "model_not_found", "pool_missing", "model_missing"}
)
_FINISH: Final = {Reason.LENGTH: "length", Reason.EXPIRED: "length"}


class OpenAIDoor:
    """The gateway's own model, and the names of all.

    Args:
        aliases: names that its model has beside its own.
        chat: models that answer at the door of chat.
    """

    def __init__(
        self,
        jobs: HttpJobs,
        profile: Profile,
        *,
        max_body_bytes: int,
        aliases: Sequence[str] = (),
        chat: Sequence[str] = (),
    ) -> None:
        self._jobs = jobs
        self._profile = profile
        self._names = tuple(dict.fromkeys((profile.model, *aliases)))
        self._listed = tuple(dict.fromkeys((*self._names, *chat)))
        self._max_body_bytes = max_body_bytes
        self._numbers = itertools.count(1)
        self._created = int(datetime.now(UTC).timestamp())

    def register(self, app: DocumentedApp) -> None:
        whole = DocumentedAnswer(
            "the completion; `x-foretype-outcome` says why an empty one is empty",
            [Completion],
            [Completion, GatewayError],
            DONE,
        )
        answers = {200: whole, **completion_errors(GatewayError)}
        app.door(
            "POST",
            "/v1/completions",
            self.completions,
            tag="completions",
            takes=CompletionRequest,
            answers=answers,
            direct=True,
        )
        listed = {200: DocumentedAnswer("the models", [Models])}
        app.door("GET", "/v1/models", self.models, tag="completions", answers=listed)
        one = {200: DocumentedAnswer("the model", [Model]), 404: DocumentedAnswer("no such model", [GatewayError])}
        app.door("GET", "/v1/models/{model:path}", self.model, tag="completions", answers=one)

    async def models(self, request: Request) -> Response:
        """Every name that may be asked for, as OpenAI lists models."""
        answer: Models = {"object": "list", "data": [self._model(name) for name in self._listed]}
        return JSONResponse(answer)

    async def model(self, model: str) -> Response:
        """One of the models."""
        return unknown_model(model, self._listed) or JSONResponse(self._model(model))

    def _model(self, name: str) -> Model:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "foretype"}

    async def completions(self, request: Request) -> Response:
        """Complete a text, or the place between two, as OpenAI's API does.

        A field that is not named here is refused, and so is one that would change the answer and is not done; a model that there is not
        is 404. `max_tokens` beyond what the context and the gateway allow is cut, which the finish reason `length` says.
        """
        received = self._jobs.service.clock()
        principal = principal_of(request.scope)
        try:
            body = await read_body(request, CompletionRequest, max_bytes=self._max_body_bytes)
            if (unknown := unknown_model(body.model, self._names)) is not None:
                return unknown
            check(body)
            wanted = _DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
            with self._jobs.claim(principal, characters=_characters(body), max_tokens=wanted) as claim:
                prompt = await self._prompt(body, principal)
                job = self._jobs.job(
                    request,
                    prompt,
                    claim,
                    received=received,
                    max_tokens=wanted,
                    stop=stop_of(body),
                    temperature=body.temperature,
                    prefill_only=body.max_tokens == 0,
                )
        except InvalidRequestError as error:
            return JSONResponse(error_body(error.message, "invalid_request", error.field), status_code=400)
        except BudgetExceededError as limited:
            return refused(limited.outcome, error_body)
        return self._stream(body, job) if body.stream else await self._whole(request, job)

    async def _prompt(self, body: CompletionRequest, principal: Principal) -> Prompt:
        renderer, tenant, ids_of = self._jobs.renderer, principal.tenant, self._jobs.ids_of(principal)
        prompt = prompt_of(body)
        if isinstance(prompt, list):
            return await self._of_ids(prompt, tenant)
        if body.suffix is not None:
            segments = fim_segments(renderer.grammar, prompt, body.suffix, layout=self._profile.layout)
            return await renderer.encode(segments, tenant=tenant, ids_of=ids_of)
        if not prompt:
            raise InvalidRequestError("prompt", "empty; there is nothing to complete")
        return await renderer.encode_raw(prompt, tenant=tenant, ids_of=ids_of)

    async def _of_ids(self, given: Ids, tenant: str) -> Prompt:
        renderer = self._jobs.renderer
        if len(given) > renderer.context_limit_tokens:
            told = f"{len(given)} tokens; the model's context is {renderer.context_limit_tokens}. Send fewer"
            raise InvalidRequestError("prompt", told)

        def made() -> Prompt:
            ids = [part for part in given if isinstance(part, int)]
            if len(ids) != len(given) or not ids:
                raise InvalidRequestError("prompt", "must be one text, or one list of token ids")
            if min(ids) < 0 or max(ids) >= renderer.tokenizer.vocabulary_tokens:
                raise InvalidRequestError("prompt", f"token ids must be below {renderer.tokenizer.vocabulary_tokens}")
            text = renderer.tokenizer.decode(ids).decode("utf-8", "replace")
            return renderer.check(Prompt(ids=array("Q", ids), text=text), field="prompt")

        return made() if len(given) <= _INLINE_IDS else await renderer.pool.run(tenant, made)

    async def _whole(self, request: Request, job: AdmittedRequest) -> Response:
        found = await all_text(request, lambda deliver: self._jobs.service.run(job, deliver))
        if found is None:
            return Response(status_code=HTTP_STATUS[Reason.DISCONNECTED])
        text, outcome = found
        if outcome.finish is None and not was_shed(outcome):
            return refused(outcome, error_body)
        headers = {OUTCOME: str(outcome.reason)} if was_shed(outcome) else None
        return JSONResponse(self._answer(text, outcome) | {"usage": usage_body(outcome)}, headers=headers)

    def _stream(self, body: CompletionRequest, job: AdmittedRequest) -> Response:
        base = self._answer("", None)
        before, _, after = event(base).partition(b'"text":""')  # within a name quotation marks are escaped
        with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)

        def on_delta(delta: TextDelta) -> bytes:
            return b'%b"text":%b%b' % (before, msgspec.json.encode(delta.text), after)

        def on_end(outcome: CompletionOutcome) -> bytes:
            if outcome.refusal is not None and not was_shed(outcome):
                return event(error_body(outcome.refusal.message, str(outcome.refusal.code), None)) + b"data: [DONE]\n\n"
            last = event(base | {"choices": [_choice("", outcome)]})
            if with_usage:
                last += event(base | {"choices": [], "usage": usage_body(outcome)})
            return last + b"data: [DONE]\n\n"

        return EventStream(
            lambda deliver: self._jobs.service.run(job, deliver),
            on_delta=on_delta,
            on_end=on_end,
            on_refusal=lambda outcome: refused(outcome, error_body),
        )

    def _answer(self, text: str, outcome: CompletionOutcome | None) -> dict[str, Any]:
        return {
            "id": f"cmpl-{next(self._numbers)}",
            "object": "text_completion",
            "created": int(datetime.now(UTC).timestamp()),
            "model": self._profile.model,
            "choices": [_choice(text, outcome)],
        }


def _characters(body: CompletionRequest) -> int:
    prompt = prompt_of(body)
    return len(prompt) + len(body.suffix or "") if isinstance(prompt, str) else 4 * len(prompt)


def _choice(text: str, outcome: CompletionOutcome | None) -> dict[str, Any]:
    finish = None if outcome is None else _FINISH.get(outcome.reason, "stop")
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def unknown_model(model: str | None, names: Sequence[str]) -> Response | None:
    """The answer to who asks for a model that is none of these; who names none gets what there is."""
    if not model or not names or model in names:
        return None
    told = f"there is no model {model[:200]!r} here; there {'is' if len(names) == 1 else 'are'} {', '.join(names)}"
    return JSONResponse(error_body(told, "model_not_found", "model"), status_code=404)


def usage_body(outcome: CompletionOutcome) -> Usage:
    """OpenAI's `usage`."""
    usage = outcome.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.generated_tokens,
        "total_tokens": usage.prompt_tokens + usage.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def error_body(message: str, code: str, field: str | None) -> dict[str, Any]:
    """OpenAI's error."""
    kind = "invalid_request_error" if code in _CLIENTS_FAULTS else "server_error"
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
