import asyncio

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import URI, Desk, LinePlanner, finish_by, profile
from foretype_client.adaptive.candidates import CopyLine
from foretype_client.feedback.feedback import Ended
from foretype_client.flow.suggestion import FlowState, Origin, SelectedCompletion, Suggestion
from foretype_client.policy.machine import Spared
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Policy, PolicyOptions, Trigger
from foretype_context.finish.post_processing import Finished
from foretype_context.prompt.profile import MinMeanLogprob
from foretype_context.prompt.segments import Segment
from foretype_context.syntax.blocks import SuggestionKind
from foretype_context.syntax.document import Document, Edit
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import Complete, ErrorCode, Finish, RequestClass

from client import virtual

pytestmark = pytest.mark.virtual_time

ANSWER = Script([(0.02, "foo"), (0.01, "(a"), (0.01, ")")])


def text_of(suggestion: Suggestion | None) -> str | None:
    return None if suggestion is None else suggestion.text


async def test_a_request_waits_for_the_debounce_and_says_what_it_cost() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        suggestion = await desk.typed("x = ")
        assert (suggestion.text, suggestion.source) == ("foo(a)", Origin.NETWORK)
        assert suggestion.finish is Finish.END_OF_MIDDLE
        assert suggestion.usage is not None and suggestion.usage.cached_tokens == 80
        assert suggestion.timings_ms["debounce"] == pytest.approx(75)
        assert suggestion.timings_ms["ttft"] == pytest.approx(20)
        assert suggestion.timings_ms["shown"] == pytest.approx(115)
        assert suggestion.logprob == pytest.approx(-0.1)
        await asyncio.sleep(0)
        status = desk.flow.status()
        assert (status.requests, status.counts, status.running) == (1, {"network": 1}, 0)
        assert status.cached_share == pytest.approx(0.8)
        assert (status.last_ttft_ms, status.last_shown_ms) == (pytest.approx(20), pytest.approx(115))
        assert status.state is FlowState.READY


async def test_the_call_carries_the_plan() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        await desk.typed("x = ")
        (call,) = desk.gateway.calls
        assert (call.document, call.version, call.language) == (URI, 1, "plaintext")
        assert [segment.text for segment in call.segments] == ["x = "]
        assert (call.prompt_tokens, call.max_tokens, call.stop.max_lines) == (3, 48, 1)
        assert (call.class_, call.supersedes) == (RequestClass.INTERACTIVE, None)


async def test_the_start_of_a_line_and_an_invocation_do_not_wait() -> None:
    async with Desk(ScriptedGateway(ANSWER), "y\n|") as desk:
        suggestion = await desk.typed("    ")
        assert suggestion is not None and suggestion.timings_ms["debounce"] == 0
        suggestion = await desk.typed("zz", trigger=Trigger.INVOKED)
        assert suggestion is not None and suggestion.timings_ms["debounce"] == 0


# Mistakes seen in peers, each with the name it has there


async def test_mistake_superseded_request_never_answered() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        first = desk.typing("x")
        await asyncio.sleep(0.01)
        desk.move("x")
        second = desk.asking()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert first.done() and first.result() is None
        assert text_of(await second) == "foo(a)"
        assert desk.flow.status().counts == {"superseded": 1, "network": 1}


async def test_mistake_throttle_drops_the_trailing_request() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        asked = []
        for key in "x = g":
            desk.type(key)
            asked.append(desk.asking())
            await asyncio.sleep(0.03)
        answers = await asyncio.gather(*asked)
        assert [text_of(answer) for answer in answers] == [None, None, None, None, "foo(a)"]
        assert [call.segments[0].text for call in desk.gateway.calls] == ["x = g"]


async def test_mistake_cache_hit_pays_the_debounce() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        await desk.typed("x = ")
        hit = await desk.typed("f")
        assert hit is not None and hit.text == "oo(a)"
        assert hit.source is Origin.CACHE
        assert hit.timings_ms == {"shown": 0}


async def test_typing_through_a_whole_suggestion_asks_nothing() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        first = await desk.typed("x = ")
        assert first is not None
        for number, key in enumerate("foo(a", start=1):
            along = await desk.typed(key)
            assert (along.id, along.text) == (first.id, "foo(a)"[number:])
        assert len(desk.gateway.calls) == 1
        assert desk.flow.status().cache_hits == 5


