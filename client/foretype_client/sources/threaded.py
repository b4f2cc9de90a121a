"""A source of snippets behind a thread of its own: nothing that it does runs where somebody waits.

Python cannot stop a function that takes too long, so nobody waits for one: a question that is not answered in time goes
without, and while the source is still at work the next question replaces the one that waits behind it. What a source does
wrong is logged once.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Snapshot

from foretype_client.ports import Clock

_log: Final = logging.getLogger(__name__)

QUIET_S: Final = 0.3
"""A text that changes is handed over when nobody has typed in it for this long."""

_REMEMBERED: Final = 32
_OF_A_DOCUMENT: Final = frozenset({"opened", "saved", "closed"})
_CALL: Final = ""
"""Instead of the name of an event: call its argument."""

_FAULTS_MAX: Final = 5
"""A source that fails this many times in a row is not asked any more."""


class SnippetAnswer(NamedTuple):
    """What a source found, best first, and how long it took; `reason` is why there is nothing, or only something older."""

    snippets: tuple[Snippet, ...] = ()
    took_ms: float = 0.0
    reason: str = ""


class SnippetRequest(NamedTuple):
    """A place, at most how many snippets, and who wants to hear the answer (called in the source's thread)."""

    snapshot: Snapshot
    offset: int
    limit: int
    deliver: Callable[[SnippetAnswer], None]


class ThreadedSource:
    """One source and its thread.

    A source has `snippets` (:class:`foretype_context.prompt.sources.SnippetSource`), and as many as it likes of `opened(uri, text)`,
    `holding(root, word, limit)` (files of a folder that may hold an identifier), `changed(uri, text)`, `saved(uri)`, `closed(uri)`, `folders(roots)`, `cancel(root)`, `wait(timeout_s)`, `status()` and
    `close()`; all but `status`, `cancel` and `wait` are called by this thread.

    Args:
        make: makes the source; may take its time, and may fail.
        clock: monotonic seconds.
    """

    def __init__(self, name: str, make: Callable[[], Any], *, clock: Clock) -> None:
        self.name = name
        self.failed = ""
        self._make = make
        self._clock = clock
        self._source: Any = None
        self._state = threading.Condition()
        self._told: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._changed: dict[str, tuple[str, float]] = {}
        self._question: SnippetRequest | None = None
        self._busy_since_s: float | None = None
        self._closing = False
        self._faults = 0
        self._complained: set[str] = set()
        self._last: OrderedDict[str, SnippetAnswer] = OrderedDict()
        self._forgotten = 0
        self._thread = threading.Thread(target=self._run, name=f"foretype source {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, question: SnippetRequest) -> None:
        """Ask; a question that still waits is forgotten."""
        with self._state:
            self._question = question
            self._state.notify()

    def holding(self, root: Path, word: str, limit: int, deliver: Callable[[list[Path]], object]) -> None:
        """Ask for files that may hold an identifier; the answer comes in the source's thread, and is empty where it knows none."""

        def answer() -> None:
            known = getattr(self._source, "holding", None)
            deliver((self._guarded("holding", known, root, word, limit) or []) if known is not None else [])

        with self._state:
            self._told.append((_CALL, (answer,)))
            self._state.notify()

    def last(self, uri: str) -> SnippetAnswer | None:
        """The newest answer for a document."""
        return self._last.get(uri)

    def forget(self) -> None:
        """Files are left out that were not before: no answer of before stands in for one that is late."""
        self._forgotten += 1
        self._last.clear()

    def late(self) -> str:
        """Why a question is not answered yet."""
        if self.failed:
            return self.failed
        if self._source is None:
            return "it is still being opened"
        since_s = self._busy_since_s
        return "it is busy" if since_s is None else f"it has been busy for {(self._clock() - since_s) * 1e3:.0f} ms"

    def tell(self, event: str, *arguments: Any) -> None:
        """Tell of something that happened, in the order in which it did."""
        with self._state:
            changed = self._changed.pop(str(arguments[0]), None) if event in _OF_A_DOCUMENT else None
            if changed is not None and event == "saved":
                self._told.append(("changed", (arguments[0], changed[0])))
            self._told.append((event, arguments))
            self._state.notify()

    def changed(self, uri: str, text: str) -> None:
        """A document has another text. Cheap, since it comes with every key: the source hears of it when the keys stop."""
        with self._state:
            if not self._changed:
                self._state.notify()
            self._changed[uri] = text, self._clock()

    def cancel(self, root: Path) -> None:
        """The user wants no work on this folder; said at once, for the thread may be at it."""
        if (cancel := getattr(self._source, "cancel", None)) is not None:
            self._guarded("cancel", cancel, root)

    def status(self) -> str:
        """One line for people."""
        if self.failed or self._source is None:
            return self.failed or "opening"
        status = getattr(self._source, "status", None)
        return str(self._guarded("status", status)) if status is not None else "ready"

    def settle(self, timeout_s: float) -> None:
        """Blocks until all that was told so far can be found, at most so long; for the command line."""
        done = threading.Event()
        with self._state:
            self._told.append((_CALL, (done.set,)))
            self._state.notify()
        done.wait(timeout_s)
        if (wait := getattr(self._source, "wait", None)) is not None:
            self._guarded("wait", wait, timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        with self._state:
            self._closing = True
            self._state.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        self._source = self._guarded("open", self._make)
        if self._source is None:
            self.failed = self.failed or "it could not be opened"
        while (work := self._next()) is not None:
            told, question = work
            self._busy_since_s = self._clock()
            for event, arguments in told:
                if event == _CALL:
                    arguments[0]()
                elif (handler := getattr(self._source, event, None)) is not None:
                    self._guarded(event, handler, *arguments)
            if question is not None:
                self._answer(question)
            self._busy_since_s = None
        if (close := getattr(self._source, "close", None)) is not None:
            self._guarded("close", close)

    def _next(self) -> tuple[list[tuple[str, tuple[Any, ...]]], SnippetRequest | None] | None:
        """What to do now, as soon as there is something; None at the end."""
        with self._state:
            while not (self._closing or self._told or self._question is not None):
                if not self._changed:
                    self._state.wait()
                elif (left_s := min(at_s for _, at_s in self._changed.values()) + QUIET_S - self._clock()) > 0:
                    self._state.wait(left_s)
                else:
                    break
            if self._closing:
                return None
            told, question = list(self._told), self._question
            self._told.clear()
            self._question = None
            quiet_s = self._clock() - QUIET_S
            quiet = [uri for uri, (_, at_s) in self._changed.items() if at_s <= quiet_s]
            told += [("changed", (uri, self._changed.pop(uri)[0])) for uri in quiet]
        return told, question

    def _answer(self, question: SnippetRequest) -> None:
        began_s, forgotten = self._clock(), self._forgotten
        found: Sequence[Snippet] | None = None
        if not self.failed:
            snapshot, offset, limit, _ = question
            found = self._guarded("snippets", self._snippets, snapshot, offset, limit)
        took_ms = (self._clock() - began_s) * 1e3
        if found is None:
            self._faults += 1
            if self._faults >= _FAULTS_MAX and not self.failed:
                self.failed = f"switched off: it failed {_FAULTS_MAX} times in a row"
                _log.warning("source %s is %s", self.name, self.failed)
            answer = SnippetAnswer((), took_ms, self.failed or "it failed; see the log")
        else:
            self._faults = 0
            answer = SnippetAnswer(tuple(found), took_ms)
            if forgotten == self._forgotten:
                self._last[question.snapshot.uri] = answer
                self._last.move_to_end(question.snapshot.uri)
                if len(self._last) > _REMEMBERED:
                    self._last.popitem(last=False)
        question.deliver(answer)

    def _snippets(self, snapshot: Snapshot, offset: int, limit: int) -> Sequence[Snippet]:
        found: Sequence[Any] = self._source.snippets(snapshot, offset, limit=limit)
        if not all(isinstance(one, Snippet) for one in found):
            raise TypeError("snippets() gave something else than Snippet")
        return found[:limit]

    def _guarded(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:  # noqa: BLE001 - a source may be anybody's; whatever it raises costs its snippets alone
            kind = f"{what}: {type(error).__name__}"
            if what == "open":
                self.failed: str = f"it could not be opened ({type(error).__name__}: {error})"
            if kind not in self._complained:
                self._complained.add(kind)
                # A message may hold the user's text; only what was raised while nothing was read yet is told.
                detail = f": {error}" if what == "open" else ""
                _log.warning("source %s failed in %s%s", self.name, kind, detail)
            return None
