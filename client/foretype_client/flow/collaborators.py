"""What the parts of a flow work with, handed on as one; and the options that they read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from foretype_context.prompt.profile import Profile

from foretype_client.flow.cache import CompletionCache
from foretype_client.flow.inflight import AnswerRules
from foretype_client.flow.instant_answers import Answers
from foretype_client.flow.planning import PlanBook, Planner
from foretype_client.flow.requests import Requests
from foretype_client.policy.trigger import Policy
from foretype_client.ports import Clock, Gateway
from foretype_client.sources.all_sources import Sources


class BackgroundOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When to ask for what nobody waits for.

    Attributes:
        shown_ms: a suggestion that has stood this long may be taken: what comes after it is asked for.
        rest_ms: a cursor that has stood this long since the last change or move rests.
    """

    shown_ms: float = 100.0
    rest_ms: float = 300.0


class FlowOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of the flow.

    Attributes:
        answer: when a stream has enough text to answer with.
        reuse_ms: how long a running request that still fits is waited for before a new one is sent.
        running_max: interactive requests at a time per document.
        local_patience_ms: with no first token this long after the request was due, the local candidate is the answer.
        deadline_ms: after this a gateway need not answer any more.
        snippets_max: snippets asked of each source of context.
        snippets_ms: how long they are waited for; as long as the debounce runs, they may take until shortly before its end.
        background: when to ask for what nobody waits for yet.
    """

    answer: AnswerRules = AnswerRules()
    reuse_ms: float = 200.0
    running_max: int = 2
    local_patience_ms: float = 150.0
    deadline_ms: float = 10_000.0
    snippets_max: int = 8
    snippets_ms: float = 10.0
    background: BackgroundOptions = BackgroundOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collaborators:
    """One for each flow, made by it.

    Attributes:
        gateway: where requests go. `planner_for` makes their prompts; None while a profile's tokenizer is not here yet.
        clock: monotonic seconds, the same that the event loop counts.
        answers: what needs no waiting, and notes each suggestion that is given out.
        requests: sends, reads and ends them.
        book: what prompts have shown so far.
        new_id: an id that no other user of the gateway has.
    """

    gateway: Gateway
    planner_for: Callable[[Profile], Planner | None]
    clock: Clock
    policy: Policy
    cache: CompletionCache
    sources: Sources
    answers: Answers
    requests: Requests
    book: PlanBook
    new_id: Callable[[], str]
    options: FlowOptions
