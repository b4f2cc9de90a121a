"""llama.cpp's `/infill`, as llama.vim and llama.vscode speak it.

`prompt` is the typed part of the cursor's line and stands after the middle token, so typing is append-only. `n_predict: 0`
warms the prefix cache and generates nothing. A prompt over the context is cut at line ends, farthest from the cursor first,
and answered with `truncated: true`, as llama.cpp does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from foretype_context.prompt.profile import Profile, Stop
from foretype_context.prompt.segments import Kind, Segment
from foretype_wire.errors import InvalidRequestError
from foretype_wire.gateway_protocol import check_stop
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foretype_backend.admission.outcomes import HTTP_STATUS, Reason
from foretype_backend.doors.answers.errors import InfillError
from foretype_backend.doors.answers.llama_cpp import InfillAnswer
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
from foretype_backend.errors import BudgetExceededError
from foretype_backend.identity.directory import Principal
from foretype_backend.serving.output_text import TextDelta
from foretype_backend.serving.render import MAX_PATH_CHARS, MAX_PROMPT_CHARS, Prompt
from foretype_backend.serving.service import AdmittedRequest, CompletionOutcome

_DEFAULT_PREDICT: Final = 128
_FILES_MAX: Final = 256
"""Pieces of other files that are looked at; a context holds fewer."""
_CUTS_MAX: Final = 3
"""Attempts to cut a prompt to the context before everything but the typed line is dropped."""
_LINES: Final = (Kind.PREFIX, Kind.SUFFIX, Kind.TAIL)
_Files = list[tuple[str, str]]
_STOP_TYPES: Final = {Reason.STOP: "word", Reason.LENGTH: "limit", Reason.EXPIRED: "limit"}


class ExtraFile(msgspec.Struct, frozen=True):
    text: str | None = None
    filename: str | None = None


if TYPE_CHECKING:
    _Extras = msgspec.Struct
else:
    _Extras = msgspec.defstruct(
        "ExtraFiles", [(f"_{at}", ExtraFile | None, None) for at in range(_FILES_MAX)], array_like=True, frozen=True
    )
"""A list of which no more than the first files are made: a megabyte of `{}` would be 350,000 objects."""
_Stop = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": 256})]


class InfillRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`prompt` is the typed part of the cursor's line; of `input_extra` the first 256 are looked at. Null counts as left out."""

    input_prefix: str | None = None
    input_suffix: str | None = None
    input_extra: _Extras | None = None
    prompt: str | None = None
    n_predict: int | None = None
    n_indent: int | None = None
    t_max_predict_ms: float | None = None
    temperature: float | None = None
    stop: Annotated[list[_Stop], msgspec.Meta(extra_json_schema={"maxItems": 16})] | None = None
    response_fields: list[str] | None = None
    stream: bool | None = None

    @property
    def predict_tokens(self) -> int:
        return _DEFAULT_PREDICT if self.n_predict is None else self.n_predict


