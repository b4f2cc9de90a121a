"""Requests that go out before their question is there."""

import asyncio
from typing import Any

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk, finish_by, profile
from foretype_client.adaptive.candidates import CopyLine
from foretype_client.flow.flow import FlowOptions
from foretype_client.flow.inflight import AnswerRules
from foretype_client.flow.suggestion import Origin, SelectedCompletion
from foretype_client.policy.trigger import Policy, PolicyOptions
from foretype_context.finish.post_processing import Finished
from foretype_wire.errors import GatewayGoneError

pytestmark = pytest.mark.virtual_time

ANSWER = Script([(0.02, "foo"), (0.01, "(a"), (0.01, ")")])


class TypedAt(Desk):
    """A desk whose editor tells of a key at once and asks later, like those with a delay of their own."""

    def __init__(self, gateway: ScriptedGateway, text: str = "|", **options: Any) -> None:
        super().__init__(gateway, text, **{"policy": Policy(PolicyOptions(debounce_ms=25)), **options})

    async def asks_here(self) -> None:
        """The editor has asked in this document."""
        question = self.asking()
        await asyncio.sleep(0)
        question.cancel()
        await asyncio.sleep(0.3)
        self.gateway.calls.clear()

    def key(self, text: str) -> None:
        self.type(text)
        self.flow.typed(self.document.snapshot(), self.cursor)


async def test_the_request_goes_out_when_the_debounce_ends_and_is_the_questions_own() -> None:
    async with TypedAt(ScriptedGateway(ANSWER), "x|") as desk:
        await desk.asks_here()
        desk.key(" = ")
        await asyncio.sleep(0.024)
        assert desk.gateway.calls == []
        await asyncio.sleep(0.006)
        (call,) = desk.gateway.calls
        assert [segment.text for segment in call.segments] == ["x = "]
        suggestion = await desk.ask()
        assert (suggestion.text, suggestion.source) == ("foo(a)", Origin.NETWORK)
        assert suggestion.timings_ms["shown"] == pytest.approx(35)
        assert len(desk.gateway.calls) == 1


async def test_a_late_question_finds_the_answer_and_nothing_was_offered_before_it() -> None:
    async with TypedAt(ScriptedGateway(ANSWER), "x|") as desk:
        await desk.asks_here()
        desk.key(" = ")
        await asyncio.sleep(0.2)
        assert desk.events == []
        suggestion = await desk.ask()
        assert suggestion is not None and suggestion.text == "foo(a)"
        assert suggestion.timings_ms["shown"] == 0
        assert len(desk.gateway.calls) == 1


async def test_a_question_before_the_debounce_ends_sends_one_request() -> None:
    async with TypedAt(ScriptedGateway(ANSWER), "x|") as desk:
        await desk.asks_here()
        desk.key(" = ")
        await asyncio.sleep(0.01)
        suggestion = await desk.ask()
        assert suggestion is not None and suggestion.text == "foo(a)"
        assert len(desk.gateway.calls) == 1


async def test_a_burst_of_keys_asks_once() -> None:
    async with TypedAt(ScriptedGateway(ANSWER), "x|") as desk:
        await desk.asks_here()
        for key in " = y":
            desk.key(key)
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        assert [call.segments[-1].text for call in desk.gateway.calls] == ["x = y"]


async def test_a_slow_request_is_not_sent_twice() -> None:
    async with TypedAt(ScriptedGateway(Script([(1.0, "foo()")])), "x|") as desk:
        await desk.asks_here()
        desk.key(" = ")
        await asyncio.sleep(0.03)
        suggestion = await desk.ask()
        assert suggestion is not None and suggestion.text == "foo()"
        assert len(desk.gateway.calls) == 1


async def test_an_early_request_that_fails_before_the_question_is_made_again() -> None:
    answers = [Script(error=GatewayGoneError("gone")), ANSWER]
    async with TypedAt(ScriptedGateway(lambda call: answers.pop(0)), "x|") as desk:
        question = desk.asking()
        await asyncio.sleep(0)
        question.cancel()
        desk.key(" = ")
        await asyncio.sleep(0.1)
        suggestion = await desk.ask()
        assert suggestion is not None and suggestion.text == "foo(a)"


