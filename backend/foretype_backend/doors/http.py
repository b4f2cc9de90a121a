"""What the HTTP doors share: bodies, prompts of stateless clients, and answers that end when the client leaves."""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from foretype_context.prompt.profile import Stop
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_context.prompt.templates import PSM_GROWING, SPM, Grammar, IdsOf
from foretype_wire.errors import InvalidRequestError
from foretype_wire.messages import RequestClass
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from foretype_backend.admission.outcomes import HTTP_STATUS, Reason
from foretype_backend.doors.auth import headers_of, principal_of, turn_of
from foretype_backend.doors.contract import DocumentedAnswer
from foretype_backend.identity.directory import Principal
from foretype_backend.serving.completion import Claim
from foretype_backend.serving.encoded_texts import RememberedPrompts
from foretype_backend.serving.output_text import TextDelta, joined
from foretype_backend.serving.render import Prompt, Renderer
from foretype_backend.serving.service import AdmittedRequest, Asked, CompletionOutcome, CompletionService
from foretype_backend.transport.http_protocol import all_here, body_channel

OUTCOME: Final = "x-foretype-outcome"
"""Header that says why an answer is empty."""
BODY_S: float = 30.0
"""A client that sends its body slowly keeps a connection no longer than this."""

_JSON: Final = "application/json"
_HEADERS: Final = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))

_T = TypeVar("_T")


async def read_body(request: Request, type_: type[_T], *, max_bytes: int) -> _T:
    """Read a JSON body into a struct, which says whether it takes unknown fields. Raises InvalidRequestError naming the field.

    A body of another content type is refused: any web page can make a browser send plain text here without asking us first.
    """
    named = headers_of(request.scope).get("content-type", _JSON)
    if named.partition(";")[0].strip().lower() != _JSON:
        raise InvalidRequestError("Content-Type", f"must be {_JSON}, not {named[:64]}")
    if all_here(request.scope):
        body = await _received(request.receive, max_bytes)
    else:
        try:
            async with asyncio.timeout(BODY_S):
                body = await _received(request.receive, max_bytes)
        except TimeoutError:
            raise InvalidRequestError("body", f"did not arrive within {BODY_S:g} s") from None
    began = time.perf_counter()
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$.").removeprefix("$")
        if message.startswith("Object contains unknown field"):
            unknown = message.split("`")[1]
            raise InvalidRequestError(
                f"{field}.{unknown}" if field else unknown, "not known here; leave it out"
            ) from error
        if not field and message.startswith("Object missing required field"):
            field = message.split("`")[1]
        raise InvalidRequestError(field or "body", message) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidRequestError("body", f"no readable JSON: {type(error).__name__}") from error
    finally:
        turn = turn_of(request.scope)
        if turn is not None:
            turn.spend(time.perf_counter() - began)