async def test_mistake_any_edit_elsewhere_empties_the_cache() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        await desk.typed("x = ")
        other = Document("file:///b.py", "import x\n", language="plaintext", version=1)
        desk.flow.document_opened(other.snapshot())
        other.apply([Edit(7, 8, "y")], 2)
        desk.flow.document_changed(other.change(desk.flow.clock()))
        assert text_of(await desk.typed("fo")) == "o(a)"
        assert len(desk.gateway.calls) == 1


async def test_mistake_cache_keyed_without_suffix() -> None:
    async with Desk(ScriptedGateway(ANSWER), "x = |\ny = 1\n") as desk:
        await desk.ask()
        cursor = desk.cursor
        desk.edit(len(desk.document.text) - 2, len(desk.document.text) - 1, "2")
        desk.cursor = cursor
        await desk.ask()
        assert len(desk.gateway.calls) == 2


async def test_mistake_white_space_removed_from_the_key() -> None:
    async with Desk(ScriptedGateway(ANSWER), "if x:\n|") as desk:
        await desk.typed("    ")
        await desk.typed("    ")
        assert [call.segments[0].text for call in desk.gateway.calls] == ["    ", "        "]


@pytest.mark.parametrize("key_s", [0.05, 0.1, 0.3])
def test_mistake_slower_server_more_requests(key_s: float) -> None:
    def requests(ttft_s: float) -> int:
        async def scenario() -> int:
            async with Desk(ScriptedGateway(Script([(ttft_s, "nothing like it")]))) as desk:
                for key in "value = compute(one, two)":
                    asked = desk.typing(key)
                    await asyncio.sleep(key_s)
                    if asked.done():
                        asked.result()
                await asyncio.sleep(5)
                return len(desk.gateway.calls)

        return virtual.run(scenario)

    by_latency = [requests(ttft_s) for ttft_s in (0.01, 0.1, 0.5, 2.0)]
    assert by_latency == sorted(by_latency, reverse=True)


async def test_mistake_accept_right_after_a_key_inserts_stale_text() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        asked = desk.typing("x = ")
        await asyncio.sleep(0.08)
        desk.type("g")
        assert await asked is None


async def test_mistake_partial_accept_hides_the_rest() -> None:
    async with Desk(ScriptedGateway(Script([(0.01, "alpha beta gamma")]))) as desk:
        first = await desk.typed("x = ")
        assert first is not None
        for word, rest in (("alpha ", "beta gamma"), ("beta ", "gamma")):
            answer = await desk.typed(word)
            assert answer is not None and (answer.id, answer.text) == (first.id, rest)
        await asyncio.sleep(1)
        desk.type("gamma")
        kinds = [type(event).__name__ for event in desk.events]
        assert kinds == ["PartiallyAccepted", "PartiallyAccepted", "Displayed", "Accepted"]
        assert len(desk.gateway.calls) == 1


async def test_mistake_lock_over_a_network_call_blocks_changes() -> None:
    async with Desk(ScriptedGateway(Script([(5.0, "late")]))) as desk:
        asked = desk.typing("x = ")
        await asyncio.sleep(1)
        before_s = asyncio.get_running_loop().time()
        desk.type("y")
        desk.flow.status()
        assert asyncio.get_running_loop().time() == before_s
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asked.done()


# Running requests


async def test_a_running_request_that_still_fits_is_shared() -> None:
    async with Desk(ScriptedGateway(Script([(0.1, "foo"), (0.05, "(a)")]))) as desk:
        asked = desk.typing("x = ")
        await asyncio.sleep(0.08)
        again = desk.typing("f")
        assert await asked is None
        answer = await again
        assert (answer.text, answer.source) == ("oo(a)", Origin.IN_FLIGHT)
        assert len(desk.gateway.calls) == 1
        assert desk.flow.status().in_flight_reuses == 1


async def test_a_running_request_is_waited_for_two_hundred_milliseconds_then_raced() -> None:
    def answer(call: Complete[Segment]) -> Script:
        return Script([(1.0, "foo(a)")] if call.segments[0].text == "x = " else [(5.0, "oo(b)")])

    async with Desk(ScriptedGateway(answer)) as desk:
        loop = asyncio.get_running_loop()
        desk.typing("x = ")
        await asyncio.sleep(0.08)
        desk.type("f")
        asked_s = loop.time()
        asked = desk.asking()
        await asyncio.sleep(0.19)
        assert len(desk.gateway.calls) == 1
        await asyncio.sleep(0.02)
        assert len(desk.gateway.calls) == 2
        assert desk.gateway.calls[1].supersedes is None
        answered = await asked
        assert text_of(answered) == "oo(a)"
        assert loop.time() - asked_s == pytest.approx(0.995)
        assert desk.gateway.most_running == 2


