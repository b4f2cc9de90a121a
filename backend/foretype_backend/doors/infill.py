"""llama.cpp's `/infill`, as llama.vim and llama.vscode speak it.

`prompt` is the typed part of the cursor's line and stands after the middle token, so typing is append-only. `n_predict: 0`
warms the prefix cache and generates nothing. A prompt over the context is cut at line ends, farthest from the cursor first,
and answered with `truncated: true`, as llama.cpp does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
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

__all__ = ["InfillDoor"]

_DEFAULT_PREDICT: Final = 128
_STOP_TYPES: Final = {Reason.STOP: "word", Reason.LENGTH: "limit", Reason.EXPIRED: "limit"}


class _Extra(msgspec.Struct, frozen=True):
    text: str = ""
    filename: str = ""


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[_Extra] = []
    prompt: str = ""
    n_predict: int = _DEFAULT_PREDICT
    n_indent: int = 0
    t_max_predict_ms: float = 0.0
    temperature: float | None = None
    stop: list[str] = []
    response_fields: list[str] = []
    stream: bool = False


class InfillDoor:
    def __init__(self, jobs: HttpJobs, profile: Profile, *, max_body_bytes: int) -> None:
        self._jobs = jobs
        self._profile = profile
        self._max_body_bytes = max_body_bytes

    async def infill(self, request: Request) -> Response:
        """`POST /infill`."""
        received = self._jobs.service.clock()
        try:
            body = await read_body(request, _Body, max_bytes=self._max_body_bytes)
            check_stop(body.stop, None, None)
            prompt, truncated = await self._prompt(body)
        except InvalidRequest as error:
            return JSONResponse(_error(error.message, "invalid_request", error.field), status_code=400)
        limits = self._jobs.service.limits
        job = self._jobs.job(
            prompt,
            received=received,
            principal=principal_of(request.scope),
            max_tokens=limits.max_tokens if body.n_predict < 0 else body.n_predict,
            stop=Stop(strings=body.stop, min_indent=body.n_indent if body.n_indent > 0 else None),
            temperature=max(0.0, body.temperature or 0.0),
            prefill_only=body.n_predict == 0,
            traceparent=request.headers.get("traceparent", ""),
        )
        if body.stream and body.n_predict != 0:
            return self._stream(body, job, truncated)
        return await self._whole(request, body, job, truncated)

    async def _prompt(self, body: _Body) -> tuple[Prompt, bool]:
        """Render; drop extra files, then far lines, until it fits beside what is to be generated."""
        renderer = self._jobs.renderer
        room = max(1, min(max(body.n_predict, 1), renderer.context_limit_tokens // 4))
        limit = renderer.context_limit_tokens - room
        files = [(extra.filename or "extra", extra.text) for extra in body.input_extra]
        if any("\n" in name or "\r" in name for name, _ in files):
            raise InvalidRequest("input_extra", "a filename has no line ending")
        prefix, suffix = body.input_prefix, body.input_suffix
        truncated = False
        while True:
            segments = fim_segments(
                renderer.grammar, prefix, suffix, typed=body.prompt, files=files, layout=self._profile.layout
            )
            prompt = await renderer.encode(segments, check=False)
            if len(prompt.ids) <= limit:
                return prompt, truncated
            truncated = True
            if files:
                files = files[:-1]
            elif prefix or suffix:
                share = 0.95 * limit / len(prompt.ids)
                prefix, suffix = _last_lines(prefix, share), _first_lines(suffix, share)
            else:
                raise InvalidRequest(
                    "prompt", f"the typed line alone is {len(prompt.ids)} tokens, the model takes {limit}"
                )

    async def _whole(self, request: Request, body: _Body, job: Job, truncated: bool) -> Response:
        found = await all_text(request, lambda deliver: self._run(body, job, deliver))
        if found is None:
            return Response(status_code=HTTP_STATUS[Reason.DISCONNECTED])
        text, outcome = found
        if outcome.refusal is not None:
            return refused(outcome, _error)
        return JSONResponse(_pick(self._answer(text, outcome, truncated, body.n_predict), body.response_fields))

    def _stream(self, body: _Body, job: Job, truncated: bool) -> Response:
        def on_delta(delta: TextDelta) -> bytes:
            return _event({"content": delta.text, "stop": False})

        def on_end(outcome: Outcome) -> bytes:
            if outcome.refusal is not None:
                return _event(_error(outcome.refusal.message, str(outcome.refusal.code), None))
            return _event(_pick(self._answer("", outcome, truncated, body.n_predict), body.response_fields))

        return EventStream(
            lambda deliver: self._run(body, job, deliver),
            on_delta=on_delta,
            on_end=on_end,
            on_refusal=lambda outcome: refused(outcome, _error),
        )

    async def _run(self, body: _Body, job: Job, deliver: Callable[[TextDelta], None]) -> Outcome:
        """Serve; after `t_max_predict_ms` of generation, once a line is complete, the request ends as if at its limit."""
        if body.t_max_predict_ms <= 0:
            return await self._jobs.service.run(job, deliver)
        loop = asyncio.get_running_loop()
        first_text: float | None = None

        def watch(delta: TextDelta) -> None:
            nonlocal first_text
            first_text = first_text if first_text is not None else loop.time()
            deliver(delta)
            if "\n" in delta.text and (loop.time() - first_text) * 1000 > body.t_max_predict_ms:
                self._jobs.service.finish(job.key)

        return await self._jobs.service.run(job, watch)

    def _answer(self, content: str, outcome: Outcome, truncated: bool, predict: int) -> dict[str, Any]:
        usage, timings = outcome.usage, outcome.timings_ms
        computed = max(0, usage.prompt_tokens - usage.cached_tokens)
        predicted_ms = timings.decode_first + timings.stream
        return {
            "index": 0,
            "content": content,
            "stop": True,
            "model": self._profile.model,
            "tokens_predicted": usage.generated_tokens,
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_cached": usage.prompt_tokens + usage.generated_tokens,
            "truncated": truncated,
            # llama.vscode reads n_ctx for its status bar and stops short of its own cache where there is none.
            "generation_settings": {
                "n_ctx": self._profile.context_limit_tokens,
                "n_predict": predict,
            },
            "stop_type": _STOP_TYPES.get(outcome.reason, "eos"),
            "timings": {
                "cache_n": usage.cached_tokens,
                **_rate("prompt", computed, timings.prefill),
                **_rate("predicted", usage.generated_tokens, predicted_ms),
            },
        }


def _rate(name: str, count: int, duration_ms: float) -> dict[str, float]:
    return {
        f"{name}_n": count,
        f"{name}_ms": duration_ms,
        f"{name}_per_token_ms": duration_ms / count if count else 0.0,
        f"{name}_per_second": 1000 * count / duration_ms if duration_ms > 0 else 0.0,
    }


def _pick(answer: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Only the named fields; a path such as `timings/prompt_n` becomes a key of that very name, as in llama.cpp."""
    if not fields:
        return answer
    picked: dict[str, Any] = {}
    for field in fields:
        value: Any = answer
        for part in field.split("/"):
            value = value.get(part) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if value is not None:
            picked[field] = value
    return picked


def _last_lines(text: str, share: float) -> str:
    start = len(text) - int(len(text) * share)
    newline = text.find("\n", start)
    return text[newline + 1 :] if newline >= 0 else ""


def _first_lines(text: str, share: float) -> str:
    return text[: text.rfind("\n", 0, int(len(text) * share)) + 1]


def _error(message: str, code: str, field: str | None) -> dict[str, Any]:
    where = f"{field}: " if field else ""
    invalid = code in ("invalid_request", "tokenizer_mismatch")
    return {
        "error": {
            "code": 400 if invalid else 503,
            "message": where + message,
            "type": "invalid_request_error" if invalid else "unavailable_error",
        }
    }


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
