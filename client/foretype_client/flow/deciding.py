"""What a question gets: an answer at once, the reason why there is none, or an attempt to get one from the gateway.

Synchronous, and in this order: what is visible, what the cache has, what policy says, what this machine itself is sure of. Policy's memory
of the user's reactions and of the gateway's wishes stands here too.
"""

from __future__ import annotations

from typing import NamedTuple

from foretype_context.prompt.profile import Profile
from foretype_context.syntax.blocks import within
from foretype_context.syntax.document import Snapshot
from foretype_wire.errors import RequestRefusedError

from foretype_client.feedback.feedback import Accepted, Ended, FeedbackEvent, Taken
from foretype_client.flow.attempt import Attempt
from foretype_client.flow.collaborators import Collaborators
from foretype_client.flow.open_documents import TrackedDocument
from foretype_client.flow.planning import Planner
from foretype_client.flow.question import Question
from foretype_client.flow.strands import Place
from foretype_client.flow.suggestion import Origin, Outcome, SelectedCompletion, Suggestion
from foretype_client.policy.trigger import Decision, EditorRequest, PolicyState, Skip, Trigger, Wait


class Searching(NamedTuple):
    """The local candidate is not found yet: look again after other tasks of the event loop have run.

    Attributes:
        otherwise: why there is nothing, or the attempt to make, should none be found.
        min_confidence: how sure it must be.
    """

    otherwise: str | Attempt
    min_confidence: float = 0.0


class Deciding:
    """Decides what each question gets, for the documents of one flow."""

    def __init__(self, shared: Collaborators) -> None:
        self._shared = shared
        self._policy_state = PolicyState()

    def reacted(self, event: FeedbackEvent, now: float) -> None:
        """What became of a suggestion."""
        accepted = isinstance(event, Accepted) and event.how is not Taken.TYPED
        refused = isinstance(event, Ended) and event.rejected
        # What a local candidate guessed says nothing about whether asking the gateway is welcome.
        if (accepted or refused) and event.served_from != Origin.LOCAL:
            self._policy_state = self._shared.policy.reacted(self._policy_state, accepted=accepted, now=now)

    def refused(self, error: RequestRefusedError, now: float) -> None:
        """The gateway did not serve a request of the user's; it may have said when to come again."""
        if error.retry_after_ms is not None:
            self._policy_state = self._shared.policy.pause(
                self._policy_state, retry_after_ms=error.retry_after_ms, now=now
            )

    def paused(self, now: float) -> bool:
        """Whether the gateway asked to be left alone until later than `now`."""
        return now < self._policy_state.paused_until_s

    def question(
        self,
        snapshot: Snapshot,
        offset: int,
        trigger: Trigger = Trigger.AUTOMATIC,
        selected: SelectedCompletion | None = None,
    ) -> Question:
        """The question at character `offset`, as it is asked now."""
        offset = min(max(offset, 0), len(snapshot.text))
        profile = self._shared.gateway.profile
        place = Place.of(snapshot, offset, profile)
        least = None if trigger is Trigger.INVOKED else self._shared.policy.options.switches.least(profile)
        drop_broken = self._shared.policy.options.switches.drop_broken and (profile is None or profile.drop_broken)
        return Question(snapshot, offset, place, trigger, selected, profile, self._shared.clock(), least, drop_broken)

    def at_once(
        self, document: TrackedDocument, question: Question, now: float
    ) -> Suggestion | str | Searching | Attempt:
        """The answer that needs no waiting, or the attempt to get one from the gateway."""
        visible = self._shared.answers.visible(document, question, now, local=False)
        if visible is not None:
            return visible
        found = self._shared.answers.cached(document, question, now)
        if isinstance(found, Suggestion):
            return found
        decision = self._shared.policy.decide(self._policy_state, self._ask(document, question), now)
        if isinstance(decision, Skip) and not decision.reason.leaves_local:
            return decision.reason
        # A local suggestion that is visible and still right stays: nothing flickers, and nothing is asked.
        reason = found or self._unready(question) or (decision.reason if isinstance(decision, Skip) else None)
        if (local := self._shared.answers.visible(document, question, now, local=True)) is not None:
            return local
        profile = question.profile
        planner = None if reason is not None or profile is None else self._shared.planner_for(profile)
        if planner is None or profile is None:
            return self.local(document, question, Searching(reason or Outcome.NOT_READY), now)
        attempt = self._attempt(document, question, profile, planner, _due_s(decision, now))
        return self.local(document, question, Searching(attempt, profile.local_min_confidence), now)

    def local(
        self, document: TrackedDocument, question: Question, searching: Searching, now: float
    ) -> Suggestion | str | Searching | Attempt:
        """One turn of looking for the local candidate; it goes on where that is not over."""
        found = self._shared.answers.local(document, question, now, min_confidence=searching.min_confidence)
        return found or (searching if self._shared.answers.searching else searching.otherwise)

    def early(self, document: TrackedDocument, question: Question) -> Attempt | None:
        """The attempt to ask the gateway what `question` will ask, if it will."""
        now = self._shared.clock()
        decision = self._shared.policy.decide(self._policy_state, self._ask(document, question), now)
        profile = question.profile
        if isinstance(decision, Skip) or profile is None or self._unready(question) is not None:
            return None
        planner = self._shared.planner_for(profile)
        return None if planner is None else self._attempt(document, question, profile, planner, _due_s(decision, now))

    def is_here(self, document: TrackedDocument, question: Question) -> bool | None:
        """Whether `question` needs no request: it would be answered by what is here already. None while that is looked for."""
        profile = question.profile
        sure = profile.local_min_confidence if profile is not None else 0.0
        answered = self._shared.answers.needs_no_request(document, question, self._shared.clock(), min_confidence=sure)
        return answered or (None if self._shared.answers.searching else False)

    def _attempt(
        self,
        document: TrackedDocument,
        question: Question,
        profile: Profile,
        planner: Planner,
        due_s: float,
    ) -> Attempt:
        return Attempt(document, question, profile, planner, due_s=due_s, shared=self._shared)

    def _unready(self, question: Question) -> Outcome | None:
        if not self._shared.gateway.connected:
            return Outcome.OFFLINE
        if question.profile is not None and not question.profile.service.asks:
            return Outcome.SHED
        if question.least is not None and question.least.shows_nothing:
            return Outcome.LOW_CONFIDENCE  # whatever the model says, it would not be shown
        return Outcome.SELECTED_MISMATCH if question.selected_rest() is None else None

    def _ask(self, document: TrackedDocument, question: Question) -> EditorRequest:
        snapshot, offset = question.snapshot, question.offset
        right = snapshot.text[offset : snapshot.line_end(snapshot.line_of(offset))]
        options = self._shared.policy.options
        return EditorRequest(
            trigger=question.trigger,
            left=question.place.line_prefix,
            right=right,
            changed_s=document.changed_s,
            characters=len(snapshot.text),
            excluded=document.reason_excluded(snapshot, offset),
            within=None if options.completes_everywhere(snapshot.language) else within(snapshot, offset),
            language=snapshot.language,
            deleted=document.only_deleted(offset),
            debounce_ms=None if question.profile is None else question.profile.debounce_ms,
        )


def _due_s(decision: Decision, now: float) -> float:
    return decision.until_s if isinstance(decision, Wait) else now
