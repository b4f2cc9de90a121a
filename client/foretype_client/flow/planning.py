"""Plans on their way to becoming requests, and what prompts have shown so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from foretype_context.prompt.plan import Plan, PlanState
from foretype_context.prompt.profile import Profile
from foretype_context.prompt.segments import Segment
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Snapshot
from foretype_wire.messages import DEADLINE_MS, Complete, RequestClass, Stop

from foretype_client.ports import Clock


class Planner(Protocol):
    """Prompt assembly, as :class:`foretype_context.prompt.assemble.Assembler` does it."""

    def plan(
        self,
        state: PlanState,
        snapshot: Snapshot,
        offset: int,
        *,
        snippets: Sequence[Snippet] = (),
        block: bool | None = None,
        now: float,
    ) -> tuple[Plan, PlanState]: ...


class Draft(NamedTuple):
    """A plan that does not count as shown yet, the state it was made from, and when its assembly began (seconds)."""

    plan: Plan
    profile: Profile
    made_from: PlanState
    after: PlanState
    began_s: float
    assemble_ms: float


class PlanBook:
    """What prompts have shown so far: committed on send only, and not across a change of profile."""

    def __init__(self) -> None:
        self._state = PlanState.empty()
        self._profile: Profile | None = None

    def draft(
        self,
        planner: Planner,
        profile: Profile,
        snapshot: Snapshot,
        offset: int,
        *,
        snippets: Sequence[Snippet],
        now: float,
        clock: Clock,
    ) -> Draft:
        """The prompt for a place.

        Args:
            now: when it was asked for, monotonic seconds; the layout waits for idleness by it.
            clock: times the assembly.
        """
        began = clock()
        # Budgets, grammar and layout may all be others under another profile: nothing that was shown counts then.
        before = self._state if self._profile == profile else PlanState.empty()
        plan, after = planner.plan(before, snapshot, offset, snippets=snippets, now=now)
        return Draft(plan, profile, self._state, after, began, (clock() - began) * 1000)

    def is_current(self, draft: Draft) -> bool:
        """Whether no other prompt was sent since; a stale draft would forget what that one has shown."""
        return draft.made_from is self._state

    def commit(self, draft: Draft) -> None:
        self._state, self._profile = draft.after, draft.profile

    def clear(self) -> None:
        """What was shown must not be shown again."""
        self._state = PlanState.empty()

    def forget(self, uri: str) -> None:
        self._state = self._state.without(uri)


def call_of(
    plan: Plan,
    snapshot: Snapshot,
    *,
    id: str,
    class_: RequestClass = RequestClass.INTERACTIVE,
    deadline_ms: float = DEADLINE_MS,
    max_tokens: int | None = None,
    stop: Stop | None = None,
    supersedes: str | None = None,
) -> Complete[Segment]:
    """The request for a plan.

    Args:
        max_tokens, stop: in place of the plan's own.
    """
    if max_tokens is None:
        max_tokens = 1 if class_ is RequestClass.WARM else plan.max_tokens
    return Complete(
        id=id,
        class_=class_,
        supersedes=supersedes,
        document=snapshot.uri,
        version=snapshot.version,
        language=snapshot.language,
        segments=[placed.segment for placed in plan.segments],
        prompt_tokens=plan.prompt_tokens,
        max_tokens=max_tokens,
        stop=plan.stop if stop is None else stop,
        deadline_ms=deadline_ms,
    )
