"""One question on its way through the gateway: debounce, assembly, reuse, request, answer.

Each turn is one synchronous function of what is known at that moment: it answers, gives up, or says until when to wait. So
there is nothing to lock, and a test can put any order of events in front of it.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec
from foretype_context.prompt.plan import Plan
from foretype_context.prompt.profile import Profile, Stop
from foretype_context.prompt.segments import Kind, Segment
from foretype_context.syntax.blocks import SuggestionKind
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import RequestClass

from foretype_client.flow.collaborators import Collaborators
from foretype_client.flow.inflight import ASKED, Flight, ReadyText, ripe
from foretype_client.flow.open_documents import SortedRequests, TrackedDocument
from foretype_client.flow.planning import Draft, Planner, call_of
from foretype_client.flow.question import Question
from foretype_client.flow.strands import Strand
from foretype_client.flow.suggestion import Outcome, Suggestion
from foretype_client.policy.trigger import Trigger
from foretype_client.sources.all_sources import Gathered, Gathering

_SLACK_S: Final = 1e-6
"""Timers may fire this much early, by rounding."""


class Attempt:
    """The attempt to answer one question through the gateway.

    Args:
        due_s: monotonic seconds before which no request is sent: the debounce.
    """

    def __init__(
        self,
        document: TrackedDocument,
        question: Question,
        profile: Profile,
        planner: Planner,
        *,
        due_s: float,
        shared: Collaborators,
    ) -> None:
        self.due_s = due_s
        self._document = document
        self._question = question
        self._profile = profile
        self._planner = planner
        self._shared = shared
        options = shared.options
        self._reuse_until_s: float | None = None
        self._local_s = max(due_s, question.asked_s) + options.local_patience_ms / 1000
        self._local_asked = False
        self._gathering: Gathering | None = None
        self._gathered: Gathered | None = None
        self._snippets_s = max(question.asked_s, due_s - options.snippets_ms / 1000)
        self._draft: Draft | None = None
        self._own: Flight | None = None
        self._judged: set[str] = set()
        self._outcome: str | None = None

    def turn(self, now: float) -> Suggestion | str | float:
        """The answer; or why there is none; or the time (monotonic seconds, maybe infinity) at which to look again."""
        fitting, diverged = self._sorted()
        look_s = math.inf
        if self._own is None:
            self._own = next((flight for flight in fitting if self._asked_here(flight)), None)
        for flight in fitting:
            result = self._harvest(flight, now)
            if isinstance(result, Suggestion):
                self._shared.requests.drop(diverged)
                return result
            look_s = min(look_s, result)
        running = [flight for flight in fitting if flight.wanted]
        if not running and (self._outcome is not None or self._own_ended()):
            self._shared.requests.drop(diverged)
            return self._nothing(now)
        if self._own is None:
            due_s = self._send_s(running, now)
            if not running and self._in_vain():
                self._shared.requests.drop(diverged)
                self._outcome = Outcome.LOW_CONFIDENCE
                return self._nothing(now)
            if due_s <= now + _SLACK_S:
                running.append(self._send(diverged, now))
            else:
                look_s = min(look_s, due_s)
        # What is not named as superseded is cancelled now: nobody waits for it any more.
        self._shared.requests.drop(diverged)
        if self._question.trigger is Trigger.AUTOMATIC and all(flight.first_s is None for flight in running):
            if self._local_s > now + _SLACK_S:
                return min(look_s, self._local_s)
            if (local := self._local(now)) is not None:
                return local
        return look_s

    def ask_early(self, now: float) -> float | None:
        """Send the request before its question is there, which will find it and take it for its own.

        Returns:
            When to look again (monotonic seconds); None once a request is on its way that may answer here.
        """
        fitting, diverged = self._document.sort(self._question.place)
        if any(flight.wanted for flight in fitting):
            return None
        due_s = self._send_s([], now)
        if self._in_vain():
            return None
        if due_s > now + _SLACK_S:
            return due_s
        self._send(diverged, now)
        self._shared.requests.drop(diverged)
        return None

    def _sorted(self) -> SortedRequests:
        """The document's requests; one that knew nothing of the popup's item must agree with it."""
        fitting, diverged = self._document.sort(self._question.place)
        if not (item := self._question.selected_rest()):
            return SortedRequests(fitting, diverged)
        kept: list[Flight] = []
        for flight in fitting:
            text = flight.strand.rest_at(self._question.place)
            asked_here = flight.strand.place == self._question.place
            if text is None or text.startswith(item) or (item.startswith(text) and (text or not asked_here)):
                kept.append(flight)
            elif flight.wanted:
                diverged.append(flight)
        return SortedRequests(kept, diverged)

    def _asked_here(self, flight: Flight) -> bool:
        """Whether a request is the one that this question would send: sent early, or for a question at the same place."""
        question = self._question
        here = flight.wanted and flight.class_ in ASKED and flight.strand.place == question.place
        return here and question.selected is None

    def _harvest(self, flight: Flight, now: float) -> Suggestion | float:
        """The suggestion that a request's text makes here, or when to look again."""
        rest = flight.strand.rest_at(self._question.place)
        if rest is None or flight.id in self._judged:
            return math.inf
        own = flight is self._own
        wanted = self._question.least is None
        state = ripe(flight, rest, now, self._shared.options.answer, wanted=wanted)
        if isinstance(state, ReadyText) and (state.text or flight.complete):
            judged = self._shared.answers.from_flight(self._document, self._question, flight, state, own=own, now=now)
            if isinstance(judged, Suggestion):
                return judged
            if flight.complete and (own or (rest and judged is not Outcome.SELECTED_MISMATCH)):
                # The model was asked, and this is all it has to say here. At the end of what somebody else asked
                # for it was not asked yet.
                self._outcome = judged
        if not flight.running:
            self._judged.add(flight.id)
        return state if isinstance(state, float) else math.inf

    def _own_ended(self) -> bool:
        if self._own is None or self._own.running:
            return False
        self._outcome = _failure(self._own)
        return True

    def _send_s(self, running: list[Flight], now: float) -> float:
        """When to send: after the debounce, and after waiting for a request that may already bring the answer."""
        gathered_s = self._gather_s(now)
        if not running:
            if self._draft is None:
                if gathered_s > now + _SLACK_S:
                    return gathered_s
                self._draft = self._drafted()
            return self.due_s
        if len(running) >= self._shared.options.running_max:
            return math.inf
        if self._reuse_until_s is None:
            self._reuse_until_s = now + self._shared.options.reuse_ms / 1000
        return max(self.due_s, self._reuse_until_s)

    def _in_vain(self) -> bool:
        """Whether the last answer on this line says that this one would not be shown either."""
        question, last = self._question, self._document.unlikely
        if last is None or self._draft is None or question.trigger is Trigger.INVOKED or question.selected is not None:
            return False
        skips = question.least is not None and self._shared.policy.options.switches.skip_unlikely
        return skips and last.rules_out(question.place, len(self._draft.plan.healed))

    def _gather_s(self, now: float) -> float:
        """When there is nothing more to wait for from the sources of context; asks them at the first call."""
        if self._gathering is None:
            question, options = self._question, self._shared.options
            self._snippets_s = max(self._snippets_s, now + options.snippets_ms / 1000)
            self._gathering = self._shared.sources.gather(
                question.snapshot, question.offset, limit=options.snippets_max, complete=self._document.wake
            )
        return now if self._gathering.done else self._snippets_s

    def _drafted(self) -> Draft:
        """The prompt, with what the sources have said by now."""
        if self._gathered is None:
            self._gather_s(self._shared.clock())
            if self._gathering is not None:
                self._gathered = self._gathering.take()
                self._shared.sources.noted(self._gathered)
        question, document = self._question, self._document
        document.gathered = self._gathered or Gathered()
        return self._shared.book.draft(
            self._planner,
            self._profile,
            question.snapshot,
            question.offset,
            snippets=document.gathered.snippets,
            now=question.asked_s,
            clock=self._shared.clock,
        )

    def _stop(self, plan: Plan) -> Stop:
        """Asked by hand, all of it is wanted, however unlikely; unasked, an answer ends where it has become too unlikely to be shown."""
        if self._question.trigger is Trigger.INVOKED:
            return msgspec.structs.replace(plan.stop, least_chance=0.0)
        if self._question.least is None:
            return plan.stop
        opens = plan.kind is SuggestionKind.BLOCK or plan.stop.opened is not None
        least = max(plan.stop.least_chance, self._profile.least_probability(opens=opens))
        return msgspec.structs.replace(plan.stop, least_chance=least)

    def _send(self, diverged: list[Flight], now: float) -> Flight:
        question, draft = self._question, self._draft
        if draft is None or not self._shared.book.is_current(draft):
            draft = self._drafted()
        plan = draft.plan
        segments = [placed.segment for placed in plan.segments]
        begun = question.selected_rest() or ""
        if begun:
            begun = _begin_with(begun, segments)
        supersedes = diverged.pop(0) if diverged else None
        call = call_of(
            plan,
            question.snapshot,
            id=self._shared.new_id(),
            class_=RequestClass.BLOCK if plan.kind is SuggestionKind.BLOCK else RequestClass.INTERACTIVE,
            deadline_ms=self._shared.options.deadline_ms,
            stop=self._stop(plan),
            supersedes=None if supersedes is None else supersedes.id,
        )
        if begun:  # how many tokens they are now is not known
            call = msgspec.structs.replace(call, segments=segments, prompt_tokens=None)
        self._shared.book.commit(draft)
        self._own = self._shared.requests.send(
            self._document,
            call,
            strand=Strand(question.place, begun),
            draft=draft,
            debounce_ms=max(0.0, (now - question.asked_s) * 1000 - draft.assemble_ms),
            supersedes=supersedes,
        )
        return self._own

    def _local(self, now: float) -> Suggestion | None:
        if self._local_asked:
            return None  # what it has to say here does not change while the question waits
        self._local_asked, self._local_s = True, math.inf
        return self._shared.answers.local(self._document, self._question, now)

    def _nothing(self, now: float) -> Suggestion | str:
        return self._local(now) or self._outcome or Outcome.EMPTY


def _begin_with(begun: str, segments: list[Segment]) -> str:
    """Put the untyped part of the popup's item behind the typed text, so that generation continues it; "" if it cannot."""
    if not segments or segments[-1].kind is not Kind.MIDDLE:
        return ""
    segments[-1] = msgspec.structs.replace(segments[-1], text=segments[-1].text + begun)
    return begun


def _failure(flight: Flight) -> str:
    """Why a request that ended without an answer did."""
    if isinstance(flight.error, GatewayGoneError):
        return Outcome.GATEWAY_GONE
    if isinstance(flight.error, RequestRefusedError):
        return flight.error.code
    if flight.done is not None:
        return Outcome.EMPTY if flight.complete else flight.done.finish
    return Outcome.FAULT