async def test_at_most_two_requests_run_per_document() -> None:
    async with Desk(ScriptedGateway(Script([(3.0, "abcdef")]))) as desk:
        desk.typing("x = ")
        for key in "abcd":
            await asyncio.sleep(0.4)
            desk.typing(key)
        await asyncio.sleep(10)
        assert desk.gateway.most_running == 2
        assert len(desk.gateway.calls) == 2


async def test_what_diverged_is_named_as_superseded_and_cancelled_once() -> None:
    async with Desk(ScriptedGateway(Script([(0.05, "foo"), (1.0, "(a)")])), "y\n|") as desk:
        desk.typing("    ")
        await asyncio.sleep(0.1)
        desk.edit(desk.cursor, desk.cursor, "g\n")
        desk.asking()
        await asyncio.sleep(0.1)
        first, second = desk.gateway.calls
        assert second.supersedes == first.id
        assert desk.gateway.given_up(first) == 1
        desk.typing("h")
        await asyncio.sleep(2)
        assert desk.gateway.given_up(first) == 1
        assert desk.flow.status().cancelled == 2


async def test_what_diverges_while_the_debounce_runs_is_cancelled_at_once_and_once() -> None:
    async with Desk(ScriptedGateway(Script([(0.05, "foo"), (1.0, "(a)")]))) as desk:
        desk.typing("x = ")
        await asyncio.sleep(0.15)
        desk.typing("g")
        await asyncio.sleep(0.001)
        assert desk.gateway.given_up(desk.gateway.calls[0]) == 1
        await asyncio.sleep(2)
        assert desk.gateway.given_up(desk.gateway.calls[0]) == 1
        assert desk.gateway.calls[1].supersedes is None


async def test_a_request_nobody_waits_for_any_more_still_feeds_the_cache() -> None:
    async with Desk(ScriptedGateway(Script([(0.3, "foo(a)")]))) as desk:
        asked = desk.typing("x = ")
        await asyncio.sleep(0.1)
        asked.cancel()
        await asyncio.sleep(0.04)  # as editors do that cancel and ask at each key
        again = desk.asking()
        await asyncio.sleep(0.1)
        desk.type("f")
        assert await again is None
        await asyncio.sleep(0.5)
        answer = await desk.ask()
        assert answer is not None and (answer.text, answer.source) == ("oo(a)", Origin.CACHE)
        assert len(desk.gateway.calls) == 1 and desk.gateway.given_up(desk.gateway.calls[0]) == 0
        assert desk.flow.status().counts == {"cancelled": 1, "superseded": 1, "cache": 1}


async def test_a_question_that_was_cancelled_stops_the_model_unless_another_follows_at_once() -> None:
    async with Desk(ScriptedGateway(Script([(0.2, "foo("), (5.0, "a)")]))) as desk:
        asked = desk.typing("x = ")
        await asyncio.sleep(0.3)
        asked.cancel()
        await asyncio.sleep(0.049)
        assert desk.gateway.given_up(desk.gateway.calls[0]) == 0
        await asyncio.sleep(0.002)
        assert desk.gateway.given_up(desk.gateway.calls[0]) == 1
        assert (await desk.ask()) is not None
        assert len(desk.gateway.calls) == 2


async def test_a_cancel_behind_a_newer_question_stops_nothing() -> None:
    async with Desk(ScriptedGateway(Script([(0.3, "foo(a)")]))) as desk:
        desk.type("x = ")
        older, newer = desk.asking(), desk.asking()
        await asyncio.sleep(0.1)
        older.cancel()
        assert text_of(await newer) == "foo(a)" and len(desk.gateway.calls) == 1


async def test_the_end_of_what_a_running_request_says_is_asked_about_anew() -> None:
    def answer(call: Complete[Segment]) -> Script:
        typed = call.segments[0].text
        return Script([(0.1, "foo")], end_after_s=0.1) if typed == "x = " else Script([(0.01, "(a)")])

    async with Desk(ScriptedGateway(answer)) as desk:
        asked = desk.typing("x = ")
        await asyncio.sleep(0.08)
        again = desk.typing("foo")
        assert await asked is None
        assert text_of(await again) == "(a)"
        assert desk.flow.status().cancelled == 0