async def _received(receive: Receive, max_bytes: int) -> bytearray:
    """A whole body. Starlette's own way takes a generator for each, which the event loop has to keep a list of."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise InvalidRequestError("body", f"larger than {max_bytes} bytes")
        more = message.get("more_body", False)
    return body


def fim_segments(
    grammar: Grammar,
    prefix: str,
    suffix: str,
    *,
    typed: str = "",
    files: Sequence[tuple[str, str]] = (),
    layout: str = "",
) -> list[Segment]:
    """The prompt of a stateless client: the suffix first where the layout is `spm`, else the typed part of the line last. No suffix where the grammar has none.

    Nothing is frozen, so a hole that grows is always fresh.

    Args:
        prefix: text left of the cursor; what follows its last line ending counts as typed.
        typed: more typed text, for clients that send it apart.
        files: pieces of other files as (path, text).
    """

    def segment(kind: Kind, text: str, path: str = "") -> Segment:
        return Segment(kind=kind, scope=Scope.SESSION, source=Source(path=path), text=text)

    context = [segment(Kind.FILE, text if text.endswith("\n") else f"{text}\n", name) for name, text in files]
    if context:
        context.append(segment(Kind.PATH, ""))
    whole = prefix + typed
    if not grammar.sees_below:
        return [*context, segment(Kind.PREFIX, whole)]
    if grammar.suffix_first:
        return [segment(Kind.SUFFIX, suffix), *context, segment(Kind.PREFIX, whole)]
    if layout == SPM or grammar.plain:
        return [*context, segment(Kind.SUFFIX, suffix), segment(Kind.PREFIX, whole)]
    hole = whole.rfind("\n") + 1
    for _ in range(grammar.fresh_lines if layout == PSM_GROWING else 0):
        hole = whole.rfind("\n", 0, max(hole - 1, 0)) + 1
    parts = [*context, segment(Kind.PREFIX, whole[:hole])]
    if grammar.tail:
        tail, _, below = suffix.partition("\n")
        parts += [segment(Kind.SUFFIX, below), segment(Kind.TAIL, tail.removesuffix("\r"))]
    else:
        parts.append(segment(Kind.SUFFIX, suffix))
    return [*parts, segment(Kind.MIDDLE, whole[hole:])]


class HttpJobs:
    """Makes jobs of the requests of stateless clients."""

    def __init__(self, service: CompletionService, renderer: Renderer) -> None:
        self.service = service
        self.renderer = renderer
        self._numbers = itertools.count(1)
        self._prompts = RememberedPrompts(renderer.tokenizer)

    def ids_of(self, principal: Principal) -> IdsOf:
        """Gives ids of this sender's texts, on the event loop alone; what was sent lately with the same credential is remembered."""
        return functools.partial(self._prompts.ids_of, f"{principal.tenant}/{principal.credential}")

    def forget(self) -> None:
        """Drop all that is remembered of texts."""
        self._prompts.ids_of.forget()

    def claim(self, principal: Principal, *, characters: int, max_tokens: int) -> Claim:
        """Claim the request's budgets before its prompt is encoded. Raises BudgetExceededError."""
        return self.service.claim(
            principal,
            RequestClass.INTERACTIVE,
            characters=characters,
            context_tokens=self.renderer.context_limit_tokens,
            max_tokens=max(0, min(max_tokens, self.service.limits.max_tokens)),
        )

    def job(
        self,
        request: Request,
        prompt: Prompt,
        claim: Claim,
        *,
        received: float,
        max_tokens: int,
        stop: Stop,
        temperature: float | None,
        prefill_only: bool,
    ) -> AdmittedRequest:
        asked = asked_by(request, f"h{next(self._numbers)}", self.service, received)
        return AdmittedRequest.of(
            msgspec.structs.replace(
                asked, objective="fim", temperature=max(0.0, temperature or 0.0), prefill_only=prefill_only
            ),
            prompt,
            claim,
            max_tokens=min(max_tokens, self.service.limits.max_tokens),
            context_tokens=self.renderer.context_limit_tokens,
            # Clients of the stream get the grammar's own stop strings in the profile.
            stop=msgspec.structs.replace(stop, strings=[*stop.strings, *self.renderer.grammar.stops]),
        )


def asked_by(
    request: Request,
    name: str,
    service: CompletionService,
    received: float,
    class_: RequestClass = RequestClass.INTERACTIVE,
    *,
    deadline_ms: float = math.inf,
    language: str = "",
) -> Asked:
    """What is known of a request without a session: each counts as a session of its own."""
    return Asked(
        key=name,
        session=name,
        received=received,
        deadline=service.deadline(deadline_ms),
        class_=class_,
        principal=principal_of(request.scope),
        language=language,
        traceparent=headers_of(request.scope).get("traceparent", ""),
    )


