"""What a profile changes about a client that runs: the debounce, speculation, and nothing where it only begins another block."""

import asyncio
from typing import Any

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk, profile
from foretype_client.flow.strands import profile_identity
from foretype_client.policy.knobs import known_knobs
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import PolicyOptions
from foretype_context.prompt.layouts import LAYOUTS
from foretype_wire.messages import RequestClass

pytestmark = pytest.mark.virtual_time

ANSWER = Script([(0.02, "name"), (0.01, "()")])


@pytest.mark.parametrize(("given_ms", "waited_ms"), [(None, 75), (0.0, 0), (20.0, 20), (400.0, 400)])
async def test_the_debounce_is_the_profiles_where_it_names_one(given_ms: float | None, waited_ms: float) -> None:
    gateway = ScriptedGateway(ANSWER, profile=profile(debounce_ms=given_ms))
    async with Desk(gateway) as desk:
        clock = asyncio.get_running_loop().time
        desk.type("x = ")
        began = clock()
        assert await desk.ask() is not None
        assert (clock() - began) * 1000 == pytest.approx(waited_ms + 30, abs=1)


@pytest.mark.parametrize(("given", "asked"), [(None, False), (True, True), (False, False)])
async def test_speculation_is_the_profiles_where_it_names_one(given: bool | None, asked: bool) -> None:
    gateway = ScriptedGateway(ANSWER, profile=profile(speculative=given))
    async with Desk(gateway) as desk:
        assert await desk.typed("x = ") is not None
        await asyncio.sleep(1.0)
        assert any(call.class_ is RequestClass.SPECULATIVE for call in gateway.calls) is asked


def test_what_one_variant_was_answered_is_no_answer_of_another() -> None:
    names: Any = [
        profile_identity(profile(**changes))
        for changes in (
            {},
            {"experiment": "a", "variant": "control"},
            {"experiment": "b", "variant": "control"},
            {"experiment": "a", "variant": "treatment"},
        )
    ]
    assert len(set(names)) == 4
    assert profile_identity(profile(experiment="a", block=1)) == profile_identity(profile(experiment="a", block=2))


def test_a_client_names_what_may_be_changed_and_never_what_its_user_chose() -> None:
    known = known_knobs(PolicyOptions(), telemetry=True)
    assert {"arms", "budgets", "debounce", "speculation", "strategy", "thresholds"} < set(known)
    assert {f"layout.{name}" for name in LAYOUTS} < set(known)
    assert "arms" not in known_knobs(PolicyOptions(), telemetry=False)
    for options, knob in (
        (PolicyOptions(debounce_ms=60.0), "debounce"),
        (PolicyOptions(switches=Switches(speculative=True)), "speculation"),
        (PolicyOptions(switches=Switches(unsure=True)), "thresholds"),
    ):
        assert set(known) - set(known_knobs(options, telemetry=True)) == {knob}