async def test_of_questions_that_come_together_only_the_last_is_assembled() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        desk.type("x = ")
        asked = [desk.asking() for _ in range(3)]
        assert [text_of(answer) for answer in await asyncio.gather(*asked)] == [None, None, "foo(a)"]
        assert len(desk.planner.states) == 1


async def test_what_is_cancelled_already_is_not_cancelled_again_at_closing() -> None:
    async with Desk(ScriptedGateway(Script([(0.05, "foo"), (1.0, "(a)")]))) as desk:
        desk.typing("x = ")
        await asyncio.sleep(0.15)
        desk.type("g")
        await asyncio.wait([desk.asking()], timeout=0)
        desk.flow.document_closed(desk.document.snapshot())
        assert desk.gateway.given_up(desk.gateway.calls[0]) == 1


async def test_closing_a_document_cancels_what_runs_for_it() -> None:
    async with Desk(ScriptedGateway(Script([(1.0, "foo")]))) as desk:
        asked = desk.typing("x = ")
        await asyncio.sleep(0.1)
        desk.flow.document_closed(desk.document.snapshot())
        assert await asked is None
        assert desk.gateway.given_up(desk.gateway.calls[0]) == 1


async def test_close_answers_everything_and_leaves_no_task() -> None:
    desk = Desk(ScriptedGateway(Script([(1.0, "foo")])))
    asked = desk.typing("x = ")
    await asyncio.sleep(0.1)
    await desk.flow.close()
    assert await asked is None
    assert all(stream.ended for stream in desk.gateway.streams)
    assert await desk.ask() is None
    assert desk.flow.status().state is FlowState.CLOSED


# When to answer


def block(*deltas: tuple[float, str], **options: object) -> ScriptedGateway:
    return ScriptedGateway(Script(deltas, **options))  # type: ignore[arg-type]


BLOCK = LinePlanner(SuggestionKind.BLOCK)


@pytest.mark.parametrize(
    ("language", "text", "says", "changes", "shown"),
    [
        (
            "html",
            "<|\n",
            "li>one</li>",
            ["l", "i", ">", "|</li>", "o", "ne"],
            ["i>one</li>", ">one</li>", "one</li>", "one", "ne", None],
        ),
        ("html", "<|\n", "li>one</li>", ["li", ">|</li>", "one"], [">one</li>", "one", None]),
        ("html", "<ul>|\n", "\n  <li>a</li>\n</ul>", ["\n  |\n</ul>", "<li>|</li>"], ["<li>a</li>", "a"]),
        ("ruby", "def a|\n", "(b)\n  b\nend", ["(b)", "\n  |\nend"], ["\n  b\nend", "b"]),
        (
            "ruby",
            "class X\n  def a|\nend\n",
            "(b)\n    b\n  end",
            ["(b)", "\n    ", "|\n  end"],
            ["\n    b\n  end", "b\n  end", "b"],
        ),
        ("lua", "function a()|\n", "\n  b()\nend", ["\n  |\nend"], ["b()"]),
        ("c", "int f()|\n", " {\n  return 1;\n}", [" {|}", "\n  |\n"], ["\n  return 1;", "return 1;"]),
    ],
)
async def test_what_an_editor_closes_by_itself_is_not_closed_again(
    language: str, text: str, says: str, changes: list[str], shown: list[str | None]
) -> None:
    planner = LinePlanner(SuggestionKind.BLOCK if "\n" in says else SuggestionKind.LINE)
    async with Desk(block((0.01, says)), text, planner=planner, language=language) as desk:
        assert text_of(await desk.ask()) == says
        for change, expected in zip(changes, shown, strict=True):
            typed, _, added = change.partition("|")
            desk.type(typed + added)
            desk.cursor -= len(added)
            assert text_of(await desk.ask()) == expected, desk.text
        assert len(desk.gateway.calls) == 1