async def all_text(
    request: Request, run: Callable[[Callable[[TextDelta], None]], Awaitable[CompletionOutcome]]
) -> tuple[str, CompletionOutcome] | None:
    """Run a completion to its end; cancel it and return None when the client leaves first. The body must have been read."""
    parts: list[str] = []
    outcome = await body_channel(request.scope).while_connected(run(lambda delta: parts.append(delta.text)))
    if outcome is None:
        return None
    return "".join(parts) + (outcome.rest.text if outcome.rest is not None else ""), outcome


def completion_errors(form: type) -> dict[int, DocumentedAnswer]:
    """The answers of the completion doors where there is no completion; `form` is the type of an error."""
    return {
        400: DocumentedAnswer("a field is wrong, and which", [form]),
        404: DocumentedAnswer("no such model here", [form]),
        408: DocumentedAnswer("too late to be of use", [form]),
        429: DocumentedAnswer("a budget is used up; `Retry-After` says how long", [form]),
        499: DocumentedAnswer("ended by the client: it went away", [form]),
        500: DocumentedAnswer("a fault of the gateway", [form]),
        503: DocumentedAnswer("overloaded, or no engine", [form]),
    }


def was_shed(outcome: CompletionOutcome) -> bool:
    """Whether load alone is the reason. A compatibility door then answers with an empty completion: its client would show an error, or try again."""
    return outcome.reason is Reason.OVERLOADED


def refused(outcome: CompletionOutcome, body: Callable[[str, str, str | None], Any]) -> Response:
    """The HTTP answer to an outcome that is no completion. `body` takes message, code and field."""
    status = HTTP_STATUS[outcome.reason]
    refusal = outcome.refusal
    message = refusal.message if refusal is not None else str(outcome.reason)
    response = JSONResponse(
        body(message, str(refusal.code if refusal is not None else outcome.reason), refusal.field if refusal else None),
        status_code=status,
    )
    if refusal is not None and refusal.retry_after_ms is not None:
        response.headers["Retry-After"] = str(max(1, round(refusal.retry_after_ms / 1000)))
    return response


class EventStream(Response):
    """Server-sent events of one completion.

    The status line waits for the first text or the end, so that a refusal still gets a status of its own. When the client
    leaves, the completion is cancelled at once, also before its first token. Text that a slow client has not taken yet is joined into one event.

    Args:
        empty_when_shed: a request refused for load alone gets an empty completion, see :func:`was_shed`.
    """

    media_type = "text/event-stream"
    background = None

    def __init__(
        self,
        run: Callable[[Callable[[TextDelta], None]], Awaitable[CompletionOutcome]],
        *,
        on_delta: Callable[[TextDelta], bytes],
        on_end: Callable[[CompletionOutcome], bytes],
        on_refusal: Callable[[CompletionOutcome], Response],
        empty_when_shed: bool = True,
    ) -> None:
        # Its head is the channel's: what a Response prepares for its own is left out.
        self._empty_when_shed = empty_when_shed
        self._run = run
        self._on_delta = on_delta
        self._on_end = on_end
        self._on_refusal = on_refusal

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        channel = body_channel(scope)
        waiting: TextDelta | None = None

        def deliver(delta: TextDelta) -> None:
            nonlocal waiting
            if channel.ready:
                channel.write(self._on_delta(delta), _HEADERS)
            else:
                waiting = joined(waiting, delta)

        def flush() -> None:
            nonlocal waiting
            if waiting is not None:
                delta, waiting = waiting, None
                deliver(delta)

        channel.on_writable = flush
        outcome = await channel.while_connected(self._run(deliver))
        if outcome is None:
            return
        refused = outcome.reason in HTTP_STATUS and not (self._empty_when_shed and was_shed(outcome))
        if refused and not channel.started and waiting is None:
            await self._on_refusal(outcome)(scope, receive, send)
            return
        if not channel.ready:
            await channel.drained()
        last = joined(waiting, outcome.rest)
        channel.end((b"" if last is None else self._on_delta(last)) + self._on_end(outcome), _HEADERS)
