"""A simulated developer: types stretches through the real completion flow, on virtual time.

After each key the editor asks, as editors do; whatever has arrived before the next key may be accepted once it has been
visible for `decide_s`. Which key comes when is drawn beforehand from the typist's distribution, so two systems that are
compared see the same rhythm for the same seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from foretype_client.flow.suggestion import Suggestion
from foretype_client.listeners import DocumentListener
from foretype_client.policy.trigger import Trigger
from foretype_context.syntax.blocks import within
from foretype_context.syntax.document import Document, Edit, Snapshot
from foretype_context.syntax.lexis import Within

from foretype_eval.replay.accept import Accepted, Rule, decide
from foretype_eval.replay.commits import Stretch
from foretype_eval.replay.typist import gap_s, keys_of, next_key


class Flow(DocumentListener, Protocol):
    """The part of :class:`foretype_client.flow.flow.CompletionFlow` that a developer touches."""

    async def suggest(self, snapshot: Snapshot, offset: int, *, trigger: Trigger) -> Suggestion | None: ...
    def accepted(self, id: str) -> None: ...
    def partially_accepted(self, id: str, characters: int) -> None: ...


@dataclass(slots=True)
class Tally:
    """Counts of one commit. `keys_without` is what typing alone takes; automatic indentation is free in both."""

    keys_without: int = 0
    keys_with: int = 0
    opportunities: int = 0
    shown: int = 0
    accepts: int = 0
    accepted_chars: int = 0
    sessions: int = 0
    sessions_right: int = 0
    by_source: dict[str, int] = field(default_factory=dict[str, int])
    key_times_s: list[float] = field(default_factory=list[float])
    slices: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def count(self, names: Sequence[str], *, sessions: int = 0, right: int = 0, characters: int = 0) -> None:
        """Book suggestion sessions, right ones and accepted characters under each of `names`."""
        for name in names:
            counts = self.slices.setdefault(name, [0, 0, 0])
            for at, by in enumerate((sessions, right, characters)):
                counts[at] += by


def slices_of(
    suggestion: str, language: str, left: str, within: Within | None = None, parses: bool | None = None
) -> list[str]:
    """Under which names a suggestion is booked: language, place in line and syntax, length of its first line, whether it parses."""
    position = (
        "line start"
        if not left.strip()
        else "after a separator"
        if left.endswith((" ", "(", ".", "=", ","))
        else "in a word"
    )
    length = len(suggestion.split("\n", 1)[0])
    bucket = next((f"up to {most}" for most in (10, 25, 50) if length <= most), "over 50")
    told = {True: "yes", False: "no", None: "unknown"}[parses]
    return [
        f"language:{language or 'other'}",
        f"position:{position}",
        f"length:{bucket}",
        f"within:{within or 'code'}",
        f"parses:{told}",
    ]


class TypingDeveloper:
    """Types with help.

    Args:
        flow: the system under test, or None for `empty`.
        decide_s: a suggestion cannot be accepted before it was visible this long.
        growing: the editor asks again when :meth:`grew` says that there is more of what it shows. What grows is one session,
            right once what is visible of it is, and is read from when it last grew.
    """

    def __init__(self, flow: Flow | None, *, rule: Rule, rng: Random, decide_s: float, growing: bool = False) -> None:
        self._flow = flow
        self._rule = rule
        self._rng = rng
        self._decide_s = decide_s
        self._growing = growing
        self._grew = asyncio.Event()
        self._fault: BaseException | None = None
        self._right = False
        self.tally = Tally()

    def grew(self, uri: str, suggestion: Suggestion) -> None:
        """Asking again at the same place gives more."""
        self._grew.set()

    async def type(self, stretch: Stretch, *, root: str, language: str) -> None:
        """Type one stretch, key by key. What a question fails with is raised, however late: it is no missing suggestion."""
        keys = keys_of(stretch.target)
        self.tally.keys_without += keys
        if self._flow is None:  # nothing can come of any key: the row is its length
            self.tally.keys_with += keys
            return
        flow, loop = self._flow, asyncio.get_running_loop()
        uri = f"file://{root}/{stretch.path}"
        document = Document(uri, stretch.before + stretch.after, language=language, path=stretch.path, version=1)
        flow.document_opened(document.snapshot())
        base, done, visible, since_s = len(stretch.before), 0, "", 0.0
        while done < len(stretch.target):
            remaining = stretch.target[done:]
            key = next_key(remaining)
            due_s = loop.time() + gap_s(self._rng, after_newline=done > 0 and stretch.target[done - 1] == "\n")
            self.tally.opportunities += 1
            offset = base + done
            self._grew.clear()
            suggestion = await self._wait_for(flow, document.snapshot(), offset, due_s)
            entered, shown = 0, suggestion is not None
            while suggestion is not None:
                if not visible or visible != suggestion.text:
                    since_s = loop.time()
                left = stretch.target[:done].rpartition("\n")[2]
                inside = within(document.snapshot(), offset)
                names = slices_of(suggestion.text, language, left, inside, suggestion.parses)
                self._saw(suggestion, remaining, names, merged=self._merges(visible, suggestion.text))
                visible = suggestion.text
                taken = decide(self._rule, suggestion.text, remaining, self._rng)
                moment_s = max(since_s + self._decide_s, loop.time())
                if taken is not None and moment_s < due_s:
                    await asyncio.sleep(moment_s - loop.time())
                    entered = self._take(flow, document, offset, suggestion, taken)
                    self.tally.count(names, characters=entered)
                    break
                suggestion = await self._more(flow, document.snapshot(), offset, due_s)
            self.tally.shown += shown
            if entered:
                done, visible = done + entered, ""
                continue
            visible = visible[len(key) :] if shown and visible.startswith(key) else ""
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            document.apply([Edit(base + done, base + done, key)], document.version + 1)
            done += len(key)
            self.tally.keys_with += 1
            self.tally.key_times_s.append(loop.time())
            flow.document_changed(document.change(loop.time()))
            if self._fault is not None:
                raise self._fault
        flow.document_closed(document.snapshot())

    async def _wait_for(self, flow: Flow, snapshot: Snapshot, offset: int, due_s: float) -> Suggestion | None:
        """The suggestion that is answered before the next key, if any. The editor does not cancel (as Neovim)."""
        asked = asyncio.ensure_future(flow.suggest(snapshot, offset, trigger=Trigger.AUTOMATIC))
        asked.add_done_callback(self._ended)
        delay = due_s - asyncio.get_running_loop().time()
        await asyncio.wait([asked], timeout=delay)
        return asked.result() if asked.done() else None

    def _ended(self, task: asyncio.Future[Suggestion | None]) -> None:
        if not task.cancelled() and self._fault is None:
            self._fault = task.exception()

    async def _more(self, flow: Flow, snapshot: Snapshot, offset: int, due_s: float) -> Suggestion | None:
        """What is shown once it has grown, if it does before the next key."""
        if not self._growing:
            return None
        try:
            async with asyncio.timeout(max(0.0, due_s - asyncio.get_running_loop().time())):
                await self._grew.wait()
        except TimeoutError:
            return None
        self._grew.clear()
        return await self._wait_for(flow, snapshot, offset, due_s)

    def _merges(self, visible: str, text: str) -> bool:
        """Whether a display goes on with what is visible."""
        return bool(visible) and (text.startswith(visible) if self._growing else text == visible)

    def _saw(self, suggestion: Suggestion, remaining: str, names: Sequence[str], *, merged: bool) -> None:
        """Displays whose resulting text is the same are one session, right if its text is what was written."""
        tally = self.tally
        right = decide(Rule.LINE, suggestion.text, remaining, self._rng) is not None
        if not merged:
            tally.sessions += 1
            tally.count(names, sessions=1)
        if right and not (merged and (self._right or not self._growing)):
            tally.sessions_right += 1
            tally.count(names, right=1)
        self._right = right or (merged and self._right)
        tally.by_source[str(suggestion.source)] = tally.by_source.get(str(suggestion.source), 0) + 1

    def _take(self, flow: Flow, document: Document, offset: int, suggestion: Suggestion, taken: Accepted) -> int:
        """Accept; returns the characters of the true text that now stand there."""
        text, now_s = suggestion.text[: taken.characters], asyncio.get_running_loop().time()
        document.apply([Edit(offset, offset, text)], document.version + 1)
        self.tally.accepts += 1
        self.tally.keys_with += taken.keys
        if taken.wrong:
            self.tally.keys_with += 1  # undo
            document.apply([Edit(offset, offset + len(text), "")], document.version + 1)
            flow.document_changed(document.change(now_s))
            return 0
        self.tally.accepted_chars += len(text)
        if taken.characters < len(suggestion.text):
            flow.partially_accepted(suggestion.id, taken.characters)
        else:
            flow.accepted(suggestion.id)
        flow.document_changed(document.change(now_s))
        return len(text)