async def test_a_block_is_answered_at_three_lines_and_then_grows() -> None:
    lines = [(0.01, f"line{n}()\n    ") for n in range(1, 6)]
    async with Desk(block(*lines, (0.01, "end()")), "def f():\n|", planner=BLOCK) as desk:
        answer = await desk.typed("    ")
        assert text_of(answer) == "line1()\n    line2()\n    line3()"
        assert answer is not None and answer.timings_ms["shown"] == pytest.approx(30)
        await asyncio.sleep(1)
        assert [grown.text.count("\n") for _, grown in desk.grown] == [5], "three lines in 30 ms would flicker"
        assert {grown.id for _, grown in desk.grown} == {answer.id}
        again = await desk.ask()
        assert again is not None and again.id == answer.id
        assert again.text == desk.grown[-1][1].text
        assert len(desk.gateway.calls) == 1


async def test_a_slow_block_grows_before_its_end_and_not_at_each_of_its_lines() -> None:
    lines = [(0.1, f"line{n}()\n    ") for n in range(1, 10)]
    async with Desk(block(*lines, (0.1, "end()")), "def f():\n|", planner=BLOCK) as desk:
        answer = await desk.typed("    ")
        assert answer is not None and answer.timings_ms["shown"] == pytest.approx(300)
        asked_s = asyncio.get_running_loop().time()
        await asyncio.sleep(2)
        told = [(round(at - asked_s, 2), grown.text.count("\n")) for at, grown in desk.grown]
        assert told == [(0.3, 5), (0.6, 8), (0.7, 9)], "a quarter of a second apart; its end is never waited for"


async def test_the_rest_of_a_stream_waits_behind_accept_enter_and_indent() -> None:
    lines = [(0.01, f"line{n}()\n    ") for n in range(1, 6)]
    async with Desk(block(*lines, (0.01, "end()")), "def f():\n|", planner=BLOCK) as desk:
        answer = await desk.typed("    ")
        desk.accept(answer)
        await asyncio.sleep(1)
        more = await desk.typed("\n    ")
        assert text_of(more) == "line4()\n    line5()\n    end()"
        assert len(desk.gateway.calls) == 1


async def test_a_slow_stream_is_answered_with_what_is_whole() -> None:
    slow = [(0.1, "line1()\n    "), (0.2, "line2()\n    li"), (0.2, "ne3()\n    "), (0.2, "line4()")]
    async with Desk(block(*slow), "def f():\n|", planner=BLOCK) as desk:
        answer = await desk.typed("    ")
        assert text_of(answer) == "line1()\n    line2()"
        assert answer is not None and answer.timings_ms["shown"] == pytest.approx(350)
        assert answer.finish is None


async def test_what_is_visible_never_changes_while_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    def finisher(text: str, *_: object, **__: object) -> Finished:
        return Finished(("other\n" if "line4" in text else "") + text.rstrip())

    lines = [(0.01, f"line{n}()\n    ") for n in range(1, 6)]
    finish_by(monkeypatch, finisher)
    async with Desk(block(*lines), "def f():\n|", planner=BLOCK) as desk:
        first = await desk.typed("    ")
        await asyncio.sleep(1)
        assert desk.grown == []
        again = await desk.ask()
        assert (again.id, again.text) == (first.id, first.text)


async def test_a_suggestion_that_got_no_longer_has_not_grown() -> None:
    slow = Script([(0.1, "alpha"), (0.2, " +"), (0.2, " beta"), (0.2, "\n"), (0.2, "")], end_after_s=0.2)
    async with Desk(ScriptedGateway(slow)) as desk:
        assert text_of(await desk.typed("x = ")) == "alpha +"
        await asyncio.sleep(2)
        assert [grown.text for _, grown in desk.grown] == ["alpha + beta"]


async def test_nothing_grows_while_the_user_types_along() -> None:
    slow = Script([(0.1, "alpha"), (0.1, " + be"), (0.1, "ta * ga"), (0.5, "mma")])
    async with Desk(ScriptedGateway(slow)) as desk:
        await desk.typed("x = ")
        desk.type("a")
        await asyncio.sleep(2)
        assert desk.grown == []
        assert text_of(await desk.ask()) == "lpha + beta * gamma"


async def test_a_suggestion_that_is_whole_is_finished_once_and_not_with_every_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finished: list[str] = []

    def finisher(text: str, *_: object, **__: object) -> Finished:
        finished.append(text)
        return Finished(text)

    finish_by(monkeypatch, finisher)
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        answer = await desk.typed("x = ")
        finished.clear()
        for key in answer.text[:6]:
            assert text_of(await desk.typed(key))
        assert len(finished) <= 2  # while its request ran, and when that had ended


