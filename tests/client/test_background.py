import asyncio
from collections.abc import Callable

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk, profile
from foretype_client.flow.suggestion import FlowState, Origin
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Policy, PolicyOptions
from foretype_context.prompt.segments import Segment
from foretype_wire.errors import RequestRefusedError
from foretype_wire.messages import Complete, ErrorCode, RequestClass

pytestmark = pytest.mark.virtual_time


def desk(answer: Callable[[Complete[Segment]], Script] | Script, text: str = "|", **switches: bool) -> Desk:
    chosen = {"speculative": False, "preload": False, **switches}
    policy = Policy(PolicyOptions(switches=Switches(**chosen)))
    return Desk(ScriptedGateway(answer), text, policy=policy)


def ahead_of(call: Complete[Segment]) -> Script:
    if call.class_ is RequestClass.SPECULATIVE:
        return Script([(0.02, "next(line)")])
    return Script([(0.02, "foo(a)")])


def classes(one: Desk) -> list[RequestClass]:
    return [call.class_ for call in one.gateway.calls]


async def test_what_comes_after_an_accepted_suggestion_is_there_without_another_request() -> None:
    async with desk(ahead_of, speculative=True) as one:
        first = await one.typed("x = ")
        assert first is not None and classes(one) == [RequestClass.INTERACTIVE]
        await asyncio.sleep(0.5)
        assert classes(one) == [RequestClass.INTERACTIVE, RequestClass.SPECULATIVE]
        one.accept(first)
        second = await one.typed("\n")
        assert (second.text, second.source) == ("next(line)", Origin.SPECULATIVE)
        assert second.timings_ms["shown"] == 0
        assert [call.class_ for call in one.gateway.calls].count(RequestClass.INTERACTIVE) == 1
        assert one.flow.status().cache_hits == 1


async def test_it_is_waited_for_where_it_still_runs() -> None:
    def slow(call: Complete[Segment]) -> Script:
        return Script([(0.15, "next(line)")]) if call.class_ is RequestClass.SPECULATIVE else ahead_of(call)

    async with desk(slow, speculative=True) as one:
        first = await one.typed("x = ")
        assert first is not None
        await asyncio.sleep(0.11)
        one.accept(first)
        second = await one.typed("\n")
        assert second is not None and (second.text, second.source) == ("next(line)", Origin.SPECULATIVE)
        assert classes(one) == [RequestClass.INTERACTIVE, RequestClass.SPECULATIVE]


async def test_typing_on_along_the_suggestion_asks_once() -> None:
    async with desk(ahead_of, speculative=True) as one:
        assert await one.typed("x = ") is not None
        for key in "foo(a":
            await asyncio.sleep(0.15)
            assert await one.typed(key) is not None
        assert classes(one).count(RequestClass.SPECULATIVE) == 1


async def test_a_suggestion_that_is_gone_before_it_was_read_costs_nothing() -> None:
    async with desk(ahead_of, speculative=True) as one:
        assert await one.typed("x = ") is not None
        await asyncio.sleep(0.05)
        one.type("b")
        await asyncio.sleep(1)
        assert classes(one) == [RequestClass.INTERACTIVE]


async def test_another_way_ends_the_request() -> None:
    def endless(call: Complete[Segment]) -> Script:
        return Script([(60, "never")]) if call.class_ is RequestClass.SPECULATIVE else ahead_of(call)

    async with desk(endless, speculative=True) as one:
        assert await one.typed("x = ") is not None
        await asyncio.sleep(0.2)
        call = one.gateway.calls[-1]
        assert call.class_ is RequestClass.SPECULATIVE and call.id in one.gateway.running
        one.type("b")
        await asyncio.sleep(0)
        assert one.gateway.given_up(call) == 1


async def test_a_refusal_silences_speculation_and_nothing_else() -> None:
    def shedding(call: Complete[Segment]) -> Script:
        if call.class_ is RequestClass.SPECULATIVE:
            return Script(error=RequestRefusedError(ErrorCode.OVERLOADED, retry_after_ms=2000))
        return ahead_of(call)

    async with desk(shedding, speculative=True) as one:
        for _ in range(3):
            assert await one.typed("x = ") is not None
            await asyncio.sleep(0.5)
            one.type("b\n")
        assert classes(one).count(RequestClass.SPECULATIVE) == 1
        assert one.flow.status().state is FlowState.READY
        await asyncio.sleep(2)
        assert await one.typed("x = ") is not None
        await asyncio.sleep(0.5)
        assert classes(one).count(RequestClass.SPECULATIVE) == 2


async def test_the_prompt_counts_as_shown_only_when_the_user_gets_there() -> None:
    async with desk(ahead_of, speculative=True) as one:
        first = await one.typed("x = ")
        assert first is not None
        await asyncio.sleep(0.5)
        shown, speculated = one.planner.states
        await one.typed("b")
        # The next real prompt builds on the first one alone.
        assert one.planner.states[-1] is speculated
        assert one.planner.states[-1] is not shown


