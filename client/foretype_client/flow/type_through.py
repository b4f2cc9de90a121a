"""The visible suggestion while the user types through it: it stays, or grows, and never changes. Synchronous."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from foretype_client.feedback.feedback import Feedback
from foretype_client.flow.inflight import Flight
from foretype_client.flow.judgement import Candidate
from foretype_client.flow.open_documents import LastAnswer, TrackedDocument
from foretype_client.flow.question import Question
from foretype_client.flow.strands import lines_below
from foretype_client.flow.suggestion import Origin, Outcome, Suggestion


class TypeThrough:
    """What of a visible suggestion is left where the cursor is now. Nothing is noted here but when it was drawn.

    Args:
        judge: whether a text is shown at a place; times are monotonic seconds.
    """

    def __init__(self, feedback: Feedback, judge: Callable[[Candidate, Question, float], Suggestion | Outcome]) -> None:
        self._feedback = feedback
        self._judge = judge

    def shown(self, document: TrackedDocument) -> LastAnswer | None:
        """The answer that is visible."""
        offer = self._feedback.visible(document.snapshot.uri)
        return None if offer is None else document.given.get(offer.id)

    def leads_to(self, document: TrackedDocument, question: Question) -> str | None:
        """The text that is left at the question's place; None where nothing is visible, or it does not lead there."""
        offer = self._feedback.visible(document.snapshot.uri)
        if offer is None or offer.id not in document.given:
            return None
        return offer.strand.rest_at(question.place) or None

    def rest(self, document: TrackedDocument, question: Question, now: float) -> Suggestion | None:
        """The rest of the visible suggestion, with what has come of it since; None where it is not right here.

        It was trimmed where it was made, in the block that the cursor was in there, and is not trimmed anew where it is taken in part.
        """
        offer = self._feedback.visible(document.snapshot.uri)
        shown = None if offer is None else document.given.get(offer.id)
        rest = None if offer is None else offer.strand.rest_at(question.place)
        if offer is None or shown is None or not rest:
            return None
        was, grown = offer.strand.text, shown.come_to()
        if grown.text.startswith(was) and len(grown.text) > len(was):
            # What it takes the place of may have become more with it: a comment in it would swallow the closer behind.
            longer = self._judged(
                shown, question, grown.text[len(was) - len(rest) :], now, parses=False, replaces=grown.replaces
            )
            if isinstance(longer, Suggestion) and longer.text.startswith(rest):
                return longer
        judged = self._judged(shown, question, rest, now, parses=True, replaces=shown.suggestion.replaces)
        return judged if isinstance(judged, Suggestion) else None

    def follow(self, document: TrackedDocument) -> None:
        """The document has changed: what is visible may have moved."""
        shown, offer = self.shown(document), self._feedback.visible(document.snapshot.uri)
        if shown is not None and offer is not None:
            shown.follow(document.snapshot, offer)

    def grown(
        self, document: TrackedDocument, flight: Flight, now: float, *, redraw_ms: float = 0.0
    ) -> Suggestion | None:
        """The visible suggestion, if its request has made it longer and nothing was typed since it was answered.

        None while more is coming and it was drawn less than `redraw_ms` ago.
        """
        shown = self.shown(document)
        if shown is None or shown.flight is not flight:
            return None
        if flight.running and (now - shown.drawn_s) * 1000 < redraw_ms:
            return None
        if document.snapshot.text != shown.question.snapshot.text:
            return None
        grown = self.rest(document, shown.question, now)
        if grown is None or len(grown.text) <= len(shown.grown) or not grown.text.startswith(shown.grown):
            return None
        shown.grown, shown.drawn_s = grown.text, now
        return grown

    def _judged(
        self, shown: LastAnswer, question: Question, text: str, now: float, *, parses: bool, replaces: int
    ) -> Suggestion | Outcome:
        """`parses`: that was judged before, and its beginning typed since: the same stands in the file in the end."""
        was = shown.suggestion
        done = None if shown.flight is None else shown.flight.done
        same_tail = _tail(question) == _tail(shown.made)
        candidate = Candidate(
            id=was.id,
            text=text,
            kind=shown.kind,
            final=True,
            source=Origin.LOCAL if was.source is Origin.LOCAL else Origin.CACHE,
            request_id=was.request_id,
            finish=was.finish if done is None else done.finish,
            usage=was.usage if done is None else done.usage,
            replaces=replaces if same_tail else None,
            settled=parses,
        )
        judged = self._judge(candidate, question, now)
        if not isinstance(judged, Suggestion):
            return judged
        return msgspec.structs.replace(judged, logprob=was.logprob, parses=was.parses if parses else judged.parses)


def _tail(question: Question) -> tuple[str, list[str]]:
    """What stands right of the cursor on its line, and the lines that close something below it: an editor may have put them there."""
    snapshot, offset = question.snapshot, question.offset
    line = snapshot.line_of(offset)
    return snapshot.text[offset : snapshot.line_end(line)], lines_below(snapshot, line)[0]