async def test_what_post_processing_leaves_nothing_of_is_counted_as_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    finish_by(monkeypatch, lambda *_, **__: Finished("", reason="x"))
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        assert await desk.typed("x = ") is None
        assert await desk.ask() is None
        assert desk.flow.status().counts == {"filtered": 2}
        assert len(desk.gateway.calls) == 1


async def test_nothing_grows_after_the_user_typed_on() -> None:
    slow = Script([(0.1, "alpha"), (0.1, " + be"), (0.1, "ta * ga"), (0.5, "mma")])
    async with Desk(ScriptedGateway(slow)) as desk:
        await desk.typed("x = ")
        desk.type("b")
        await asyncio.sleep(2)
        assert desk.grown == []


async def test_a_healed_token_is_stripped_from_the_answer() -> None:
    planner = LinePlanner(healed="ret")
    async with Desk(ScriptedGateway(Script([(0.01, "re"), (0.01, "turn x")])), planner=planner) as desk:
        assert text_of(await desk.typed("ret")) == "urn x"


async def test_an_unlikely_answer_is_not_shown_unless_invoked() -> None:
    gateway = ScriptedGateway(ANSWER, profile(min_mean_logprob=MinMeanLogprob(line=-0.05)))
    async with Desk(gateway) as desk:
        assert await desk.typed("x = ") is None
        assert desk.flow.status().counts == {"low_confidence": 1}
        assert await desk.ask() is None
        assert len(gateway.calls) == 1
        assert text_of(await desk.ask(trigger=Trigger.INVOKED)) == "foo(a)"


# The selected item of a popup


async def test_a_suggestion_starts_with_the_selected_item() -> None:
    async with Desk(ScriptedGateway(Script([(0.01, "(path)")]))) as desk:
        desk.type("os.op")
        selected = SelectedCompletion(3, 5, "openfile")
        answer = await desk.ask(selected=selected)
        assert text_of(answer) == "enfile(path)"
        assert desk.gateway.calls[0].segments[-1].text == "os.openfile"
        assert desk.gateway.calls[0].prompt_tokens is None


async def test_each_item_of_the_popup_gets_a_suggestion_of_its_own() -> None:
    def answer(call: Complete[Segment]) -> Script:
        typed = call.segments[-1].text
        return Script([(0.01, {"os.op": "en()", "os.openat": "(1)", "os.operation": "(2)"}[typed])])

    async with Desk(ScriptedGateway(answer)) as desk:
        desk.type("os.op")
        for _ in range(2):
            assert text_of(await desk.ask()) == "en()"
            assert text_of(await desk.ask(selected=SelectedCompletion(3, 5, "openat"))) == "enat(1)"
            assert text_of(await desk.ask(selected=SelectedCompletion(3, 5, "operation"))) == "eration(2)"
            assert text_of(await desk.ask(selected=SelectedCompletion(3, 5, "open"))) == "en()"
        assert await desk.ask(selected=SelectedCompletion(3, 5, "other")) is None
        assert len(desk.gateway.calls) == 3


# Local candidates and failures


SEEN = "value = compute(one)\nother = 1\n|"


async def test_with_no_gateway_the_local_candidate_comes_at_once() -> None:
    gateway = ScriptedGateway(ANSWER, connected=False)
    async with Desk(gateway, SEEN, local=CopyLine()) as desk:
        answer = await desk.typed("value = c")
        assert (answer.text, answer.source, answer.timings_ms["shown"]) == ("ompute(one)", Origin.LOCAL, 0)
        assert gateway.calls == []
        assert desk.flow.status().state is FlowState.OFFLINE


async def test_before_the_tokenizer_is_there_the_local_candidate_stands_in() -> None:
    async with Desk(ScriptedGateway(ANSWER), SEEN, local=CopyLine(), planner_for=lambda _: None) as desk:
        answer = await desk.typed("value = c")
        assert answer is not None and answer.source is Origin.LOCAL
        assert await desk.typed("zz") is None
        assert desk.flow.status().counts == {"local": 1, "not_ready": 1}


