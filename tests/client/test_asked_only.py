"""A model that is right too seldom at every confidence speaks when it is asked, and costs nothing meanwhile."""

import asyncio

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk, profile
from foretype_client.adaptive.candidates import CopyLine, LocalCandidate
from foretype_client.flow.suggestion import Origin
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Policy, PolicyOptions, Trigger
from foretype_context.prompt.profile import MinMeanLogprob
from foretype_context.syntax.document import Snapshot
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.virtual_time

ANSWER = Script([(0.02, "foo"), (0.01, "(a"), (0.01, ")")])
SHOWS_NOTHING = profile(min_mean_logprob=MinMeanLogprob(mid_line=0.0, line=0.0, block=0.0))


@given(st.floats(-9, 0), st.floats(-9, 0), st.floats(-9, 0))
def test_one_kind_that_may_be_shown_is_something(mid_line: float, line: float, block: float) -> None:
    least = MinMeanLogprob(mid_line=mid_line, line=line, block=block)
    assert least.shows_nothing == (mid_line == line == block == 0.0)


async def test_typing_asks_nothing_and_the_local_candidate_shows() -> None:
    async with Desk(
        ScriptedGateway(ANSWER, SHOWS_NOTHING), "value = compute(1)\nother = 1\n|", local=CopyLine()
    ) as desk:
        suggestion = await desk.typed("value = c")
        assert suggestion is not None and (suggestion.text, suggestion.source) == ("ompute(1)", Origin.LOCAL)
        assert await desk.typed("zz") is None
        assert desk.gateway.calls == []
        assert desk.flow.status().counts["low_confidence"] == 1


async def test_who_asks_is_answered_and_may_type_on_along_the_answer() -> None:
    async with Desk(ScriptedGateway(ANSWER, SHOWS_NOTHING)) as desk:
        assert await desk.typed("x = ") is None
        asked = await desk.ask(trigger=Trigger.INVOKED)
        assert asked is not None and asked.text == "foo(a)"
        along = await desk.typed("fo")
        assert along is not None and along.text == "o(a)", "it stays while it is typed"
        assert len(desk.gateway.calls) == 1


@pytest.mark.parametrize("unsure", [False, True])
async def test_a_cursor_that_rests_warms_nothing_unless_the_unsure_is_wanted(unsure: bool) -> None:
    gateway = ScriptedGateway(ANSWER, SHOWS_NOTHING)
    policy = Policy(PolicyOptions(switches=Switches(preload=True, unsure=unsure)))
    async with Desk(gateway, "a = 1\nb = 2|\n", policy=policy) as desk:
        desk.move("a = 1")
        desk.flow.rested(desk.document.snapshot(), desk.cursor)
        await asyncio.sleep(2.0)
        assert len(gateway.calls) == unsure


class Slow:
    """A local model that finds its candidate the third time it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def unfinished(self) -> bool:
        return self.asked < 3

    def suggest(self, snapshot: Snapshot, offset: int) -> LocalCandidate | None:
        self.asked += 1
        return None if self.unfinished else LocalCandidate("found", 0.9)

    def learn(self, uri: str, text: str) -> None:
        pass

    def prepare(self, uri: str) -> None:
        pass


async def test_a_search_that_was_cut_short_goes_on_while_nobody_types() -> None:
    async with Desk(ScriptedGateway(ANSWER, SHOWS_NOTHING), local=Slow()) as desk:
        shown = await desk.typed("x = ")
        assert shown is not None and (shown.text, shown.source) == ("found", Origin.LOCAL)


async def test_no_request_goes_out_while_the_search_goes_on_that_makes_it_needless() -> None:
    gateway = ScriptedGateway(ANSWER)
    async with Desk(gateway, local=Slow()) as desk:
        shown = await desk.typed("x = ")
        assert shown is not None and (shown.text, shown.source) == ("found", Origin.LOCAL)
        assert not gateway.calls


async def test_a_newer_question_ends_the_search_for_an_older_one() -> None:
    slow = Slow()
    async with Desk(ScriptedGateway(ANSWER, SHOWS_NOTHING), local=slow) as desk:
        older = desk.typing("x = ")
        await asyncio.sleep(0)
        slow.asked = -100
        desk.type("y")
        slow.asked = 2
        newer = await desk.ask()
        assert await older is None
        assert newer is not None and newer.text == "found"
        assert desk.flow.status().counts["superseded"] == 1
