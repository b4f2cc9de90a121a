"""Types a recording through an assistant, on virtual time, and takes what is right.

The text goes the recorded way whatever is offered. Where an offer is what was wanted, it is taken once it was visible for a
moment, the rest of that visit's changes is skipped, and the recording goes on at its own time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from foretype_context.syntax.document import Change, Document, Edit, Snapshot
from foretype_context.syntax.languages import language_of
from foretype_eval.replay.accept import Rule, decide

from foretype_lab.peer.steps import Step


@dataclass(frozen=True, slots=True)
class Offer:
    """What is visible at the caret: the text that accepting would insert there, and since when."""

    text: str
    since_s: float


class Assistant(Protocol):
    """A client under test. `changed` and `moved` come with the caret; `asks` where an editor would ask."""

    @property
    def offer(self) -> Offer | None: ...

    @property
    def news(self) -> asyncio.Event:
        """Set whenever the offer changed; whoever waits clears it."""
        ...

    def opened(self, snapshot: Snapshot) -> None: ...
    def entered(self, snapshot: Snapshot, caret: int) -> None: ...
    def left(self, snapshot: Snapshot, caret: int, *, modified: bool) -> None: ...
    def changed(self, change: Change, caret: int, *, asks: bool) -> None: ...
    def moved(self, snapshot: Snapshot, caret: int) -> None: ...
    def taken(self) -> None: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class TypistTally:
    """Counts of one session. A key is a change that was recorded, or the key that accepts."""

    keys_without: int = 0
    keys_with: int = 0
    asked: int = 0
    shown: int = 0
    shown_right: int = 0
    accepts: int = 0
    accepted_chars: int = 0
    shown_ms: list[float] = field(default_factory=list[float])


class RecordedTypist:
    """One session with one assistant.

    Args:
        decide_s: an offer cannot be taken before it was visible this long.
    """

    def __init__(self, assistant: Assistant, *, rule: Rule, decide_s: float, rng: Random) -> None:
        self._assistant = assistant
        self._rule = rule
        self._decide_s = decide_s
        self._rng = rng
        self._documents: dict[str, Document] = {}
        self._carets: dict[str, int] = {}
        self._modified: set[str] = set()
        self._current = ""
        self.tally = TypistTally()

    async def run(self, steps: Sequence[Step]) -> None:
        """Type all steps."""
        loop = asyncio.get_running_loop()
        begin_s = loop.time() - (steps[0].time_s if steps else 0.0)
        self.tally.keys_without = sum(bool(step.edits) for step in steps)
        at = 0
        while at < len(steps):
            step = steps[at]
            await _until(begin_s + step.time_s)
            self._apply(step)
            if not step.asks:
                at += 1
                continue
            following_s = begin_s + steps[at + 1].time_s if at + 1 < len(steps) else loop.time() + 5.0
            if await self._watch(step, following_s):
                self._take(step)
                at = step.visit_end
            at += 1
        await self._assistant.close()

    def _apply(self, step: Step) -> None:
        path = step.path
        document = self._documents.get(path)
        if document is None or step.loaded is not None:
            version = document.version + 1 if document is not None else 1
            text = step.loaded if step.loaded is not None else ""
            document = Document(f"file:///{path}", text, language=language_of(path), path=path, version=version)
            self._documents[path] = document
            self._modified.discard(path)
            self._assistant.opened(document.snapshot())
        if step.loaded is not None:
            self._carets[path] = step.caret
            return
        if path != self._current:
            self._leave()
            self._current = path
            self._assistant.entered(document.snapshot(), step.caret)
        self._carets[path] = step.caret
        if not step.edits:
            self._assistant.moved(document.snapshot(), step.caret)
            return
        document.apply(list(step.edits), document.version + 1)
        self._modified.add(path)
        self.tally.keys_with += 1
        self.tally.asked += step.asks
        self._assistant.changed(document.change(asyncio.get_running_loop().time()), step.caret, asks=step.asks)

    def _leave(self) -> None:
        document = self._documents.get(self._current)
        if document is not None:
            modified = self._current in self._modified
            self._assistant.left(document.snapshot(), self._carets.get(self._current, 0), modified=modified)
            self._modified.discard(self._current)

    async def _watch(self, step: Step, following_s: float) -> bool:
        """Look at what is offered until the next step; whether it is taken before."""
        loop = asyncio.get_running_loop()
        asked_s, seen = loop.time(), False
        while True:
            self._assistant.news.clear()
            offer = self._assistant.offer
            wake_s = following_s
            if offer is not None:
                right = decide(self._rule, offer.text, step.wanted, self._rng) is not None
                ready_s = max(offer.since_s + self._decide_s, loop.time())
                if not seen and offer.text.strip():
                    seen = True
                    self.tally.shown += 1
                    self.tally.shown_right += right
                    self.tally.shown_ms.append((max(loop.time(), asked_s) - asked_s) * 1000)
                if right and ready_s < following_s:
                    if loop.time() >= ready_s:
                        return True
                    wake_s = ready_s
            if loop.time() >= following_s:
                return False
            try:
                async with asyncio.timeout(wake_s - loop.time()):
                    await self._assistant.news.wait()
            except TimeoutError:
                if wake_s == following_s:
                    return False

    def _take(self, step: Step) -> None:
        document, wanted = self._documents[step.path], step.wanted
        self._assistant.taken()
        document.apply([Edit(step.caret, step.caret, wanted)], document.version + 1)
        caret = self._carets[step.path] = step.caret + len(wanted)
        self.tally.keys_with += 1
        self.tally.accepts += 1
        self.tally.accepted_chars += len(wanted.rstrip())
        self._assistant.changed(document.change(asyncio.get_running_loop().time()), caret, asks=True)


async def _until(moment_s: float) -> None:
    # Also where the moment has passed: what became ready must run before the next key.
    await asyncio.sleep(max(0.0, moment_s - asyncio.get_running_loop().time()))
