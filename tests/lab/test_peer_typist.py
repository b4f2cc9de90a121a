"""What a recording went on to write, and a desk that takes what is right."""

import asyncio
import concurrent.futures
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from foretype_client.flow.suggestion import Origin, Suggestion
from foretype_context.errors import ProfileError
from foretype_context.syntax.document import Change, Document, Edit, Snapshot
from foretype_eval.replay.accept import Rule
from foretype_eval.replay.edit_events import Changed, Event, Loaded, Moved, Recording
from foretype_eval.replay.virtual import VirtualLoop
from foretype_lab.commands import bench
from foretype_lab.errors import LlamaServerError, PeerResultError
from foretype_lab.peer.assistants import CountingGateway, ForetypeAssistant, LlamaVimAssistant, buffer_of
from foretype_lab.peer.clocks import WallLoop
from foretype_lab.peer.options import PeerOptions
from foretype_lab.peer.page import table_of, write_page
from foretype_lab.peer.recorded_typist import Offer, RecordedTypist, TypistTally
from foretype_lab.peer.run import _part, _row  # pyright: ignore[reportPrivateUsage]
from foretype_lab.peer.single_asks import CONTINUE, SingleAsks
from foretype_lab.peer.steps import Step, steps_of
from foretype_lab.peer.systems import CountedSession
from foretype_wire.messages import Delta, Done, Finish, RequestClass, Usage
from foretype_wire.subscriptions import Subscribers
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

Made = TypeVar("Made")


def typed(text: str, *, at: int, start_s: float = 1.0, gap_s: float = 0.5) -> list[Event]:
    return [
        Changed(start_s + number * gap_s, "a.py", (Edit(at + number, at + number, key),))
        for number, key in enumerate(text)
    ]


def recording(*events: Event, text: str = "") -> Recording:
    return Recording("r", (Loaded(0.0, "a.py", text), Moved(0.1, "a.py", 0), *events))


def test_the_line_as_it_was_left_says_what_was_wanted() -> None:
    steps = steps_of(recording(*typed("ab = 1\nc", at=0)))
    asks = [step for step in steps if step.asks]
    assert [step.wanted for step in asks] == ["b = 1", " = 1", "= 1", " 1", "1", "", "c", ""]
    assert asks[0].visit_end == steps.index(asks[5])  # the line end begins another line


def test_brackets_that_the_editor_closed_are_no_part_of_what_was_wanted() -> None:
    events = [
        *typed("f", at=0),
        Changed(2.0, "a.py", (Edit(1, 1, "()"),)),
        Moved(2.001, "a.py", 2),
        *typed("xy", at=2, start_s=3.0),
    ]
    steps = [step for step in steps_of(recording(*events)) if step.asks]
    assert [(step.caret, step.wanted) for step in steps] == [(1, "(xy)"), (2, "xy"), (3, "y"), (4, "")]


def test_what_was_deleted_again_was_not_wanted() -> None:
    events = [*typed("abx", at=0), Changed(4.0, "a.py", (Edit(2, 3, ""),)), *typed("c", at=2, start_s=5.0)]
    steps = [step for step in steps_of(recording(*events)) if step.edits]
    assert [step.wanted for step in steps] == ["bc", "c", "", "c", ""]


def test_an_edit_elsewhere_ends_the_visit() -> None:
    events = [*typed("ab", at=0), Changed(3.0, "a.py", (Edit(5, 5, "z"),)), *typed("c", at=2, start_s=4.0)]
    steps = [step for step in steps_of(recording(*events, text="\n\n\n\n")) if step.edits]
    assert [step.wanted for step in steps][:2] == ["b", ""]
    assert not steps[2].asks  # no key acts away from the caret


