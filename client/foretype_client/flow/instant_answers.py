"""Suggestions without waiting: the visible one, one from the cache, from the text that a request has so far, or from the local candidate."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
from foretype_context.syntax.blocks import SuggestionKind
from foretype_wire.subscriptions import Subscribers

from foretype_client.adaptive.candidates import LocalModel
from foretype_client.feedback.feedback import Feedback, FeedbackEvent
from foretype_client.flow.cache import CompletionCache
from foretype_client.flow.inflight import Flight, ReadyText
from foretype_client.flow.judgement import Candidate, SyntaxFilter, judge
from foretype_client.flow.open_documents import LastAnswer, TrackedDocument
from foretype_client.flow.question import Question
from foretype_client.flow.strands import Strand
from foretype_client.flow.suggestion import Origin, Outcome, Suggestion
from foretype_client.flow.type_through import TypeThrough
from foretype_client.policy.trigger import Trigger


class Answers:
    """Finds suggestions, and notes each that is given out. Everything here is synchronous; `now` is monotonic seconds.

    Attributes:
        noted: gets the feedback events of each suggestion that is given out.
        type_through: carries the visible suggestion on while its text is typed.
    """

    def __init__(
        self, cache: CompletionCache, feedback: Feedback, local: LocalModel | None, *, new_id: Callable[[], str]
    ) -> None:
        self.noted: Subscribers[list[FeedbackEvent]] = Subscribers()
        self._cache = cache
        self._feedback = feedback
        self._local = local
        self._new_id = new_id
        self.type_through: TypeThrough = TypeThrough(feedback, self._judge)
        self._syntax = SyntaxFilter()

    def visible(self, document: TrackedDocument, question: Question, now: float, *, local: bool) -> Suggestion | None:
        """The suggestion that is visible, if it is still right here: it stays, or grows, and never changes."""
        shown = self.type_through.shown(document)
        if shown is None or (shown.suggestion.source is Origin.LOCAL) is not local:
            return None
        rest = self.type_through.rest(document, question, now)
        if rest is None:
            return None
        return self._give(document, question, rest, shown.raw, shown.flight, shown.kind, now, previous=shown)

    def cached(self, document: TrackedDocument, question: Question, now: float) -> Suggestion | Outcome | None:
        """What the cache has: a suggestion, or that the model has none here; None if the cache does not know."""
        begins = question.selected_rest()
        hit = None if begins is None else self._cache.get(question.place, begins)
        if hit is None:
            return None
        entry = hit.entry
        candidate = Candidate(
            id=self._new_id(),
            text=hit.rest,
            kind=entry.kind,
            final=entry.whole,
            source=Origin.SPECULATIVE if entry.ahead else Origin.CACHE,
            request_id=entry.request_id,
            finish=entry.finish,
            usage=entry.usage,
            logprob=entry.mean_logprob,
            total_logprob=entry.logprob_of(hit.rest),
        )
        judged = self._judge(candidate, question, now)
        if isinstance(judged, Suggestion):
            return self._give(document, question, judged, entry.strand, None, entry.kind, now)
        # Asked again, the same model would say the same; only somebody who insists gets a second try.
        final = entry.whole and question.trigger is Trigger.AUTOMATIC and judged is not Outcome.SELECTED_MISMATCH
        return judged if final else None

    def from_flight(
        self,
        document: TrackedDocument,
        question: Question,
        flight: Flight,
        ready: ReadyText,
        *,
        own: bool,
        now: float,
    ) -> Suggestion | Outcome:
        """The suggestion from the part of a request's answer that may be shown, or why there is none."""
        candidate = Candidate(
            id=self._new_id(),
            text=ready.text,
            kind=ready.kind,
            final=ready.final,
            source=Origin.NETWORK if own else Origin.SPECULATIVE if flight.ahead else Origin.IN_FLIGHT,
            request_id=flight.id,
            finish=None if flight.done is None else flight.done.finish,
            usage=None if flight.done is None else flight.done.usage,
            timings_ms=flight.timings_ms(),
            logprob=flight.mean_logprob,
            total_logprob=flight.logprob_of(ready.text),
        )
        judged = self._judge(candidate, question, now)
        if isinstance(judged, Suggestion):
            return self._give(document, question, judged, flight.strand, flight, flight.kind, now)
        return judged

    def local(
        self, document: TrackedDocument, question: Question, now: float, *, min_confidence: float = 0.0
    ) -> Suggestion | None:
        """The candidate that needs no gateway, if its confidence is at least `min_confidence`."""
        judged = self._judge_local(question, now, min_confidence)
        if judged is None:
            return None
        strand = Strand(question.place, judged.text)
        return self._give(document, question, judged, strand, None, SuggestionKind.LINE, now)

    @property
    def searching(self) -> bool:
        """Whether the search for the last local candidate still goes on."""
        return self._local is not None and self._local.unfinished

    def needs_no_request(
        self, document: TrackedDocument, question: Question, now: float, *, min_confidence: float
    ) -> bool:
        """Whether the visible suggestion, the cache or a local candidate of this confidence answers the question without a request."""
        if self.type_through.leads_to(document, question) or self._cache.knows(question.place):
            return True
        return self._judge_local(question, now, min_confidence) is not None

    def learn(self, uri: str, text: str) -> None:
        if self._local is not None:
            self._local.learn(uri, text)

    def prepare(self, uri: str) -> None:
        """A document was opened and is about to be typed in."""
        if self._local is not None:
            self._local.prepare(uri)

    def _judge(self, candidate: Candidate, question: Question, now: float) -> Suggestion | Outcome:
        return judge(candidate, question, self._feedback, now, self._syntax)

    def _judge_local(self, question: Question, now: float, min_confidence: float) -> Suggestion | None:
        found = None if self._local is None else self._local.suggest(question.snapshot, question.offset)
        # The model's own lines are shown from this chance on; the local candidate must reach it too.
        least = max(min_confidence, question.line_chance.least)
        if found is None or not found.text or found.confidence < least:
            return None
        kind = SuggestionKind.LINE
        candidate = Candidate(id=self._new_id(), text=found.text, kind=kind, final=True, source=Origin.LOCAL)
        judged = self._judge(candidate, question, now)
        if not isinstance(judged, Suggestion):
            return None
        return msgspec.structs.replace(judged, logprob=math.log(found.confidence))

    def _give(
        self,
        document: TrackedDocument,
        question: Question,
        suggestion: Suggestion,
        raw: Strand,
        flight: Flight | None,
        kind: SuggestionKind,
        now: float,
        *,
        previous: LastAnswer | None = None,
    ) -> Suggestion:
        """Note that `suggestion` is the answer, and is visible from now on; `previous` is the same one, as it was given before."""
        made, lead = (question, raw.typed(question.place) or 0) if previous is None else (previous.made, previous.lead)
        moves, finished = (0, None) if previous is None else (previous.moves, previous.finished)
        answer = LastAnswer(suggestion, made, question, raw, lead, flight, kind, suggestion.text, now, moves, finished)
        document.give(answer)
        events = self._feedback.offered(
            suggestion.id,
            question.snapshot,
            question.offset,
            place=question.place,
            text=suggestion.text,
            replaces=suggestion.replaces,
            source=suggestion.source,
            now=now,
        )
        self.noted.tell(events)
        return suggestion
