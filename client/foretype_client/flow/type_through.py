"""The visible suggestion while the user types through it: it stays, or grows, and never changes. Synchronous."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from foretype_client.feedback.feedback import Feedback, VisibleSuggestion
from foretype_client.flow.inflight import Flight
from foretype_client.flow.judgement import Candidate
from foretype_client.flow.open_documents import LastAnswer, TrackedDocument
from foretype_client.flow.question import Question
from foretype_client.flow.suggestion import Origin, Outcome, Suggestion

__all__ = ["TypeThrough"]


class TypeThrough:
    """What of a visible suggestion is left where the cursor is now. Nothing is noted here but when it was drawn.

    Args:
        judge: whether a text is shown at a place; times are monotonic seconds.
    """

    def __init__(self, feedback: Feedback, judge: Callable[[Candidate, Question, float], Suggestion | Outcome]) -> None:
        self._feedback = feedback
        self._judge = judge

    def leads_to(self, document: TrackedDocument, question: Question) -> str | None:
        """The text that is left at the question's place; None where nothing is visible, or it does not lead there."""
        offer = self._offer(document)
        return None if offer is None else offer.strand.rest_at(question.place) or None

    def rest(self, document: TrackedDocument, question: Question, now: float) -> Suggestion | None:
        """The rest of the visible suggestion, with what has come of it since; None where it is not right here."""
        shown, rest = document.shown, self.leads_to(document, question)
        if shown is None or rest is None:
            return None
        flight = shown.flight
        judged: Suggestion | Outcome = Outcome.EMPTY
        raw = shown.raw.rest_at(question.place)
        if raw is not None and flight is not None:
            judged = self._judged(shown, question, flight.so_far(raw), flight.whole, now)
        if not isinstance(judged, Suggestion) or not judged.text.startswith(rest):
            judged = self._judged(shown, question, rest, True, now, settled=True)
        return judged if isinstance(judged, Suggestion) else None

    def grown(
        self, document: TrackedDocument, flight: Flight, now: float, *, redraw_ms: float = 0.0
    ) -> Suggestion | None:
        """The visible suggestion, if its request has made it longer and nothing was typed since it was answered.

        None while more is coming and it was drawn less than `redraw_ms` ago.
        """
        shown = document.shown
        if shown is None or shown.flight is not flight or self._offer(document) is None:
            return None
        if flight.running and (now - shown.drawn_s) * 1000 < redraw_ms:
            return None
        question = shown.question
        if document.snapshot.text != question.snapshot.text:
            return None
        raw = flight.strand.rest_at(question.place)
        if raw is None:
            return None
        judged = self._judged(shown, question, flight.so_far(raw), flight.whole, now)
        if not isinstance(judged, Suggestion) or len(judged.text) <= len(shown.grown):
            return None
        if not judged.text.startswith(shown.grown):
            return None
        shown.grown, shown.drawn_s = judged.text, now
        return judged

    def _offer(self, document: TrackedDocument) -> VisibleSuggestion | None:
        """What feedback holds of the last answer, as long as it is the one that is visible."""
        offer, shown = self._feedback.visible(document.snapshot.uri), document.shown
        return offer if offer is not None and shown is not None and offer.id == shown.suggestion.id else None

    def _judged(
        self, shown: LastAnswer, question: Question, text: str, final: bool, now: float, *, settled: bool = False
    ) -> Suggestion | Outcome:
        was = shown.suggestion
        done = None if shown.flight is None else shown.flight.done
        candidate = Candidate(
            id=was.id,
            text=text,
            kind=shown.kind,
            final=final,
            source=Origin.LOCAL if was.source is Origin.LOCAL else Origin.CACHE,
            request_id=was.request_id,
            finish=was.finish if done is None else done.finish,
            usage=was.usage if done is None else done.usage,
            settled=settled,
        )
        judged = self._judge(candidate, question, now)
        if not isinstance(judged, Suggestion):
            return judged
        return msgspec.structs.replace(judged, logprob=was.logprob, parses=was.parses if settled else judged.parses)