PIECES = st.sampled_from(["a", "b", " ", "\n", "()", "x\ny"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), PIECES), max_size=25), st.integers(0, 30))
def test_inserting_what_was_wanted_is_what_the_recording_did(edits: list[tuple[int, int, str]], cut_at: int) -> None:
    text = "one\ntwo = 2\n"
    events: list[Event] = []
    texts = [text]
    for number, (at, length, new) in enumerate(edits):
        start = min(at, len(texts[-1]))
        end = min(start + length, len(texts[-1]))
        events += [Moved(number + 0.5, "a.py", start), Changed(number + 1.0, "a.py", (Edit(start, end, new),))]
        texts.append(texts[-1][:start] + new + texts[-1][end:])
    steps = steps_of(Recording("r", (Loaded(0.0, "a.py", text), *events)))
    after = text
    states: list[str] = []
    for step in steps:
        for start, end, new in step.edits:
            after = after[:start] + new + after[end:]
        states.append(after)
    assert after == texts[-1]
    for step, state in zip(steps, states, strict=True):
        if step.wanted:
            caret = step.caret
            assert state[:caret] + step.wanted + state[caret:] == states[step.visit_end]
    part = _part(steps, PeerOptions(source=Path(), from_minute=cut_at / 60))
    assert all(number <= step.visit_end < len(part) for number, step in enumerate(part))


class Knowing:
    """Offers one text at one place, some time after it was asked."""

    def __init__(self, text: str, *, at: int, after_s: float) -> None:
        self.news = asyncio.Event()
        self.offer: Offer | None = None
        self.texts: list[str] = []
        self.accepted = 0
        self._text, self._at, self._after_s = text, at, after_s

    def opened(self, snapshot: Snapshot) -> None: ...
    def entered(self, snapshot: Snapshot, caret: int) -> None: ...
    def left(self, snapshot: Snapshot, caret: int, *, modified: bool) -> None: ...
    def moved(self, snapshot: Snapshot, caret: int) -> None: ...

    def changed(self, change: Change, caret: int, *, asks: bool) -> None:
        self.offer = None
        self.texts.append(change.after.text)
        if caret == self._at and asks:
            asyncio.get_running_loop().call_later(self._after_s, self._show)

    def _show(self) -> None:
        self.offer = Offer(self._text, asyncio.get_running_loop().time())
        self.news.set()

    def taken(self) -> None:
        self.accepted += 1

    async def close(self) -> None: ...


def virtually(work: Callable[[VirtualLoop], Coroutine[Any, Any, Made]]) -> Made:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(work(loop))


async def sat(steps: Sequence[Step], assistant: Any) -> TypistTally:
    desk = RecordedTypist(assistant, rule=Rule.LINE, decide_s=0.2, rng=Random(0))
    await desk.run(steps)
    return desk.tally


def sit(steps: Sequence[Step], assistant: Any) -> TypistTally:
    return virtually(lambda _: sat(steps, assistant))


LINE = "total = first + second"


@pytest.mark.parametrize(("after_s", "keys", "accepts"), [(0.1, 6, 1), (0.35, len(LINE) + 1, 0)])
def test_what_comes_in_time_saves_keys_and_what_comes_late_does_not(after_s: float, keys: int, accepts: int) -> None:
    assistant = Knowing(LINE[4:], at=4, after_s=after_s)
    tally = sit(steps_of(recording(*typed(LINE + "\n", at=0))), assistant)
    assert tally.keys_without == len(LINE) + 1
    assert tally.keys_with == keys and tally.accepts == assistant.accepted == accepts
    assert assistant.texts[-1] == LINE + "\n"
    assert tally.shown == tally.shown_right == 1
    assert tally.shown_ms == [pytest.approx(after_s * 1000)]


def test_a_wrong_offer_is_left_alone() -> None:
    tally = sit(steps_of(recording(*typed(LINE, at=0))), Knowing("l = 0", at=4, after_s=0.1))
    assert (tally.accepts, tally.shown, tally.shown_right, tally.keys_with) == (0, 1, 0, len(LINE))


def test_vim_has_no_line_behind_the_last_line_end() -> None:
    snapshot = Document("file:///a.py", "one\r\ntwo\n", language="python", path="a.py", version=1).snapshot()
    assert buffer_of(snapshot, 7).lines == ("one", "two") and buffer_of(snapshot, 7).y == 2
    assert buffer_of(snapshot, 4).x == 3
    assert buffer_of(snapshot, 9).lines == ("one", "two", "") and buffer_of(snapshot, 9).y == 3


