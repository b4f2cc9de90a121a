"""The completion flow: from a cursor position to a suggestion, once for the language server, the command line and the replay.

snapshot → visible suggestion → cache (before any timer) → policy → assembly while the debounce runs → a running request that
still fits → a request → the first text that passes post-processing. What decides is pure and lives beside this module; here
is what waits. Each request is one task, owned by :class:`~foretype_client.flow.requests.Requests`; no lock is held over anything.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from foretype_context.prompt.profile import Profile
from foretype_context.syntax.document import Change, Snapshot
from foretype_wire.errors import RequestRefusedError
from foretype_wire.messages import RequestClass
from foretype_wire.subscriptions import Subscribers

from foretype_client.adaptive.candidates import LocalModel
from foretype_client.adaptive.habits import Habits
from foretype_client.feedback.feedback import Feedback, FeedbackEvent
from foretype_client.flow.anticipated_requests import AnticipatedRequests
from foretype_client.flow.attempt import Attempt
from foretype_client.flow.background import Background
from foretype_client.flow.cache import CompletionCache
from foretype_client.flow.collaborators import Collaborators, FlowOptions
from foretype_client.flow.deciding import Deciding, Searching
from foretype_client.flow.events import FlowEvents
from foretype_client.flow.explaining import Explanations
from foretype_client.flow.inflight import Flight
from foretype_client.flow.instant_answers import Answers
from foretype_client.flow.open_documents import TrackedDocument
from foretype_client.flow.planning import PlanBook, Planner
from foretype_client.flow.question import Question
from foretype_client.flow.requests import Requests
from foretype_client.flow.suggestion import (
    FlowCounters,
    FlowState,
    FlowStatus,
    Origin,
    Outcome,
    SelectedCompletion,
    Suggestion,
)
from foretype_client.policy.machine import Spared
from foretype_client.policy.trigger import Policy, SkipReason, Trigger
from foretype_client.ports import Clock, Gateway
from foretype_client.sources.all_sources import Sources

__all__ = [
    "CompletionFlow",
    "FlowOptions",
    "FlowState",
    "FlowStatus",
    "Origin",
    "Outcome",
    "SelectedCompletion",
    "Suggestion",
    "Trigger",
]

_FOLLOWS_S: Final = 0.05
"""After a question was cancelled: editors that cancel at each key ask the next one within this, and it may go on with what runs."""
_PREPARE_S: Final = 0.1
"""After a document was opened: behind what an editor opens with it, and before anybody has typed in it."""


class CompletionFlow:
    """Suggestions for the documents of one editor, through one gateway.

    Args:
        gateway: where requests go.
        planner_for: makes prompts for a profile; None while its tokenizer is not here yet.
        clock: monotonic seconds, the same that the event loop counts.
        local: candidate that costs nothing; None for none.
        sources: of snippets from other files; who made them tells them of documents and folders, and closes them.
        rng: makes request ids unique across the users of a gateway.
        habits: told what becomes of local candidates; who made it gives it to `local`, too.

    Attributes:
        grew: told the uri and the longer suggestion when the one that is shown got longer.
        reacted: told each feedback event.
        events: what else becomes of questions, requests and documents.
    """

    def __init__(
        self,
        gateway: Gateway,
        planner_for: Callable[[Profile], Planner | None],
        *,
        clock: Clock,
        policy: Policy,
        cache: CompletionCache,
        local: LocalModel | None,
        rng: random.Random,
        options: FlowOptions | None = None,
        sources: Sources | None = None,
        feedback: Feedback | None = None,
        habits: Habits | None = None,
    ) -> None:
        feedback = feedback or Feedback.of(policy.options.switches)
        new_id = _Ids(rng).new
        self._shared = shared = Collaborators(
            gateway=gateway,
            planner_for=planner_for,
            clock=clock,
            policy=policy,
            cache=cache,
            sources=sources or Sources.none(),
            answers=Answers(cache, feedback, local, new_id=new_id),
            requests=Requests(gateway, clock),
            book=PlanBook(),
            new_id=new_id,
            options=options or FlowOptions(),
        )
        shared.answers.noted.add(self._tell)
        shared.requests.progressed.add(self._progressed)
        self._feedback = feedback
        self.clock: Clock = clock
        self._deciding = Deciding(shared)
        self._background = Background(shared)
        self._anticipated = AnticipatedRequests(clock, attempt=self._deciding.early, answered=self._deciding.is_here)
        self._explanations = Explanations()
        self.grew: Subscribers[str, Suggestion] = Subscribers()
        self.reacted: Subscribers[FeedbackEvent] = Subscribers()
        self.events: FlowEvents = FlowEvents(sent=shared.requests.departed)
        self._habits = habits
        self._documents: dict[str, TrackedDocument] = {}
        self._tally = FlowCounters()
        self._preparing: asyncio.TimerHandle | None = None
        self._given_up: dict[str, asyncio.TimerHandle] = {}
        self._closed = False

    def document_opened(self, snapshot: Snapshot) -> None:
        self._documents[snapshot.uri] = TrackedDocument(snapshot)
        self.events.opened.tell(snapshot)
        self.learn(snapshot.uri, snapshot.text)
        self._prepare_soon(snapshot.uri)

    def _prepare_soon(self, uri: str) -> None:
        """Of documents that are opened one after another, the last is the one that is looked at."""
        if self._preparing is not None:
            self._preparing.cancel()
        loop = asyncio.get_running_loop()
        self._preparing = loop.call_later(_PREPARE_S, self._shared.answers.prepare, uri)

    def learn(self, uri: str, text: str) -> None:
        """A file of the user's that the local candidate may draw on; open documents are learned by themselves."""
        if not self._closed and len(text) <= self._shared.policy.options.file_chars_max:
            self._shared.answers.learn(uri, text)

    def document_changed(self, change: Change) -> None:
        """Call after every change, before the next `suggest`: its arrival starts the debounce."""
        snapshot = change.after
        document = self._track(snapshot)
        document.change(change)
        self._background.changed(document)
        self.events.changed.tell(change)
        self._tell(self._feedback.changed(change))
        self._shared.answers.type_through.follow(document)
        waiting = document.waiting
        if waiting is not None and waiting.snapshot.text != snapshot.text:
            # An answer for the text of before would be refused by the editor, which asks again for the new one.
            waiting.supersede()

    def typed(self, snapshot: Snapshot, offset: int) -> None:
        """The last change ended at character `offset`, where a question is expected: its request need not wait for it."""
        if not self._closed:
            self._goes_on(snapshot.uri)
            self._anticipated.expect(self._track(snapshot), self._deciding.question(snapshot, offset))

    def document_closed(self, snapshot: Snapshot) -> None:
        self._tell(self._feedback.closed(snapshot.uri, self.clock()))
        self.events.closed.tell(snapshot.uri)
        self._background.closed(snapshot.uri)
        document = self._documents.pop(snapshot.uri, None)
        if document is not None:
            self._shared.book.forget(snapshot.uri)
            self._goes_on(snapshot.uri)
            self._let_go(document)

    def shown(self, id: str) -> None:
        """The editor reports that it displays the suggestion `id`."""
        self._tell(self._feedback.shown(id, self.clock()))

    def accepted(self, id: str) -> None:
        """The editor reports that the suggestion `id` was accepted."""
        self._tell(self._feedback.accepted(id, self.clock()))

    def partially_accepted(self, id: str, characters: int) -> None:
        """The editor reports that `characters` of the suggestion, counted from its start, were accepted."""
        self._tell(self._feedback.partially_accepted(id, characters, self.clock()))

    def rested(self, snapshot: Snapshot, offset: int) -> None:
        """The cursor was moved to character `offset`, and nothing was typed: its prompt may be computed beforehand."""
        if not self._closed:
            document = self._track(snapshot)
            document.stood_s = self.clock()
            self._background.stands(document, snapshot, min(max(offset, 0), len(snapshot.text)))

    async def suggest(
        self,
        snapshot: Snapshot,
        offset: int,
        *,
        trigger: Trigger = Trigger.AUTOMATIC,
        selected: SelectedCompletion | None = None,
    ) -> Suggestion | None:
        """A suggestion at character `offset`; None if there is nothing to show or a newer question took over.

        Raises CancelledError alone: what a gateway does wrong is counted and named in the status.
        """
        if self._closed:
            return None
        question = self._deciding.question(snapshot, offset, trigger, selected)
        document = self._track(snapshot)
        self._goes_on(snapshot.uri)
        document.asked_s = question.asked_s
        document.take_over(question)
        self.events.asked.tell(question)
        self._tally.asked += 1
        result: Suggestion | str = Outcome.FAULT
        try:
            result = await self._answer(document, question)
        except asyncio.CancelledError:
            result = Outcome.CANCELLED
            if document.waiting is question:
                self.given_up(snapshot.uri)
            raise
        finally:
            self._tally.ended(result)
            self.events.answered.tell(question, result)
            document.release(question)
        if result is SkipReason.DELETION:
            # What is typed in its place is asked for soon. The cursor stands there since the deletion, not since the question,
            # which Neovim 0.12 asks 200 ms later.
            self._background.stands(document, snapshot, question.offset)
        if not isinstance(result, Suggestion):
            return None
        self._explanations.answered(result)
        if self._habits is not None and result.source is Origin.LOCAL and result.logprob is not None:
            self._habits.showed(result.id, snapshot.language, math.exp(result.logprob))
        if not question.superseded:
            self._background.shown(document, snapshot, question.offset, result)
        return result

    def given_up(self, uri: str) -> None:
        """Nobody waits for anything in this document any more: what runs for it is stopped, unless a question follows at once."""
        document = self._documents.get(uri)
        if document is not None and not self._closed:
            self._goes_on(uri)
            loop = asyncio.get_running_loop()
            self._given_up[uri] = loop.call_later(_FOLLOWS_S, self._stop, document)

    def excluded(self, uris: Sequence[str] = (), *, others_come: bool = False) -> None:
        """Files were left out, `uris` among them: no prompt that may hold a line of theirs goes on, and none begins as one did.

        What the cache knows was made of such prompts too.

        Args:
            others_come: who made the sources makes other ones now.
        """
        self._shared.sources.left_out(others_come=others_come)
        for uri, document in self._documents.items():
            self._background.closed(uri)
            self._let_go(document)
        self._shared.book.clear()
        self._shared.cache.clear()
        for uri in uris:
            self._shared.answers.learn(uri, "")

    def _goes_on(self, uri: str) -> None:
        if (timer := self._given_up.pop(uri, None)) is not None:
            timer.cancel()

    def _stop(self, document: TrackedDocument) -> None:
        del self._given_up[document.snapshot.uri]
        self._background.closed(document.snapshot.uri)
        self._shared.requests.drop(document.flights)

    def explain(self, id: str | None = None) -> dict[str, Any] | None:
        """What the suggestion `id`, or the last one, was made from (:meth:`foretype_client.flow.explaining.Explanations.of`)."""
        return self._explanations.of(id)

    def spared(self) -> Spared | None:
        """Why typing asks the gateway nothing now; None where it does."""
        return self._shared.policy.spared(self.clock())

    def status(self) -> FlowStatus:
        state, detail = FlowState.READY, ""
        if self._closed:
            state = FlowState.CLOSED
        elif not self._shared.gateway.connected:
            state = FlowState.OFFLINE
        elif self._shared.gateway.profile is None:
            state = FlowState.STARTING
        elif self._deciding.paused(self.clock()):
            state = FlowState.PAUSED
        elif (spared := self.spared()) is not None:
            state, detail = FlowState.SPARED, spared.value
        requests = self._shared.requests
        return self._tally.status(
            state, detail, requests=requests.sent, cancelled=requests.cancelled, running=requests.running
        )

    async def close(self) -> None:
        """Answer every waiting question with nothing, cancel every request, and wait until nothing runs."""
        self._closed = True
        if self._preparing is not None:
            self._preparing.cancel()
        for uri in list(self._given_up):
            self._goes_on(uri)
        self._background.close()
        for uri, document in self._documents.items():
            self._let_go(document)
            self._tell(self._feedback.closed(uri, self.clock()))
        await self._anticipated.close()
        await self._shared.requests.close()

    async def _answer(self, document: TrackedDocument, question: Question) -> Suggestion | str:
        now = self.clock()
        self._tell(self._feedback.moved(question.place, question.offset, now) + self._feedback.settle(now))
        result = self._deciding.at_once(document, question, now)
        while isinstance(result, Searching):
            await asyncio.sleep(0)  # a key, or an answer of the gateway, comes first
            if question.superseded:
                return Outcome.SUPERSEDED
            result = self._deciding.local(document, question, result, self.clock())
        if not isinstance(result, Attempt):
            self._shared.requests.drop(document.sort(question.place).diverged)
            return result
        if result.due_s > now:
            # A newer question may already stand in the queue; it would make assembling for this one a waste.
            await asyncio.sleep(0)
        while not question.superseded:
            question.wake.clear()
            turn = result.turn(self.clock())
            if isinstance(turn, Suggestion | str):
                return turn
            await question.sleep(turn - self.clock())
        return Outcome.SUPERSEDED

    def _progressed(self, document: TrackedDocument, flight: Flight) -> None:
        """A request has more text, or has ended."""
        now = self.clock()
        self._explanations.landed(flight)
        self._tally.last_ttft_ms = flight.ttft_ms or self._tally.last_ttft_ms
        if not flight.running:
            document.ended(flight)
            self._landed(flight, now)
        document.wake()
        if document.waiting is None and (flight.at_line_end or not flight.running):
            redraw_ms = self._shared.options.answer.redraw_ms
            grown = self._shared.answers.type_through.grown(document, flight, now, redraw_ms=redraw_ms)
            if grown is not None:
                self.grew.tell(document.snapshot.uri, grown)

    def _landed(self, flight: Flight, now: float) -> None:
        self.events.landed.tell(flight)
        if flight.done is not None:
            self._tally.used(flight.done.usage)
            self._tally.detail = ""
        if (entry := flight.entry()) is not None:
            self._shared.cache.put(entry)
        if flight.class_ in (RequestClass.SPECULATIVE, RequestClass.WARM):
            self._background.landed(
                flight, now
            )  # that these are refused first says nothing about what the user asks for
        elif isinstance(flight.error, RequestRefusedError):
            self._deciding.refused(flight.error, now)
        if flight.error is not None:
            self._tally.detail = str(flight.error) or type(flight.error).__name__

    def _tell(self, events: list[FeedbackEvent]) -> None:
        now = self.clock()
        for event in events:
            self._deciding.reacted(event, now)
            if self._habits is not None:
                self._habits.told(event)
            self.reacted.tell(event)

    def _track(self, snapshot: Snapshot) -> TrackedDocument:
        document = self._documents.get(snapshot.uri)
        if document is None:
            document = self._documents[snapshot.uri] = TrackedDocument(snapshot)
        return document

    def _let_go(self, document: TrackedDocument) -> None:
        if document.waiting is not None:
            document.waiting.supersede()
        self._shared.requests.drop(document.flights)


class _Ids:
    """Ids that are unique across the users of a gateway."""

    def __init__(self, rng: random.Random) -> None:
        self._prefix = f"{rng.getrandbits(48):012x}"
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count}"
