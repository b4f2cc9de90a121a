"""Questions about the next edit: rendered in the format of the model, served as any request, and answered with one edit or none."""

from __future__ import annotations

from typing import Final, NamedTuple

from foretype_context.edit_models.answer import AnswerReader, Nothing, ReadAnswer
from foretype_context.edit_models.prompt import EditPrompt, EditPrompts
from foretype_context.edit_models.question import EditQuestion
from foretype_context.errors import EditQuestionError
from foretype_context.prompt.profile import Stop
from foretype_wire.errors import InvalidRequestError
from foretype_wire.messages import Finish, RequestClass

from foretype_backend.admission.outcomes import Reason
from foretype_backend.identity.directory import Principal
from foretype_backend.serving.completion import AdmittedRequest, Asked, Claim, CompletionOutcome
from foretype_backend.serving.encoding import INLINE_CHARS, EncodePool, is_short
from foretype_backend.serving.output_text import TextDelta
from foretype_backend.serving.render import Prompt
from foretype_backend.serving.service import CompletionService

NO_EDIT_MODEL: Final = (
    "this gateway has no model that predicts next edits; name one as model.next_edit or in [pool.next_edit]"
)
_WHOLE: Final = (Reason.END_OF_MIDDLE, Reason.STOP)
_MAX_STOPS: Final = 4


class EditOutcome(NamedTuple):
    """`taken` is what an answer came to; it holds no edit if the request ended without an answer."""

    taken: ReadAnswer
    outcome: CompletionOutcome


class NextEditService:
    """One model for next edits, behind the admission of its service.

    Args:
        context_limit_tokens: prompt and answer together.
    """

    def __init__(
        self,
        service: CompletionService,
        prompts: EditPrompts,
        *,
        context_limit_tokens: int,
        pool: EncodePool | None = None,
    ) -> None:
        self.service = service
        self._prompts = prompts
        self._limit_tokens = context_limit_tokens
        self._pool = pool or EncodePool()
        self._end_token_ids = prompts.end_token_ids
        self._shown = prompts.shown
        # For engines that know no ids; whatever they do not stop at is not taken.
        self._stop = Stop(strings=list(prompts.format.end_tokens[:_MAX_STOPS]))

    def claim(self, principal: Principal, question: EditQuestion) -> Claim:
        """Before the prompt is encoded. Raises BudgetExceededError."""
        return self.service.claim(
            principal,
            RequestClass.NEXT_EDIT,
            characters=question.characters,
            context_tokens=self._limit_tokens,
            max_tokens=len(question.window) // 4,
        )

    async def encode(self, question: EditQuestion, *, tenant: str = "") -> EditPrompt:
        """Raises InvalidRequestError, which names the field of the question."""
        texts = [question.window, question.above, question.below, *(one.text for one in question.related)]
        most = self.service.limits.max_tokens
        try:
            if question.characters <= INLINE_CHARS and all(map(is_short, texts)):
                prompt = self._encode(question)
            else:
                prompt = await self._pool.run(tenant, lambda: self._encode(question))
        except EditQuestionError as error:
            raise InvalidRequestError(f"question.{error.field}", error.message) from error
        if prompt.answer_tokens > most:
            told = f"may take {prompt.answer_tokens} tokens to answer, more than the {most} of limits.max_tokens; send fewer lines"
            raise InvalidRequestError("question.window", told)
        return prompt

    def _encode(self, question: EditQuestion) -> EditPrompt:
        return self._prompts.encode(question, most_tokens=self._limit_tokens)

    async def run(self, asked: Asked, prompt: EditPrompt, claim: Claim) -> EditOutcome:
        """Serve one question."""
        job = AdmittedRequest.of(
            asked,
            Prompt(ids=prompt.ids, text=prompt.text),
            claim,
            max_tokens=prompt.answer_tokens,
            context_tokens=self._limit_tokens,
            stop=self._stop,
            end_token_ids=self._end_token_ids,
            shown=self._shown,
        )
        reader = AnswerReader(self._prompts.format, prompt.question)

        def deliver(delta: TextDelta) -> None:
            if reader.feed(delta.text):
                self.service.finish(asked.key)

        outcome = await self.service.run(job, deliver)
        if outcome.rest is not None:
            reader.feed(outcome.rest.text)
        if outcome.finish in (None, Finish.CANCELLED):
            return EditOutcome(ReadAnswer(None, Nothing.CUT), outcome)
        return EditOutcome(reader.end(whole=outcome.reason in _WHOLE), outcome)