class Infill:
    """A server that knows one line, and counts as llama.cpp does."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/infill"
        self.bodies.append(body)
        typed_part = body["prompt"]
        known = LINE.startswith(typed_part) and typed_part != ""
        return {
            "content": LINE[len(typed_part) :] if known else "",
            "timings/prompt_n": 10,
            "timings/cache_n": 90,
            "timings/prompt_ms": 7.5,
            "timings/predicted_n": 4,
        }


def test_llama_vim_at_the_desk() -> None:
    server = Infill()
    kept: list[LlamaVimAssistant] = []

    async def work(loop: VirtualLoop) -> TypistTally:
        kept.append(LlamaVimAssistant(server, loop, rng=Random(0)))
        return await sat(steps_of(recording(*typed(LINE + "\n", at=0))), kept[0])

    tally = virtually(work)
    assert tally.accepts == 1 and tally.keys_with == 3  # one key, the accept, the line end
    samplers = ["top_k", "top_p", "infill", "temperature"]
    assert all(body["samplers"] == samplers for body in server.bodies if body["n_predict"])
    row = _row(tally, kept[0].rows, {})
    assert row["requests"] == len(server.bodies) and row["evaluated_tokens"] == 10 * len(server.bodies)
    assert row["ttft_warm_ms"]["p50"] == 7.5 and row["ttft_cold_ms"]["n"] == 0
    assert row["ksr"] == pytest.approx(1 - 3 / (len(LINE) + 1), abs=1e-4)


def test_a_client_that_asks_after_a_pause_shows_what_it_kept_at_once() -> None:
    kept: list[SingleAsks] = []

    class Whole(Infill):
        def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            typed_part = body["input_prefix"].split("\n")[-1]
            return super().post(path, body) | {"content": LINE[len(typed_part) :] + "\n\nnot shown"}

    server = Whole()

    async def work(loop: VirtualLoop) -> TypistTally:
        kept.append(SingleAsks(server, loop, CONTINUE))
        steps = steps_of(recording(*typed("tot", at=0), *typed("al = first", at=3, start_s=2.75, gap_s=0.1)))
        return await sat(steps, kept[0])

    tally = virtually(work)
    # A pause of half a second behind each of three keys: the first asks, the next two are known, and so is the rest.
    assert [body["input_prefix"] for body in server.bodies] == ["# a.py\nt"]
    assert server.bodies[0]["input_suffix"] == "\n" and server.bodies[0]["stop"]
    assert (tally.shown, tally.shown_right, tally.accepts) == (13, 0, 0)
    assert kept[0].rows[0].evaluated_tokens == 10


def test_a_peer_s_server_that_fails_ends_the_run() -> None:
    class Silent(Infill):
        def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            raise LlamaServerError("gave no answer")

    async def work(loop: VirtualLoop) -> TypistTally:
        return await sat(steps_of(recording(*typed("tot", at=0))), SingleAsks(Silent(), loop, CONTINUE))

    with pytest.raises(LlamaServerError):
        virtually(work)


def test_on_the_wall_s_clock_a_key_comes_at_its_own_time() -> None:
    """The same desk and the same client, on real seconds."""

    async def work(loop: WallLoop) -> tuple[TypistTally, float]:
        began = loop.time()
        assistant = LlamaVimAssistant(Infill(), loop, rng=Random(0))
        return await sat(
            steps_of(recording(*typed("tota", at=0, start_s=0.1, gap_s=0.02))), assistant
        ), loop.time() - began

    with asyncio.Runner(loop_factory=WallLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, WallLoop)
        tally, took_s = runner.run(work(loop))
    assert tally.keys_with == 4 and took_s >= 0.16


def test_a_session_s_request_leaves_a_row_when_it_ends() -> None:
    items = [Delta(id="r", text="x", tokens=2), Done(id="r", finish=Finish.LENGTH, usage=Usage(prompt_tokens=9, cached_tokens=5, generated_tokens=8))]  # fmt: skip

    class Stream:
        id = "r"

        async def __aiter__(self):
            for item in items:
                yield item

    call: Any = SimpleNamespace(class_=RequestClass.BLOCK)

    def complete(_call: object) -> Stream:
        return Stream()

    session: Any = SimpleNamespace(complete=complete)

    async def work(loop: VirtualLoop) -> list[Any]:
        counted = CountedSession(session, loop.time)
        assert [item async for item in counted.complete(call)] == items
        return counted.rows

    [row] = virtually(work)
    assert (row.kind, row.prompt_tokens, row.evaluated_tokens, row.generated_tokens) == ("block", 9, 4, 8)
    assert row.first_ms is not None and row.first_ms <= row.answer_ms


def test_tokens_that_come_after_a_cancel_are_not_counted_as_generated() -> None:
    deltas = [(float(ms), Delta(id="r", text="x", tokens=2)) for ms in (1, 2, 100, 200)]
    done = Done(id="r", finish=Finish.LENGTH, usage=Usage(prompt_tokens=9, generated_tokens=8))

    def ask(_call: object) -> concurrent.futures.Future[Any]:
        made: concurrent.futures.Future[Any] = concurrent.futures.Future()
        made.set_result((deltas, 200.0, done))
        return made

    profile: Any = None
    call: Any = SimpleNamespace(id="r", class_=RequestClass.INTERACTIVE)

    async def listened(loop: VirtualLoop) -> list[int]:
        gateway = CountingGateway(ask, profile, loop)
        for until in (99, 2):
            stream = gateway.complete(call)
            seen = 0
            async for _ in stream:
                seen += 1
                if seen == until:
                    stream.cancel()
        return [row.generated_tokens for row in gateway.rows]

    assert virtually(listened) == [8, 4]


def test_what_is_drawn_again_is_counted_and_so_is_what_is_taken_back() -> None:
    texts = iter(["one", "one, two", "three"])

    async def suggest(*_: object, **__: object) -> Suggestion:
        return Suggestion(id="s", text=next(texts), source=Origin.NETWORK)

    grew: Subscribers[str, Suggestion] = Subscribers()

    def changed(_: Change) -> None: ...

    flow: Any = SimpleNamespace(grew=grew, suggest=suggest, document_changed=changed)

    async def work(_: VirtualLoop) -> ForetypeAssistant:
        assistant = ForetypeAssistant(flow, lambda: 0.0)
        document = Document("file:///a.py", "x = ", language="python", path="a.py", version=1)
        assistant.changed(document.change(0.0), 4, asks=True)
        for _again in range(2):
            await asyncio.sleep(0.01)
            grew.tell("file:///a.py", Suggestion(id="s", text="more", source=Origin.NETWORK))
        await asyncio.sleep(0.01)
        return assistant

    assistant = virtually(work)
    assert list(assistant.redraws.values()) == [2] and assistant.taken_back == 1


def test_bad_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    path = tmp_path / "r.jsonl"
    path.write_text("{}")
    done = runner.invoke(bench, ["peer", str(path), "--systems", "copilot"])
    assert done.exit_code == 2 and "copilot" in done.output
    monkeypatch.setenv("FORETYPE_LLAMA_SERVER", str(tmp_path / "none"))
    done = runner.invoke(bench, ["peer", str(path)])
    assert done.exit_code == 2 and "make peer-env" in done.output


def test_the_page_is_made_of_result_files(tmp_path: Path) -> None:
    row = _row(TypistTally(keys_without=10, keys_with=9), [], {"processor_s_per_1000_keys": 12.5})
    result = {
        "recording": "r", "from_minute": 0.0, "minutes": 1.0, "keys": 10, "live": False, "model": "m.gguf", "model_sha256": "0" * 64, "threads": 1,
        "accept_rule": "A-line", "decide_ms": 200.0, "debounce_ms": 75.0, "peer": "llama 1",
        "peer_arguments": ["-b", "1"], "systems": {"llama_vim": row, "foretype": row},
    }  # fmt: skip
    path = tmp_path / "one.json"
    path.write_text(json.dumps(result))
    page = tmp_path / "peers.md"
    write_page(page, [path])
    text = page.read_text()
    assert (
        "| keystrokes saved | 10.00% | 10.00% |" in text
        and "client and server | 12.5 | 12.5 |" in text
        and "greedy sampling" in text
        and "one.json" in text
    )
    assert len(table_of(result)) >= 12 and "on a virtual clock" in text
    path.write_text("{}")
    with pytest.raises(PeerResultError, match=r"one\.json.*systems"):
        write_page(page, [path])
    path.write_text('{"systems": {"a": {}}}')
    with pytest.raises(PeerResultError, match=r"one\.json"):
        write_page(page, [path])


def test_a_layout_that_the_weights_lack_ends_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(options: PeerOptions, **_: object) -> None:
        raise ProfileError(f"layout: {options.layout!r} is not one of spm")

    monkeypatch.setattr("foretype_lab.peer.command.run_peer", lacking)
    done = CliRunner().invoke(bench, ["peer", str(tmp_path), "--layout", "nonsense"])
    assert done.exit_code == 2 and "'nonsense' is not one of spm" in done.output and "Traceback" not in done.output