async def test_a_gateway_without_a_first_token_loses_patience_to_the_local_candidate() -> None:
    async with Desk(ScriptedGateway(Script([(2.0, "ompute(two)")])), SEEN, local=CopyLine()) as desk:
        answer = await desk.typed("value = c")
        assert answer.source is Origin.LOCAL
        assert answer.timings_ms["shown"] == pytest.approx(75 + 150)
        await asyncio.sleep(3)
        better = await desk.ask()
        assert better is not None and (better.text, better.source) == ("ompute(two)", Origin.CACHE)


async def test_a_local_candidate_that_is_visible_and_right_stays_and_asks_nothing() -> None:
    gateway = ScriptedGateway(ANSWER, connected=False)
    async with Desk(gateway, SEEN, local=CopyLine()) as desk:
        first = await desk.typed("value = c")
        gateway.connected = True
        second = await desk.typed("o")
        assert (second.id, second.text, second.source) == (first.id, "mpute(one)", Origin.LOCAL)
        assert gateway.calls == []


async def test_a_local_candidate_never_replaces_what_is_visible() -> None:
    async with Desk(ScriptedGateway(Script([(0.01, "ompute(two)")])), SEEN, local=CopyLine()) as desk:
        assert text_of(await desk.typed("value = c")) == "ompute(two)"
        desk.gateway.connected = False
        answer = await desk.typed("o")
        assert answer is not None and (answer.text, answer.source) == ("mpute(two)", Origin.CACHE)


async def test_where_the_model_has_nothing_the_local_candidate_is_shown() -> None:
    async with Desk(ScriptedGateway(Script([])), SEEN, local=CopyLine()) as desk:
        answer = await desk.typed("value = c")
        assert answer is not None and answer.source is Origin.LOCAL


@pytest.mark.parametrize("code", [ErrorCode.OVERLOADED, ErrorCode.EXPIRED, ErrorCode.ENGINE_UNAVAILABLE])
async def test_a_refusal_is_silent_and_named_in_the_status(code: ErrorCode) -> None:
    async with Desk(ScriptedGateway(Script(error=RequestRefusedError(code, "busy")))) as desk:
        assert await desk.typed("x = ") is None
        status = desk.flow.status()
        assert status.counts == {code: 1}
        assert status.detail == f"{code}: busy"


async def test_a_rate_limit_pauses_requests_for_as_long_as_it_says() -> None:
    refusal = Script(error=RequestRefusedError(ErrorCode.RATE_LIMITED, retry_after_ms=2000))
    async with Desk(ScriptedGateway(refusal)) as desk:
        assert await desk.typed("x = ") is None
        assert desk.flow.status().state is FlowState.PAUSED
        assert await desk.typed("y") is None
        assert len(desk.gateway.calls) == 1
        await asyncio.sleep(2)
        await desk.typed("z")
        assert len(desk.gateway.calls) == 2


async def test_a_machine_that_is_spared_shows_what_costs_nothing_and_says_why() -> None:
    spared: list[Spared] = [Spared.BUSY]
    policy = Policy(spared=lambda _: next(iter(spared), None))
    async with Desk(ScriptedGateway(ANSWER), SEEN, local=CopyLine(), policy=policy) as desk:
        answer = await desk.typed("value = c")
        assert answer is not None and answer.source is Origin.LOCAL
        status = desk.flow.status()
        assert (status.state, status.detail) == (FlowState.SPARED, "other programs take all processors")
        assert await desk.typed("zz") is None and desk.gateway.calls == []
        assert desk.flow.status().counts == {"local": 1, "spared": 1}
        spared.clear()
        await desk.typed("y")
        assert len(desk.gateway.calls) == 1 and desk.flow.status().state is FlowState.READY


async def test_a_gateway_that_vanishes_leaves_the_local_candidate() -> None:
    gone = Script([(0.01, "omp")], error=GatewayGoneError("closed"))
    async with Desk(ScriptedGateway(gone), SEEN, local=CopyLine()) as desk:
        answer = await desk.typed("value = c")
        assert answer is not None and (answer.text, answer.source) == ("ompute(one)", Origin.LOCAL)
        assert await desk.typed("zz") is None
        assert desk.flow.status().counts == {"local": 1, "gateway_gone": 1}
        assert desk.flow.status().detail == "closed"


# Policy, as the flow applies it


