"""OpenAI's `/v1/completions` and `/v1/models`, so that existing clients work unchanged.

With `suffix` the prompt is fill-in-the-middle in the profile's grammar. Without it the prompt is taken as it is; control
tokens of the grammar that it carries are parsed, so that a client may render FIM itself.
"""

from __future__ import annotations

import itertools
from array import array
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from foretype_context.profile import Profile, Stop
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foretype_backend.admission.outcomes import HTTP_STATUS, InvalidRequest, Reason
from foretype_backend.doors.auth import principal_of
from foretype_backend.doors.http import EventStream, HttpJobs, all_text, fim_segments, read_body, refused
from foretype_backend.output import TextDelta
from foretype_backend.render import Prompt
from foretype_backend.serve import Job, Outcome
from foretype_backend.sessions import check_stop

__all__ = ["OpenAIDoor", "error_body", "event", "usage_body"]

_DEFAULT_MAX_TOKENS: Final = 16  # OpenAI's own default
_FINISH: Final = {Reason.LENGTH: "length", Reason.EXPIRED: "length"}


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str | list[int | str] = ""
    model: str = ""
    suffix: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    n: int | None = None
    best_of: int | None = None
    echo: bool = False


class OpenAIDoor:
    def __init__(self, jobs: HttpJobs, profile: Profile, *, max_body_bytes: int) -> None:
        self._jobs = jobs
        self._profile = profile
        self._max_body_bytes = max_body_bytes
        self._numbers = itertools.count(1)
        self._created = int(datetime.now(UTC).timestamp())

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`: the one model that this gateway serves."""
        model = {"id": self._profile.model, "object": "model", "created": self._created, "owned_by": "foretype"}
        return JSONResponse({"object": "list", "data": [model]})

    async def completions(self, request: Request) -> Response:
        """`POST /v1/completions`."""
        received = self._jobs.service.clock()
        try:
            body = await read_body(request, _Body, max_bytes=self._max_body_bytes)
            job = self._jobs.job(
                await self._prompt(body),
                received=received,
                principal=principal_of(request.scope),
                max_tokens=_DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
                stop=_stop(body),
                temperature=body.temperature or 0.0,
                prefill_only=body.max_tokens == 0,
                traceparent=request.headers.get("traceparent", ""),
            )
        except InvalidRequest as error:
            return JSONResponse(error_body(error.message, "invalid_request", error.field), status_code=400)
        return self._stream(body, job) if body.stream else await self._whole(request, job)

    async def _prompt(self, body: _Body) -> Prompt:
        renderer = self._jobs.renderer
        _check(body)
        prompt = body.prompt
        if isinstance(prompt, list):
            ids = [part for part in prompt if isinstance(part, int)]
            if len(ids) == len(prompt) and ids:
                if min(ids) < 0 or max(ids) >= renderer.tokenizer.vocabulary_tokens:
                    raise InvalidRequest("prompt", f"token ids must be below {renderer.tokenizer.vocabulary_tokens}")
                text = renderer.tokenizer.decode(ids).decode("utf-8", "replace")
                return renderer.check(Prompt(ids=array("Q", ids), text=text), field="prompt")
            if len(prompt) != 1 or not isinstance(prompt[0], str):
                raise InvalidRequest("prompt", "must be one text, or one list of token ids")
            prompt = prompt[0]
        if body.suffix is not None:
            return await renderer.encode(
                fim_segments(renderer.grammar, prompt, body.suffix, layout=self._profile.layout)
            )
        if not prompt:
            raise InvalidRequest("prompt", "empty; there is nothing to complete")
        return renderer.encode_raw(prompt)

    async def _whole(self, request: Request, job: Job) -> Response:
        found = await all_text(request, lambda deliver: self._jobs.service.run(job, deliver))
        if found is None:
            return Response(status_code=HTTP_STATUS[Reason.DISCONNECTED])
        text, outcome = found
        if outcome.finish is None:
            return refused(outcome, error_body)
        return JSONResponse(self._answer(text, outcome) | {"usage": usage_body(outcome)})

    def _stream(self, body: _Body, job: Job) -> Response:
        base = self._answer("", None)
        with_usage = body.stream_options is not None and body.stream_options.include_usage

        def on_delta(delta: TextDelta) -> bytes:
            return event(base | {"choices": [_choice(delta.text, None)]})

        def on_end(outcome: Outcome) -> bytes:
            if outcome.refusal is not None:
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

    def _answer(self, text: str, outcome: Outcome | None) -> dict[str, Any]:
        return {
            "id": f"cmpl-{next(self._numbers)}",
            "object": "text_completion",
            "created": int(datetime.now(UTC).timestamp()),
            "model": self._profile.model,
            "choices": [_choice(text, outcome)],
        }


def _check(body: _Body) -> None:
    if body.max_tokens is not None and body.max_tokens < 0:
        raise InvalidRequest("max_tokens", "must not be negative")
    if body.temperature is not None and not 0 <= body.temperature <= 2:
        raise InvalidRequest("temperature", "must be between 0 and 2")
    if (body.n or 1) != 1 or (body.best_of or 1) != 1:
        raise InvalidRequest("n" if (body.n or 1) != 1 else "best_of", "one completion per request; ask again for more")
    if body.echo:
        raise InvalidRequest("echo", "the prompt is not repeated; leave `echo` out")


def _stop(body: _Body) -> Stop:
    strings = [body.stop] if isinstance(body.stop, str) else list(body.stop or ())
    try:
        check_stop(strings, None, None)
    except InvalidRequest as error:
        raise InvalidRequest("stop", error.message) from error
    return Stop(strings=strings)


def _choice(text: str, outcome: Outcome | None) -> dict[str, Any]:
    finish = None if outcome is None else _FINISH.get(outcome.reason, "stop")
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def usage_body(outcome: Outcome) -> dict[str, Any]:
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
    kind = "invalid_request_error" if code in ("invalid_request", "tokenizer_mismatch") else "server_error"
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
