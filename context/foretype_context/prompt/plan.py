"""What an assembled prompt is: types that the layouts fill and the client reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from foretype_context.prompt.profile import Stop
from foretype_context.prompt.segments import Kind, PlacedSegment, Segment, Source
from foretype_context.syntax.blocks import SuggestionKind

_REMEMBERED_FILES: Final = 32


class Dropped(NamedTuple):
    """A candidate that is not in the prompt, and why."""

    kind: Kind
    source: Source
    tokens: int
    reason: str


class FrozenSpan(NamedTuple):
    """Characters `[start, end)` of the live document that the prompt shows as `text`, as they were at an earlier version."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A finished prompt.

    Attributes:
        segments: in prompt order, with exact token ranges; the last range ends at `prompt_tokens`.
        middle: text already behind the middle token; generation continues it.
        healed: characters left of the cursor that the prompt leaves out; the output repeats them and the caller strips them.
        stop: where generation ends, counted from the end of `middle`.
        strategy: id of the context strategy that filled it.
        notes: what did not go as the profile says.
        frozen_spans: where the prompt deliberately differs from the live document.
    """

    segments: tuple[PlacedSegment, ...]
    prompt_tokens: int
    budget_tokens: int
    layout: str
    kind: SuggestionKind
    stop: Stop
    max_tokens: int
    middle: str
    healed: str = ""
    dropped: tuple[Dropped, ...] = ()
    strategy: str = ""
    notes: tuple[str, ...] = ()
    frozen_spans: tuple[FrozenSpan, ...] = ()
    timings_ms: Mapping[str, float] = field(default_factory=dict[str, float])

    def kind_of(self, text: str) -> SuggestionKind:
        """What `text`, generated for this prompt, is: as planned, or a line that has opened a block."""
        first, newline, _ = text.partition("\n")
        opened = self.stop.opened
        return SuggestionKind.OPENED if newline and opened is not None and opened.by(first) else self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMemory:
    """What the last prompt showed of one document, so that the next one can show the same.

    Attributes:
        window_start: offset of the first line shown.
        anchor: the text that began there; tells whether the window moved.
        hole_start: offset where the lines above end (a line's start).
        above: the lines above as shown.
        below: the text below the hole as shown.
        below_source: where and when `below` was read.
        below_chars: how much text stood below when it was frozen; less now means a deletion.
        planned_at: seconds, on the caller's clock.
        earlier: what was shown at other places of the document, newest first, each without any `earlier` of its own: who
            comes back finds it in the cache.
    """

    window_start: int = 0
    anchor: str = ""
    hole_start: int = 0
    above: str = ""
    below: str = ""
    below_source: Source = field(default_factory=Source)
    below_chars: int = -1
    planned_at: float = float("-inf")
    earlier: tuple[FileMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanState:
    """What all prompts of a session have shown so far; a plan is a pure function of it and a snapshot.

    Attributes:
        files: memory per document, least recently planned first.
        context: the snippets of other files in the prompt, in the order in which they stand.
    """

    files: Mapping[str, FileMemory] = field(default_factory=lambda: MappingProxyType({}))
    context: tuple[Segment, ...] = ()

    @classmethod
    def empty(cls) -> PlanState:
        return cls()

    def remembering(self, uri: str, memory: FileMemory, context: tuple[Segment, ...]) -> PlanState:
        files = {key: value for key, value in self.files.items() if key != uri}
        files[uri] = memory
        if len(files) > _REMEMBERED_FILES:
            del files[next(iter(files))]
        return PlanState(MappingProxyType(files), context)

    def without(self, uri: str) -> PlanState:
        """Forgets a document that was closed."""
        return PlanState(MappingProxyType({k: v for k, v in self.files.items() if k != uri}), self.context)