async def test_the_middle_of_a_line_and_excluded_files_are_not_asked_about() -> None:
    async with Desk(ScriptedGateway(ANSWER), "x = | + 1") as desk:
        assert await desk.ask() is None
        secret = Document("file:///.env", "KEY=", path=".env").snapshot()
        assert await desk.flow.suggest(secret, 4) is None
        binary = Document("file:///b", "\0\x01" * 500, path="b").snapshot()
        assert await desk.flow.suggest(binary, 4, trigger=Trigger.INVOKED) is None
        lock = Document("file:///poetry.lock", "name = ", path="poetry.lock").snapshot()
        assert text_of(await desk.flow.suggest(lock, 7)) == "foo(a)"
        assert desk.flow.status().counts == {"mid_line": 1, "excluded": 2, "network": 1}


async def test_a_position_outside_the_document_is_clamped() -> None:
    async with Desk(ScriptedGateway(ANSWER), "x = |") as desk:
        assert text_of(await desk.flow.suggest(desk.document.snapshot(), 10_000)) == "foo(a)"
        assert await desk.flow.suggest(desk.document.snapshot(), -3) is None


async def test_what_was_shown_and_rejected_is_not_offered_there_again() -> None:
    policy = Policy(PolicyOptions(switches=Switches(skip_deletions=False, speculative=False)))
    async with Desk(ScriptedGateway(ANSWER), policy=policy) as desk:
        assert text_of(await desk.typed("x = ")) == "foo(a)"
        await asyncio.sleep(1)
        desk.type("b")
        await asyncio.sleep(6)  # a typo is taken back sooner
        desk.backspace()
        assert await desk.ask() is None
        assert desk.flow.status().counts["refused_before"] == 1
        assert len(desk.gateway.calls) == 1
        assert text_of(await desk.ask(trigger=Trigger.INVOKED)) == "foo(a)"


async def test_rejections_lengthen_the_debounce() -> None:
    async with Desk(ScriptedGateway(ANSWER), policy=Policy(PolicyOptions(debounce_ms=100))) as desk:
        await desk.typed("x = ")
        await asyncio.sleep(1)
        desk.type("b")
        await asyncio.sleep(6)
        answer = await desk.typed("c")
        assert answer is not None and answer.timings_ms["debounce"] == pytest.approx(110, rel=0.01)


async def test_refusing_local_candidates_does_not_lengthen_the_debounce() -> None:
    gateway = ScriptedGateway(ANSWER, connected=False)
    async with Desk(gateway, SEEN, local=CopyLine()) as desk:
        await desk.typed("value = c")
        await asyncio.sleep(1)
        gateway.connected = True
        desk.type("lear")
        await asyncio.sleep(6)
        desk.type("s")
        assert any(isinstance(event, Ended) and event.rejected for event in desk.events)
        answer = await desk.ask()
        assert answer is not None and answer.timings_ms["debounce"] == pytest.approx(75)


async def test_the_plan_state_is_committed_on_send_alone() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        first = desk.typing("x")
        await asyncio.sleep(0.01)
        await desk.typed("y")
        await first
        assert [len(state.files) for state in desk.planner.states] == [0, 0]
        await desk.typed("zz")
        assert len(desk.planner.states[-1].files) == 1
        abandoned = desk.typing("q")
        await asyncio.sleep(0.01)
        await desk.typed("r")
        await abandoned
        assert desk.planner.states[-2] is desk.planner.states[-1], "an abandoned plan was taken for a sent one"


async def test_a_plan_made_before_another_document_was_sent_is_made_again() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        await desk.typed("x")
        first = desk.typing(" = b")
        await asyncio.sleep(0.01)
        other = Document("file:///b.py", "y = ", path="b.py").snapshot()
        await desk.flow.suggest(other, 4, trigger=Trigger.INVOKED)
        await first
        assert len(desk.planner.states[-1].files) == 2


async def test_another_profile_begins_a_new_plan() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        await desk.typed("x")
        desk.gateway.profile = profile(model="other")
        await desk.typed("zz")
        await desk.typed("zz")
        assert [len(state.files) for state in desk.planner.states] == [0, 0, 1]


async def test_what_another_model_said_is_not_an_answer_of_this_one() -> None:
    async with Desk(ScriptedGateway(Script([(0.3, "foo(a)")]))) as desk:
        asked = desk.typing("x = ")
        await asyncio.sleep(0.1)
        desk.gateway.profile = profile(variant="arm")
        await desk.ask()
        await asked
        assert len(desk.gateway.calls) == 2
        assert desk.gateway.given_up(desk.gateway.calls[0]) == 1