class InfillDoor:
    def __init__(self, jobs: HttpJobs, profile: Profile, *, max_body_bytes: int) -> None:
        self._jobs = jobs
        self._profile = profile
        self._max_body_bytes = max_body_bytes

    def register(self, app: DocumentedApp) -> None:
        answers = {
            200: DocumentedAnswer("the text", [InfillAnswer], [InfillAnswer, InfillError]),
            **completion_errors(InfillError),
        }
        app.door("POST", "/infill", self.infill, tag="completions", takes=InfillRequest, answers=answers, direct=True)

    async def infill(self, request: Request) -> Response:
        """Fill in at a cursor, as llama.cpp's server does.

        Fields that are not named here are ignored. `n_predict: 0` warms the prefix cache and generates nothing.
        """
        received = self._jobs.service.clock()
        principal = principal_of(request.scope)
        limits = self._jobs.service.limits
        try:
            body = await read_body(request, InfillRequest, max_bytes=self._max_body_bytes)
            stop = body.stop or []
            check_stop(stop, None, None)
            files = _files(body)
            wanted = limits.max_tokens if body.predict_tokens < 0 else body.predict_tokens
            with self._jobs.claim(principal, characters=_characters(body, files), max_tokens=wanted) as claim:
                prompt, truncated = await self._prompt(body, files, principal)
                job = self._jobs.job(
                    request,
                    prompt,
                    claim,
                    received=received,
                    max_tokens=wanted,
                    stop=Stop(strings=stop, min_indent=max(0, body.n_indent or 0) or None),
                    temperature=body.temperature,
                    prefill_only=body.predict_tokens == 0,
                )
        except InvalidRequestError as error:
            return JSONResponse(_error(error.message, "invalid_request", error.field), status_code=400)
        except BudgetExceededError as limited:
            return refused(limited.outcome, _error)
        if body.stream and body.predict_tokens != 0:
            return self._stream(body, job, truncated)
        return await self._whole(request, body, job, truncated)

    async def _prompt(self, body: InfillRequest, files: _Files, principal: Principal) -> tuple[Prompt, bool]:
        """Render; drop extra files, then far lines, until it fits beside what is to be generated."""
        renderer = self._jobs.renderer
        whole = self._segments(body, files, body.input_prefix or "", body.input_suffix or "")
        prompt = renderer.at_once(whole, check=False, ids_of=self._jobs.ids_of(principal))
        if prompt is not None and len(prompt.ids) <= self._limit(body):
            return prompt, False
        return await renderer.pool.run(
            principal.tenant, lambda: self._cut(body, files, prompt or renderer.encode_now(whole))
        )

    def _cut(self, body: InfillRequest, files: _Files, prompt: Prompt) -> tuple[Prompt, bool]:
        """Every piece is counted once; what is dropped is known by its tokens, so that what is left is encoded once more."""
        limit = self._limit(body)
        prefix, suffix = body.input_prefix or "", body.input_suffix or ""
        for attempt in range(_CUTS_MAX + 1):
            if len(prompt.ids) <= limit:
                return prompt, attempt > 0
            if attempt < _CUTS_MAX:
                files, prefix, suffix = _smaller(files, prefix, suffix, prompt, limit)
            else:
                files, prefix, suffix = [], "", ""
            prompt = self._jobs.renderer.encode_now(self._segments(body, files, prefix, suffix))
        if len(prompt.ids) <= limit:
            return prompt, True
        raise InvalidRequestError(
            "prompt", f"the typed line alone is {len(prompt.ids)} tokens, the model takes {limit}"
        )

    def _limit(self, body: InfillRequest) -> int:
        """Most tokens of a prompt that leave room for what is to be generated."""
        context = self._jobs.renderer.context_limit_tokens
        return context - max(1, min(max(body.predict_tokens, 1), context // 4))

    def _segments(self, body: InfillRequest, files: _Files, prefix: str, suffix: str) -> list[Segment]:
        grammar, layout = self._jobs.renderer.grammar, self._profile.layout
        return fim_segments(grammar, prefix, suffix, typed=body.prompt or "", files=files, layout=layout)

    async def _whole(self, request: Request, body: InfillRequest, job: AdmittedRequest, truncated: bool) -> Response:
        found = await all_text(request, lambda deliver: self._run(body, job, deliver))
        if found is None:
            return Response(status_code=HTTP_STATUS[Reason.DISCONNECTED])
        text, outcome = found
        if outcome.refusal is not None and not was_shed(outcome):
            return refused(outcome, _error)
        answer = _pick(self._answer(text, outcome, truncated, body.predict_tokens), body.response_fields or ())
        return JSONResponse(answer, headers={OUTCOME: str(outcome.reason)} if was_shed(outcome) else None)

    def _stream(self, body: InfillRequest, job: AdmittedRequest, truncated: bool) -> Response:
        def on_delta(delta: TextDelta) -> bytes:
            return _event({"content": delta.text, "stop": False})

        def on_end(outcome: CompletionOutcome) -> bytes:
            if outcome.refusal is not None and not was_shed(outcome):
                return _event(_error(outcome.refusal.message, str(outcome.refusal.code), None))
            return _event(_pick(self._answer("", outcome, truncated, body.predict_tokens), body.response_fields or ()))

        return EventStream(
            lambda deliver: self._run(body, job, deliver),
            on_delta=on_delta,
            on_end=on_end,
            on_refusal=lambda outcome: refused(outcome, _error),
        )

    async def _run(
        self, body: InfillRequest, job: AdmittedRequest, deliver: Callable[[TextDelta], None]
    ) -> CompletionOutcome:
        """Serve; after `t_max_predict_ms` of generation, once a line is complete, the request ends as if at its limit."""
        limit_ms = body.t_max_predict_ms or 0.0
        if limit_ms <= 0:
            return await self._jobs.service.run(job, deliver)
        loop = asyncio.get_running_loop()
        first_text: float | None = None

        def watch(delta: TextDelta) -> None:
            nonlocal first_text
            first_text = first_text if first_text is not None else loop.time()
            deliver(delta)
            if "\n" in delta.text and (loop.time() - first_text) * 1000 > limit_ms:
                self._jobs.service.finish(job.key)

        return await self._jobs.service.run(job, watch)

    def _answer(self, content: str, outcome: CompletionOutcome, truncated: bool, predict: int) -> dict[str, Any]:
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


def _files(body: InfillRequest) -> _Files:
    """Of a body, checked. Raises InvalidRequestError."""
    given: tuple[ExtraFile | None, ...] = () if body.input_extra is None else msgspec.structs.astuple(body.input_extra)
    files = [(extra.filename or "extra", extra.text or "") for extra in given if extra is not None]
    if any("\n" in name or "\r" in name for name, _ in files):
        raise InvalidRequestError("input_extra", "a filename has no line ending")
    if any(len(name) > MAX_PATH_CHARS for name, _ in files):
        raise InvalidRequestError("input_extra", f"a filename has at most {MAX_PATH_CHARS} characters")
    size = _characters(body, files)
    if size > MAX_PROMPT_CHARS:
        raise InvalidRequestError("body", f"{size} characters of text, at most {MAX_PROMPT_CHARS} are allowed")
    return files


def _characters(body: InfillRequest, files: _Files) -> int:
    own = len(body.input_prefix or "") + len(body.input_suffix or "") + len(body.prompt or "")
    return own + sum(len(name) + len(text) for name, text in files)


def _smaller(files: _Files, prefix: str, suffix: str, prompt: Prompt, limit: int) -> tuple[_Files, str, str]:
    """Without the last files that are too many; where that is not enough, without the lines farthest from the cursor."""
    counts = [placed.end - placed.start for placed in prompt.placed if placed.segment.kind is Kind.FILE]
    over = len(prompt.ids) - limit
    while counts and over > 0:
        over -= counts.pop()
    files = files[: len(counts)]
    if over <= 0:
        return files, prefix, suffix
    lines = sum(placed.end - placed.start for placed in prompt.placed if placed.segment.kind in _LINES)
    share = 0.95 * max(0, lines - over) / max(1, lines)
    return files, _last_lines(prefix, share), _first_lines(suffix, share)


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