async def test_where_the_cursor_rests_the_prompt_is_computed_beforehand() -> None:
    async with desk(ahead_of, "a = 1\nb = 2|\n", preload=True) as one:
        for place in ("a", "a =", "b = "):
            one.move(place)
            one.flow.rested(one.document.snapshot(), one.cursor)
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
        (call,) = one.gateway.calls
        assert (call.class_, call.max_tokens) == (RequestClass.WARM, 1)
        assert call.segments[-1].text == "b = "
        one.flow.rested(one.document.snapshot(), one.cursor)
        await asyncio.sleep(1)
        assert len(one.gateway.calls) == 1, "the same place again"


async def test_where_something_was_deleted_the_prompt_is_computed_for_what_is_typed_in_its_place() -> None:
    async with desk(ahead_of, "a = 1\nb = 2|\n", preload=True) as one:
        one.backspace()
        assert await one.ask() is None
        assert classes(one) == []
        await asyncio.sleep(0.5)
        assert classes(one) == [RequestClass.WARM]
        one.backspace()
        assert await one.ask() is None
        one.type("3")  # before the cursor has rested
        assert await one.ask() is not None
        await asyncio.sleep(0.5)
        assert classes(one) == [RequestClass.WARM, RequestClass.INTERACTIVE]


@pytest.mark.parametrize("asks_s", [0.0, 0.03, 0.2])
async def test_the_rest_after_a_deletion_is_counted_from_it_however_late_the_editor_asks(asks_s: float) -> None:
    async with desk(ahead_of, "a = 1\nb = 2|\n", preload=True) as one:
        one.backspace()
        await asyncio.sleep(asks_s)
        assert await one.ask() is None
        await asyncio.sleep(0.29 - asks_s)
        assert classes(one) == []
        await asyncio.sleep(0.02)
        assert classes(one) == [RequestClass.WARM]


async def test_a_question_later_than_the_rest_after_a_deletion_preloads_at_once() -> None:
    async with desk(ahead_of, "a = 1\nb = 2|\n", preload=True) as one:
        one.backspace()
        await asyncio.sleep(0.5)
        assert await one.ask() is None
        await asyncio.sleep(0.01)
        assert classes(one) == [RequestClass.WARM]


async def test_a_move_after_a_deletion_begins_another_rest() -> None:
    async with desk(ahead_of, "a = 1\nb = 2|\n", preload=True) as one:
        one.backspace()
        await asyncio.sleep(0.25)
        one.move("a = 1")
        one.flow.rested(one.document.snapshot(), one.cursor)
        await asyncio.sleep(0.29)
        assert classes(one) == []
        await asyncio.sleep(0.02)
        assert [call.segments[-1].text for call in one.gateway.calls] == ["a = 1"]


async def test_a_token_that_only_warmed_is_no_suggestion() -> None:
    async with desk(ahead_of, "b = |", preload=True) as one:
        one.flow.rested(one.document.snapshot(), one.cursor)
        await asyncio.sleep(1)
        answer = await one.ask()
        assert answer is not None and answer.source is Origin.NETWORK


@pytest.mark.parametrize("goes_on", ["elsewhere", "typing", "here"])
async def test_what_only_warms_ends_with_the_next_move_or_question(goes_on: str) -> None:
    def endless(call: Complete[Segment]) -> Script:
        return Script([(60, "never")]) if call.class_ is RequestClass.WARM else ahead_of(call)

    async with desk(endless, "a = 1\nb = |\n", preload=True) as one:
        one.flow.rested(one.document.snapshot(), one.cursor)
        await asyncio.sleep(0.5)
        (warm,) = one.gateway.calls
        assert one.gateway.given_up(warm) == 0
        if goes_on == "typing":
            await one.typed("c")
        else:
            one.cursor = 3 if goes_on == "elsewhere" else one.cursor
            one.flow.rested(one.document.snapshot(), one.cursor)
        assert one.gateway.given_up(warm) == (goes_on != "here")


@pytest.mark.parametrize("busy", ["typing", "asking", "offline", "off"])
async def test_nothing_is_preloaded_while_there_is_better_to_do(busy: str) -> None:
    async with desk(Script([(0.5, "foo")]), "b = |", preload=busy != "off") as one:
        one.gateway.connected = busy != "offline"
        one.flow.rested(one.document.snapshot(), one.cursor)
        asking = None
        if busy == "typing":
            one.type("c")
        elif busy == "asking":
            asking = one.asking()
        await asyncio.sleep(1)
        assert RequestClass.WARM not in classes(one)
        if asking is not None:
            await asking


async def test_closing_a_document_ends_what_is_under_way_for_it() -> None:
    def endless(call: Complete[Segment]) -> Script:
        return Script([(60, "never")]) if call.class_ is RequestClass.SPECULATIVE else ahead_of(call)

    async with desk(endless, speculative=True) as one:
        assert await one.typed("x = ") is not None
        await asyncio.sleep(0.2)
        one.flow.document_closed(one.document.snapshot())
        await asyncio.sleep(0)
        assert not one.gateway.running


async def test_another_profile_is_another_place() -> None:
    async with desk(ahead_of, speculative=True) as one:
        first = await one.typed("x = ")
        assert first is not None
        await asyncio.sleep(0.5)
        one.gateway.profile = profile(model="another")
        one.accept(first)
        answer = await one.typed("\n")
        assert answer is not None and answer.source is Origin.NETWORK
