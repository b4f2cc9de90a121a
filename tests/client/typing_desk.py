"""A person at an editor, for tests: types into one document, and asks after each key as editors do."""

import asyncio
import random
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Self

import pytest
from client.scripted_gateway import ScriptedGateway
from foretype_client.feedback.feedback import FeedbackEvent
from foretype_client.flow.cache import CompletionCache
from foretype_client.flow.flow import CompletionFlow
from foretype_client.flow.suggestion import Suggestion
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Policy, PolicyOptions
from foretype_context.finish.post_processing import Finished
from foretype_context.prompt.plan import Plan, PlanState
from foretype_context.prompt.profile import Profile, Stop
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.blocks import SuggestionKind
from foretype_context.syntax.document import Document, Edit, Snapshot

URI = "file:///a.py"


class LinePlanner:
    """The smallest assembler: the typed line alone. Its state remembers how many plans were sent for a document."""

    def __init__(self, kind: SuggestionKind = SuggestionKind.LINE, healed: str = "") -> None:
        self.kind = kind
        self.healed = healed
        self.states: list[PlanState] = []

    def plan(
        self,
        state: PlanState,
        snapshot: Snapshot,
        offset: int,
        *,
        snippets: Sequence[Snippet] = (),
        block: bool | None = None,
        now: float,
    ) -> tuple[Plan, PlanState]:
        self.states.append(state)
        typed = snapshot.text[snapshot.line_start(snapshot.line_of(offset)) : offset]
        segment = Segment(kind=Kind.MIDDLE, scope=Scope.SESSION, source=Source(), text=typed)
        plan = Plan(
            segments=(PlacedSegment(segment=segment, start=0, end=3),),
            prompt_tokens=3,
            budget_tokens=100,
            layout="psm_line_last",
            kind=self.kind,
            stop=Stop(max_lines=12 if self.kind is SuggestionKind.BLOCK else 1),
            max_tokens=48,
            middle=typed,
            healed=self.healed,
        )
        return plan, PlanState(MappingProxyType({**state.files, snapshot.uri: None}), state.context)  # type: ignore[dict-item]


def finish_by(monkeypatch: pytest.MonkeyPatch, finisher: Callable[..., Finished]) -> None:
    """What is generated is trimmed by `finisher`."""
    for module in ("judgement", "open_documents"):
        monkeypatch.setattr(f"foretype_client.flow.{module}.finish", finisher)


class Desk:
    """One editor: a gateway, a flow, a document with a cursor."""

    def __init__(self, gateway: ScriptedGateway, text: str = "|", **options: Any) -> None:
        loop = asyncio.get_running_loop()
        self.gateway = gateway
        self.events: list[FeedbackEvent] = []
        self.grown: list[tuple[float, Suggestion]] = []
        self.cache = CompletionCache()
        self.planner = options.pop("planner", None) or LinePlanner()
        planner = self.planner
        language = options.pop("language", "plaintext")
        options.setdefault("planner_for", lambda profile: planner)
        # Requests that nobody waits for have tests of their own.
        options.setdefault("policy", Policy(PolicyOptions(switches=Switches(speculative=False, preload=False))))
        options.setdefault("local", None)
        self.flow = CompletionFlow(
            gateway,
            clock=loop.time,
            cache=self.cache,
            rng=random.Random(0),
            **options,
        )
        self.flow.reacted.add(self.events.append)
        self.flow.grew.add(lambda uri, grown: self.grown.append((loop.time(), grown)))
        self.cursor = text.index("|")
        self.document = Document(URI, text.replace("|", "", 1), language=language, path="a.py")
        self.flow.document_opened(self.document.snapshot())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.flow.close()

    @property
    def text(self) -> str:
        return self.document.text[: self.cursor] + "|" + self.document.text[self.cursor :]

    def type(self, text: str) -> None:
        """One change: `text` inserted at the cursor."""
        self.edit(self.cursor, self.cursor, text)

    def edit(self, start: int, end: int, text: str) -> None:
        self.document.apply([Edit(start, end, text)], self.document.version + 1)
        self.cursor = start + len(text)
        self.flow.document_changed(self.document.change(self.flow.clock()))

    def backspace(self) -> None:
        self.edit(self.cursor - 1, self.cursor, "")

    def move(self, text: str) -> None:
        """The cursor jumps behind the first occurrence of `text`."""
        self.cursor = self.document.text.index(text) + len(text)

    async def ask(self, **options: Any) -> Suggestion | None:
        return await self.flow.suggest(self.document.snapshot(), self.cursor, **options)

    async def typed(self, text: str, **options: Any) -> Suggestion | None:
        """What is suggested behind `text`, which is typed first."""
        self.type(text)
        return await self.ask(**options)

    def asking(self, **options: Any) -> asyncio.Task[Suggestion | None]:
        return asyncio.create_task(self.ask(**options))

    def typing(self, text: str) -> asyncio.Task[Suggestion | None]:
        """What is to be suggested behind `text`, which is typed now."""
        self.type(text)
        return self.asking()

    def accept(self, suggestion: Suggestion) -> None:
        self.flow.accepted(suggestion.id)
        self.edit(self.cursor, self.cursor + suggestion.replaces, suggestion.text)


def profile(**changes: Any) -> Profile:
    return Profile(**{"model": "test", "grammar": "foretype-1", "tokenizer_digest": "00", **changes})