async def test_an_editor_that_does_not_ask_is_not_asked_for() -> None:
    async with TypedAt(ScriptedGateway(ANSWER), "x|") as desk:
        desk.key(" = ")
        await asyncio.sleep(0.2)
        await desk.asks_here()
        await asyncio.sleep(31)
        desk.key("y")
        await asyncio.sleep(0.2)
        assert desk.gateway.calls == []


async def test_what_is_here_already_is_not_asked_for() -> None:
    async with TypedAt(ScriptedGateway(ANSWER), "x|") as desk:
        await desk.asks_here()
        desk.key(" = ")
        assert await desk.ask() is not None
        desk.key("f")  # typed along what is visible
        await asyncio.sleep(0.2)
        assert len(desk.gateway.calls) == 1


async def test_what_the_local_candidate_is_sure_of_is_not_asked_for() -> None:
    gateway = ScriptedGateway(ANSWER, profile(local_min_confidence=0.2))
    async with TypedAt(gateway, "import os\nx = 1\n|", local=CopyLine()) as desk:
        await desk.asks_here()
        desk.key("imp")
        await asyncio.sleep(0.2)
        suggestion = await desk.ask()
        assert suggestion is not None and suggestion.source is Origin.LOCAL
        assert gateway.calls == []


async def test_in_the_middle_of_a_line_nothing_is_asked() -> None:
    async with TypedAt(ScriptedGateway(ANSWER), "x| + y") as desk:
        await desk.asks_here()
        desk.key(" = ")
        await asyncio.sleep(0.2)
        assert desk.gateway.calls == []


async def test_the_item_of_a_popup_is_a_request_of_its_own() -> None:
    async with TypedAt(ScriptedGateway(Script([(0.1, "en()")])), "os|") as desk:
        await desk.asks_here()
        desk.key(".op")
        await asyncio.sleep(0.03)
        await desk.ask(selected=SelectedCompletion(3, 5, "operation"))
        assert [call.segments[-1].text for call in desk.gateway.calls][-1] == "os.operation"


async def test_closing_ends_what_waits() -> None:
    desk = TypedAt(ScriptedGateway(ANSWER), "x|")
    await desk.asks_here()
    desk.key(" = ")
    await desk.flow.close()
    await asyncio.sleep(0.2)
    assert desk.gateway.calls == []
    desk.key("y")
    await asyncio.sleep(0.2)
    assert desk.gateway.calls == []


async def test_an_editor_that_is_told_of_growth_gets_the_beginning_of_a_line_first() -> None:
    slow = Script([(0.02, "foo("), (0.01, "bar"), (0.1, ", baz"), (0.1, ")")])
    options = FlowOptions(answer=AnswerRules.growing())
    async with Desk(ScriptedGateway(slow), "x|", options=options) as desk:
        first = await desk.typed(" = ")
        assert first is not None and first.text == "foo("
        assert first.timings_ms["shown"] == pytest.approx(75 + 20)
        await asyncio.sleep(0.3)
        ((_, grown),) = desk.grown
        again = await desk.ask()
        assert again is not None and again.text == grown.text == "foo(bar, baz)"
        assert again.id == first.id
        assert len(desk.gateway.calls) == 1


async def test_what_grows_takes_the_place_of_what_its_whole_text_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def finisher(text: str, *_: object, **__: object) -> Finished:
        return Finished(text.rstrip(), replaces=int("#" in text))  # behind a comment's sign the closer would be comment

    slow = Script([(0.02, "bar("), (0.1, "f  # text")])
    options = FlowOptions(answer=AnswerRules.growing())
    finish_by(monkeypatch, finisher)
    async with Desk(ScriptedGateway(slow), "foo(|)", options=options) as desk:
        first = await desk.typed("x, ")
        assert first is not None and (first.text, first.replaces) == ("bar(", 0)
        await asyncio.sleep(0.3)
        again = await desk.ask()
        assert again is not None and (again.text, again.replaces) == ("bar(f  # text", 1)
        assert [(grown.text, grown.replaces) for _, grown in desk.grown] == [("bar(f  # text", 1)]
