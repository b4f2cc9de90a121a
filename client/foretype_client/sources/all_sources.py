"""All sources of snippets of one client, asked together: who answers in time is heard, and of the others it is told why not."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Snapshot

from foretype_client.sources.threaded import SnippetAnswer, SnippetRequest, ThreadedSource

OWN: Final = "workspace"
"""Name of the source that needs no index."""

RANKS: Final[Mapping[str, float]] = {"repository": 5.0, "imports": 4.0, "dependencies": 3.0, "recent": 2.0, "open": 1.0}
"""What is kept first under budget (named by the imports, recently edited, then found); 0 for all others."""


class SourceNote(NamedTuple):
    """What became of one source's part in a question; `reason` is empty where it answered in time."""

    name: str
    found: int
    took_ms: float
    reason: str = ""


class Gathered(NamedTuple):
    """Snippets of all sources with comparable scores, and a note about each source."""

    snippets: tuple[Snippet, ...] = ()
    notes: tuple[SourceNote, ...] = ()


class Gathering:
    """The answers to one question, as they come.

    Args:
        asked: names of the sources, in the order of their snippets.
        complete: called once, when the last answer is there.
    """

    def __init__(self, asked: Sequence[ThreadedSource], uri: str, complete: Callable[[], None]) -> None:
        self._asked = asked
        self._uri = uri
        self._complete = complete
        self._answers: dict[str, SnippetAnswer] = {}

    @property
    def done(self) -> bool:
        return len(self._answers) == len(self._asked)

    def deliver(self, name: str, answer: SnippetAnswer) -> None:
        self._answers[name] = answer
        if self.done:
            self._complete()

    def take(self) -> Gathered:
        """What there is now. A source that is late is represented by its last answer for the same document, if any."""
        snippets: list[tuple[str, Snippet]] = []
        notes: list[SourceNote] = []
        for source in self._asked:
            answer = self._answers.get(source.name)
            if answer is None:
                older = source.last(self._uri) or SnippetAnswer()
                answer = older._replace(reason=f"late: {source.late()}{'; its last answer was used' * bool(older[0])}")
            notes.append(SourceNote(source.name, len(answer.snippets), round(answer.took_ms, 3), answer.reason))
            snippets += [(source.name, ranked(one)) for one in answer.snippets]
        # An index shows the body of what an import names, and knows which of its names is meant.
        indexed = {one.path for name, one in snippets if name != OWN and one.source_name == "imports"}
        kept = [one for name, one in snippets if name != OWN or one.source_name != "imports" or one.path not in indexed]
        return Gathered(tuple(kept), tuple(notes))


class Sources:
    """The sources of a client.

    Args:
        hosted: started; this object closes them.
        call_soon: runs a function where the client runs (`loop.call_soon_threadsafe`).
    """

    def __init__(self, hosted: Sequence[ThreadedSource], call_soon: Callable[[Callable[[], object]], object]) -> None:
        self._hosted = tuple(hosted)
        self._call_soon = call_soon
        self._muted = False
        self.late: Counter[str] = Counter()
        self.last_reason = ""

    @classmethod
    def none(cls) -> Sources:
        """No sources: every question is answered at once with nothing."""
        return cls((), lambda call: None)

    def beside(self, others: Sources) -> Sources:
        """These and `others`, asked together."""
        return Sources((*self._hosted, *others._hosted), self._call_soon) if others else self

    def __bool__(self) -> bool:
        return bool(self._hosted)

    def gather(self, snapshot: Snapshot, offset: int, *, limit: int, complete: Callable[[], None]) -> Gathering:
        """Ask all sources about a place; returns at once. `complete` is called where the client runs."""
        gathering = Gathering(() if self._muted else self._hosted, snapshot.uri, complete)
        if self._muted:
            return gathering
        # A tree belongs to the thread that edits the document.
        bare = replace(snapshot, syntax=_no_tree)
        for source in self._hosted:
            source.ask(SnippetRequest(bare, offset, limit, partial(self._deliver, gathering, source.name)))
        return gathering

    def left_out(self, *, others_come: bool = False) -> None:
        """Files are left out that were not before.

        Args:
            others_come: other sources, which know of it, take the place of these: until then nothing is said.
        """
        self._muted = self._muted or others_come
        for source in self._hosted:
            source.forget()

    async def holding(self, root: Path, word: str, *, limit: int, timeout_s: float) -> list[Path]:
        """Files of an open folder that may hold an identifier, of all sources that answer in time. They are not read, and may be gone."""
        answers: list[asyncio.Future[list[Path]]] = []
        for source in self._hosted:
            answer = asyncio.get_running_loop().create_future()
            answers.append(answer)
            source.holding(root, word, limit, partial(self._answer, answer))
        if not answers:
            return []
        done, _ = await asyncio.wait(answers, timeout=timeout_s)
        return sorted({path for one in done for path in one.result()})[:limit]

    def _answer(self, answer: asyncio.Future[list[Path]], found: list[Path]) -> None:
        try:
            self._call_soon(lambda: None if answer.done() else answer.set_result(found))
        except RuntimeError:
            pass  # the loop is closed: nobody listens any more

    def noted(self, gathered: Gathered) -> None:
        """Counts what was late or failed, for the status."""
        for note in gathered.notes:
            if note.reason:
                self.late[note.name] += 1
                self.last_reason: str = (
                    f"{note.name} was {note.reason}" if note.reason.startswith("late") else note.reason
                )

    def opened(self, uri: str, text: str) -> None:
        self._tell("opened", uri, text)

    def changed(self, uri: str, text: str) -> None:
        for source in self._hosted:
            source.changed(uri, text)

    def saved(self, uri: str) -> None:
        """A document was saved, or a file was made, changed or deleted."""
        self._tell("saved", uri)

    def closed(self, uri: str) -> None:
        self._tell("closed", uri)

    def folders(self, roots: Sequence[Path]) -> None:
        """These are the open workspace folders from now on."""
        self._tell("folders", tuple(roots))

    def cancel(self, root: Path) -> None:
        for source in self._hosted:
            source.cancel(root)

    def status(self) -> dict[str, str]:
        """One line for people about each source."""
        return {source.name: source.status() for source in self._hosted}

    def wait(self, timeout_s: float) -> None:
        """Blocks until what is known now can be found, at most so long; for the command line."""
        for source in self._hosted:
            source.settle(timeout_s)

    def close(self) -> None:
        """Ends all threads; blocks until they have."""
        for source in self._hosted:
            source.close()

    def _tell(self, event: str, *arguments: object) -> None:
        for source in self._hosted:
            source.tell(event, *arguments)

    def _deliver(self, gathering: Gathering, name: str, answer: SnippetAnswer) -> None:
        try:
            self._call_soon(partial(gathering.deliver, name, answer))
        except RuntimeError:
            pass  # the loop is closed: nobody listens any more


def ranked(snippet: Snippet) -> Snippet:
    """The snippet with a score that compares across sources: the rank of its source, and within it its own score."""
    own = 1.0 / (1.0 + math.exp(-max(-40.0, min(40.0, snippet.score))))
    return replace(snippet, score=RANKS.get(snippet.source_name, 0.0) + own)


def _no_tree(*_: object) -> None:
    return None
