"""What the model found too unlikely to be shown is asked again where that may change, and not with the next key."""

from collections.abc import Callable

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk, LinePlanner, profile
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Policy, PolicyOptions, Trigger
from foretype_context.prompt.plan import Plan, PlanState
from foretype_context.prompt.profile import MinMeanLogprob, Profile
from foretype_wire.messages import Finish

pytestmark = pytest.mark.virtual_time

UNLIKELY = Script([(0.02, "nothing")], finish=Finish.LENGTH)
SURE = profile(min_mean_logprob=MinMeanLogprob(line=-1.0))


class HealingPlanner(LinePlanner):
    """Leaves out the word before the cursor, as prompts do whose last token may be half typed."""

    def plan(self, state: PlanState, *place: object, **more: object) -> tuple[Plan, PlanState]:
        snapshot, offset = place[0], place[1]
        typed = snapshot.text[:offset].rpartition("\n")[2]  # type: ignore[attr-defined]
        self.healed = typed[len(typed.rstrip("abcdefghijklmnopqrstuvwxyz")) :]
        return super().plan(state, *place, **more)  # type: ignore[arg-type]


def desk(
    answer: Script = UNLIKELY, profile: Profile = SURE, planner: Callable[[], LinePlanner] = LinePlanner, **more: object
) -> Desk:
    return Desk(ScriptedGateway(answer, profile), "above\n|", planner=planner(), **more)


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        (["x", " "], 1),
        (["x", " ", "="], 2),
        (["x", " = "], 2),
        (["x", " ", "\b"], 1),
    ],
)
async def test_one_character_more_is_no_reason_and_two_are(keys: list[str], asked: int) -> None:
    async with desk() as typing:
        for key in keys:
            if key == "\b":
                typing.backspace()
            else:
                typing.type(key)
            assert await typing.ask() is None
        assert len(typing.gateway.calls) == asked


async def test_the_rest_of_a_word_goes_on_from_the_same_prompt() -> None:
    async with desk(planner=HealingPlanner) as typing:
        for key in ("x.a", "b", "c", "defg"):
            await typing.typed(key)
        assert len(typing.gateway.calls) == 1
        await typing.typed(".")
        assert len(typing.gateway.calls) == 2


@pytest.mark.parametrize("finish", [Finish.END_OF_MIDDLE, Finish.STOP])
async def test_an_answer_that_is_merely_not_what_is_typed_is_no_such_sign(finish: Finish) -> None:
    async with desk(Script([(0.02, "other")], finish=finish)) as typing:
        for key in ("x", "y", "z"):
            await typing.typed(key)
        assert len(typing.gateway.calls) == 3


async def test_another_line_is_asked_about() -> None:
    async with desk() as typing:
        await typing.typed("x")
        await typing.typed("\n")
        assert len(typing.gateway.calls) == 2


async def test_who_asks_by_hand_is_answered() -> None:
    async with desk() as typing:
        await typing.typed("x")
        await typing.typed("y", trigger=Trigger.INVOKED)
        assert len(typing.gateway.calls) == 2


@pytest.mark.parametrize("switches", [Switches(skip_unlikely=False), Switches(unsure=True)])
async def test_it_can_be_switched_off_and_whoever_wants_the_unsure_is_asked_for(switches: Switches) -> None:
    async with desk(policy=Policy(PolicyOptions(switches=switches))) as typing:
        for key in ("x", "y", "z"):
            await typing.typed(key)
        assert len(typing.gateway.calls) == 3
