"""The completions of one connection of the stream door: from a `complete` on the wire to an admitted request, and its answer back.

Within the frame's own turn a request passes the segment cache, the session's rules and the budget, and what is short is encoded; from
there on it is a task of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol

from foretype_context.prompt.segments import Segment
from foretype_wire.errors import InvalidRequestError
from foretype_wire.gateway_protocol import GatewaySession, invalid
from foretype_wire.messages import (
    Complete,
    Done,
    Error,
    ErrorCode,
    Finish,
    GatewayMessage,
    Need,
    RequestClass,
    WireSegment,
)

from foretype_backend.admission.outcomes import Reason
from foretype_backend.doors.remembered_texts import RememberedTexts
from foretype_backend.doors.stream_answers import LiveRequest, RequestHost, StreamAnswers, answer_of, delta_of
from foretype_backend.errors import BudgetExceededError
from foretype_backend.identity.directory import Principal
from foretype_backend.serving.completion import Claim
from foretype_backend.serving.output_text import TextDelta
from foretype_backend.serving.render import Prompt, Renderer, Resolved, check_order
from foretype_backend.serving.served_revision import BlockPool, ServedRevision
from foretype_backend.serving.service import AdmittedRequest, Asked, CompletionOutcome, CompletionService

_FOR_EITHER = (RequestClass.INTERACTIVE, RequestClass.BLOCK, RequestClass.SPECULATIVE)
"""Classes that more than one pool can answer."""


_ON_ITS_WAY_S: Final = 2.0
"""How long after a client was told another profile a request may come that was planned by the former one."""


class CompletionHost(RequestHost, Protocol):
    """What completions need of their door."""

    main: ServedRevision
    block: BlockPool | None


class StreamCompletions(StreamAnswers[CompletionHost]):
    """See the module; arguments are those of :class:`StreamAnswers`."""

    __slots__ = ("_former", "_revision", "_texts", "pool")

    kind = "completion"

    def __init__(
        self,
        door: CompletionHost,
        session: GatewaySession,
        principal: Principal,
        texts: RememberedTexts,
        *,
        live: dict[str, LiveRequest],
        send: Callable[..., None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        super().__init__(door, session, principal, live=live, send=send, spawn=spawn)
        self._texts = texts
        self.pool: str | None = None
        """`fast` or `quality`, where an experiment says which one answers."""
        self._revision = door.main
        self._former: tuple[ServedRevision, float] | None = None  # until when what is on its way may be for it

    def use(self, revision: ServedRevision) -> None:
        """The client is told another profile now. Requests that it sent before it heard of that go to the former revision."""
        if revision is not self._revision:
            self._former = self._revision, self._loop.time() + _ON_ITS_WAY_S
            self._revision = revision
            self._texts.use(revision.renderer)

    def take(self, message: Complete[WireSegment]) -> None:
        """Take a completion in the order of the wire: the segment cache first, whatever becomes of the request."""
        received = self._revision.service.clock()
        revision = self._planned_for(message)
        found = Resolved()
        fault: InvalidRequestError | None = None
        try:
            if self._session.hello is not None:  # of somebody who has not said it nothing is kept
                found = self._texts.resolve(message, revision.renderer.grammar)
        except InvalidRequestError as error:
            fault = error
        if not self._let_in(message, fault):
            return
        if found.missing:
            self._send(Need(id=message.id, digests=list(found.missing)))
            return
        if not self._has_room(message.id):
            return
        self._supersede(message.supersedes)
        try:
            early = self._early(message, found.segments, revision)
        except InvalidRequestError as error:
            self._send(invalid(error, id=message.id))
        except BudgetExceededError as limited:
            self._send(*answer_of(message.id, limited.outcome))
        else:
            asked = self._asked(
                message,
                message.class_,
                received=received,
                deadline=revision.service.deadline(message.deadline_ms),
                prefill_only=_is_warm(message),
            )
            question = _Question(message, found.segments, asked)
            self._begin(message.id, early.claim, lambda live: self._answer(live, question, early))

    def _planned_for(self, message: Complete[WireSegment]) -> ServedRevision:
        """The revision whose profile a client had when it asked, by what only fits the former one's grammar."""
        former = self._still_former()
        if former is not None and not _fits(message, self._revision) and _fits(message, former):
            return former
        return self._revision

    def _still_former(self) -> ServedRevision | None:
        if self._former is None or self._former[1] < self._loop.time():
            self._former = None
            return None
        return self._former[0]

    def _early(self, message: Complete[WireSegment], segments: Sequence[Segment], revision: ServedRevision) -> _Early:
        """Within the frame's own turn: claim the budget, then encode what is short. Raises BudgetExceededError and InvalidRequestError."""
        claim = self._claim(message, segments, revision)
        if self._block(message.class_) is not None:
            return _Early(claim, None, revision)
        try:
            own = revision is self._revision
            prompt = revision.renderer.at_once(segments, self._texts.encoder() if own else None)
            former = self._still_former() if own else None
            if former is not None and prompt is not None and message.prompt_tokens not in (None, len(prompt.ids)):
                other = former.renderer.at_once(segments)  # who counts as the former tokenizer does had its profile
                if other is not None and message.prompt_tokens == len(other.ids):
                    revision, prompt = former, other
        except BaseException:
            claim.settle()
            raise
        return _Early(claim, prompt, revision)

    def _block(self, class_: RequestClass) -> BlockPool | None:
        """The pool of larger models, where it answers requests of this class; None for the fast one."""
        wanted = class_ is RequestClass.BLOCK if self.pool is None else self.pool == "quality"
        return self._door.block if wanted and class_ in _FOR_EITHER else None

    def _claim(self, message: Complete[WireSegment], segments: Sequence[Segment], revision: ServedRevision) -> Claim:
        opened = message.stop.opened
        most = 0 if _is_warm(message) else max(message.max_tokens, 0 if opened is None else opened.max_tokens)
        characters = sum([len(segment.text) for segment in segments])
        context = revision.renderer.context_limit_tokens
        return revision.service.claim(
            self._principal, message.class_, characters=characters, context_tokens=context, max_tokens=most
        )

    async def _answer(self, live: LiveRequest, question: _Question, early: _Early) -> tuple[GatewayMessage, ...]:
        message, revision, claim = question.message, early.revision, early.claim
        block = self._block(message.class_)
        if block is not None:
            outcome = await self._run(live, question, block.service, block.renderer, claim)
            lost = isinstance(outcome, CompletionOutcome) and outcome.reason is Reason.ENGINE_LOST
            if not (lost and block.fails_over) or live.answered:
                return answer_of(message.id, outcome)
            claim = self._claim(message, question.segments, revision)
        with claim:
            outcome = await self._run(live, question, revision.service, revision.renderer, claim, early.prompt)
        return answer_of(message.id, outcome)

    async def _run(
        self,
        live: LiveRequest,
        question: _Question,
        service: CompletionService,
        renderer: Renderer,
        claim: Claim,
        prompt: Prompt | None = None,
    ) -> CompletionOutcome | GatewayMessage:
        """Serve in one pool; a message where the request never got so far."""
        message = question.message
        own = self._door.block is None or renderer is not self._door.block.renderer
        if prompt is None:
            encoder = self._texts.encoder() if renderer is self._revision.renderer else None
            prompt = await renderer.encode(question.segments, encoder=encoder, tenant=self._principal.tenant)
        claim.counted(len(prompt.ids))
        if live.stopped:
            service.metrics.refused(message.class_, Reason.CANCELLED)
            return Done(id=message.id, finish=Finish.CANCELLED)
        if own and message.prompt_tokens is not None and message.prompt_tokens != len(prompt.ids):
            service.metrics.refused(message.class_, Reason.MISMATCH)
            told = f"the client counted {message.prompt_tokens} prompt tokens, the gateway {len(prompt.ids)}"
            return Error(code=ErrorCode.TOKENIZER_MISMATCH, id=message.id, field="prompt_tokens", message=told)
        most, context = message.max_tokens, renderer.context_limit_tokens
        job = AdmittedRequest.of(
            question.asked, prompt, claim, max_tokens=most, context_tokens=context, stop=message.stop
        )

        def deliver(delta: TextDelta) -> None:
            live.text_was_sent()
            self._send(delta_of(message.id, delta))

        with live.run_by(service):
            return await service.run(job, deliver)


def _fits(message: Complete[WireSegment], revision: ServedRevision) -> bool:
    try:
        check_order([one.kind for one in message.segments], revision.renderer.grammar)
    except InvalidRequestError:
        return False
    return True


class _Question(NamedTuple):
    """What a client wants completed, and what else is known of it."""

    message: Complete[WireSegment]
    segments: Sequence[Segment]
    asked: Asked


class _Early(NamedTuple):
    """What a request has when its frame is done with: a claim, its prompt where that was short, and who answers."""

    claim: Claim
    prompt: Prompt | None
    revision: ServedRevision


def _is_warm(message: Complete[WireSegment]) -> bool:
    return message.class_ is RequestClass.WARM or message.max_tokens == 0
