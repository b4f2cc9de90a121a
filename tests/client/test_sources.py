"""Sources of snippets: whatever one of them does, a question is answered."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk, LinePlanner
from foretype_client.sources import loading
from foretype_client.sources import threaded as hosted_module
from foretype_client.sources.all_sources import Gathered, Sources, ranked
from foretype_client.sources.loading import SourceOptions, open_sources
from foretype_client.sources.threaded import SnippetAnswer, ThreadedSource
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Document
from waiting import wait_until

SNAPSHOT = Document("file:///w/a.py", "x = 1\n", path="a.py").snapshot()


def snippet(text: str = "def f(): ...\n", **changes: Any) -> Snippet:
    return Snippet(**{"path": "b.py", "text": text, "source_name": "test", **changes})


class Scripted:
    """A source that says what it is told to say, when the gate is open."""

    name = "test"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.said: Any = [snippet()]
        self.heard: list[tuple[Any, ...]] = []
        self.trees: list[object] = []
        self.closes = 0

    def snippets(self, snapshot: Any, offset: int, *, limit: int) -> Any:
        self.trees.append(snapshot.syntax_at(offset))
        self.heard.append(("asked", offset))
        self.gate.wait(30)
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    def opened(self, uri: str, text: str) -> None:
        self.heard.append(("opened", uri, text))

    def changed(self, uri: str, text: str) -> None:
        self.heard.append(("changed", uri, text))

    def saved(self, uri: str) -> None:
        self.heard.append(("saved", uri))

    def closed(self, uri: str) -> None:
        self.heard.append(("closed", uri))

    def status(self) -> str:
        return "fine"

    def close(self) -> None:
        self.closes += 1


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted_module, "QUIET_S", 0.05)


@pytest.fixture
def source() -> Scripted:
    return Scripted()


@pytest.fixture
def hosted(source: Scripted) -> Iterator[ThreadedSource]:
    one = ThreadedSource("test", lambda: source, clock=time.monotonic)
    one.start()
    yield one
    source.gate.set()
    one.close()


async def answered(sources: Sources, timeout_s: float = 60.0) -> Gathered:
    event = asyncio.Event()
    gathering = sources.gather(SNAPSHOT, 3, limit=4, complete=event.set)
    try:
        async with asyncio.timeout(timeout_s):
            while not gathering.done:
                await event.wait()
    except TimeoutError:
        pass
    return gathering.take()


def shelf(*hosted: ThreadedSource) -> Sources:
    return Sources(hosted, asyncio.get_running_loop().call_soon_threadsafe)


async def test_an_answer_comes_with_its_note_and_without_a_tree(hosted: ThreadedSource, source: Scripted) -> None:
    gathered = await answered(shelf(hosted))
    assert [one.text for one in gathered.snippets] == [snippet().text]
    (note,) = gathered.notes
    assert (note.name, note.found, note.reason) == ("test", 1, "") and note.took_ms >= 0
    assert source.trees == [None]  # a tree belongs to the thread that edits the document


async def test_no_more_than_asked_for_even_if_it_gives_more(hosted: ThreadedSource, source: Scripted) -> None:
    source.said = [snippet(f"def f{n}(): ...\n") for n in range(40)]
    assert len((await answered(shelf(hosted))).snippets) == 4


async def test_a_source_that_is_late_costs_its_snippets_and_says_so(hosted: ThreadedSource, source: Scripted) -> None:
    source.gate.clear()
    sources = shelf(hosted)
    gathering = sources.gather(SNAPSHOT, 3, limit=4, complete=lambda: None)
    wait_until(lambda: ("asked", 3) in source.heard)
    gathered = gathering.take()
    assert gathered.snippets == () and gathered.notes[0].reason.startswith("late: it has been busy for")
    sources.noted(gathered)
    assert sources.late.total() == 1 and sources.last_reason.startswith("test was late")


async def test_the_last_answer_for_the_document_stands_in_for_a_late_one(
    hosted: ThreadedSource, source: Scripted
) -> None:
    sources = shelf(hosted)
    first = await answered(sources)
    source.gate.clear()
    gathered = await answered(sources, 0.05)
    assert gathered.snippets == first.snippets and "its last answer was used" in gathered.notes[0].reason


async def test_behind_a_slow_question_only_the_newest_waits(hosted: ThreadedSource, source: Scripted) -> None:
    source.gate.clear()
    sources = shelf(hosted)
    for offset in range(5):
        sources.gather(SNAPSHOT, offset, limit=4, complete=lambda: None)
        wait_until(lambda: ("asked", 0) in source.heard)
    source.gate.set()
    wait_until(lambda: ("asked", 4) in source.heard)
    assert [offset for _, offset in source.heard] == [0, 4]


async def test_what_it_raises_is_logged_once_and_without_its_text(
    hosted: ThreadedSource, source: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    source.said = ValueError("secret = 1")
    sources = shelf(hosted)
    for _ in range(4):
        gathered = await answered(sources)
        assert gathered.snippets == () and gathered.notes[0].reason == "it failed; see the log"
    assert [record.levelno for record in caplog.records] == [logging.WARNING] and "secret" not in caplog.text
    source.said = [snippet()]
    assert len((await answered(sources)).snippets) == 1  # it may get better


async def test_who_only_fails_is_not_asked_any_more(hosted: ThreadedSource, source: Scripted) -> None:
    source.said = ValueError()
    sources = shelf(hosted)
    for _ in range(8):
        gathered = await answered(sources)
    assert "switched off" in gathered.notes[0].reason and sources.status() == {"test": gathered.notes[0].reason}
    assert sum(event[0] == "asked" for event in source.heard) == 5


@pytest.mark.parametrize("said", [["text"], 7, None, [None]])
async def test_what_is_no_snippet_is_a_failure_of_the_source(
    hosted: ThreadedSource, source: Scripted, said: object
) -> None:
    source.said = said
    gathered = await answered(shelf(hosted))
    assert gathered.snippets == () and gathered.notes[0].reason


async def test_a_source_that_cannot_be_opened_says_why(caplog: pytest.LogCaptureFixture) -> None:
    def make() -> Any:
        raise ImportError("No module named 'faiss'")

    one = ThreadedSource("broken", make, clock=time.monotonic)
    one.start()
    sources = shelf(one)
    sources.opened("file:///w/a.py", "x")
    gathered = await answered(sources)
    assert "No module named 'faiss'" in gathered.notes[0].reason and "faiss" in sources.status()["broken"]
    assert len(caplog.records) == 1
    one.close()


async def test_a_source_that_opens_slowly_delays_nobody() -> None:
    gate, source = threading.Event(), Scripted()

    def make() -> Scripted:
        gate.wait(30)
        return source

    one = ThreadedSource("slow", make, clock=time.monotonic)
    one.start()
    sources = shelf(one)
    sources.opened("file:///w/a.py", "x")
    assert (await answered(sources, 0.02)).notes[0].reason == "late: it is still being opened"
    assert sources.status() == {"slow": "opening"}
    gate.set()
    assert len((await answered(sources)).snippets) == 1 and source.heard[0] == ("opened", "file:///w/a.py", "x")
    one.close()


@pytest.mark.usefixtures("quiet")
def test_a_burst_of_changes_is_told_once_when_it_is_over(hosted: ThreadedSource, source: Scripted) -> None:
    for n in range(50):
        hosted.changed("a", f"x = {n}")
    hosted.changed("b", "y")
    wait_until(lambda: len(source.heard) == 2)
    assert source.heard == [("changed", "a", "x = 49"), ("changed", "b", "y")]


@pytest.mark.usefixtures("quiet")
def test_a_text_is_told_of_while_another_is_typed_in(hosted: ThreadedSource, source: Scripted) -> None:
    hosted.changed("b", "y")
    wait_until(lambda: hosted.changed("a", "x") or ("changed", "b", "y") in source.heard)


def test_a_save_brings_the_change_before_it(hosted: ThreadedSource, source: Scripted) -> None:
    hosted.tell("opened", "a", "1")
    hosted.changed("a", "2")
    hosted.tell("saved", "a")
    hosted.changed("a", "3")
    hosted.tell("closed", "a")
    wait_until(lambda: len(source.heard) == 4)
    assert source.heard == [("opened", "a", "1"), ("changed", "a", "2"), ("saved", "a"), ("closed", "a")]


def test_closing_ends_the_thread_and_closes_the_source_once(source: Scripted) -> None:
    one = ThreadedSource("test", lambda: source, clock=time.monotonic)
    one.start()
    one.close()
    one.close()
    assert source.closes == 1 and not any(thread.name == "foretype source test" for thread in threading.enumerate())


async def test_an_answer_that_nobody_waits_for_any_more_harms_nothing(hosted: ThreadedSource, source: Scripted) -> None:
    def closed(call: object) -> None:
        raise RuntimeError("Event loop is closed")

    Sources([hosted], closed).gather(SNAPSHOT, 0, limit=1, complete=lambda: None)
    wait_until(lambda: hosted.last(SNAPSHOT.uri) is not None)


@pytest.mark.parametrize("score", [-1e308, -40.0, 0.0, 3.5, 1e308, float("inf"), float("-inf")])
def test_what_imports_name_ranks_before_everything_that_was_only_found(score: float) -> None:
    assert (
        ranked(snippet(source_name="retrieval", score=score)).score
        <= ranked(snippet(source_name="imports", score=-score)).score
    )


async def test_the_flow_shows_what_is_there_and_waits_for_nothing_else(
    hosted: ThreadedSource, source: Scripted
) -> None:
    seen: list[list[str]] = []

    class Planner(LinePlanner):
        def plan(self, *arguments: Any, **options: Any) -> Any:
            seen.append([one.text for one in options["snippets"]])
            return super().plan(*arguments, **options)

    sources = shelf(hosted)
    gateway = ScriptedGateway(Script([(0.0, "1")]))
    async with Desk(gateway, "x = |\n", planner=Planner(), sources=sources) as desk:
        assert await desk.typed("a") is not None
        assert seen == [[snippet().text]]
        source.gate.clear()
        desk.type("\ny")
        source.said = []
        assert await desk.ask() is not None  # while the source hangs
        assert seen[-1] == [snippet().text] and sources.late.total() == 1
    source.gate.set()


def test_the_registered_sources_are_opened_with_what_they_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: Scripted
) -> None:
    given: list[Any] = []

    class Point:
        name = "test"

        def load(self) -> Any:
            return lambda *arguments, **options: given.append((arguments, options)) or source

    monkeypatch.setattr(loading, "registered", lambda: [Point()])
    options = SourceOptions(globs=("*.x",), cache_dir=tmp_path)
    sources = open_sources([tmp_path], options, call_soon=lambda call: call(), clock=time.monotonic)
    wait_until(lambda: sources.status().get("test") == "fine")
    assert given == [(((tmp_path,),), {"cache_dir": tmp_path, "globs": ("*.x",), "on_progress": None})]
    sources.close()
    off = open_sources([tmp_path], SourceOptions(retrieval=False), call_soon=lambda call: call(), clock=time.monotonic)
    assert "test" not in off.status()
    off.close()


def test_retrieval_is_registered() -> None:
    assert "retrieval" in [point.name for point in loading.registered()]


def test_nothing_is_found_by_no_sources() -> None:
    gathering = Sources.none().gather(SNAPSHOT, 0, limit=8, complete=lambda: None)
    assert gathering.done and gathering.take() == Gathered() and not Sources.none()
    assert SnippetAnswer().snippets == ()
