"""What is left out from now on: prompts under way that may hold it stop, and nothing that was made of it is given again."""

import asyncio

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk

pytestmark = pytest.mark.virtual_time


async def test_prompts_under_way_end_and_the_cache_forgets() -> None:
    async with Desk(ScriptedGateway(Script([(0.05, "foo(a)")]))) as desk:
        assert await desk.typed("x = ") is not None
        asked = desk.typing("\ny = ")
        await asyncio.sleep(0.08)
        desk.flow.excluded()
        assert desk.gateway.given_up(desk.gateway.calls[1]) == 1
        await asked
        assert desk.cache.statistics().entries == 0
        states = len(desk.planner.states)
        await desk.typed("\nz = ")
        assert not desk.planner.states[states].files


async def test_a_private_key_anywhere_and_a_long_line_are_silent() -> None:
    async with Desk(ScriptedGateway(), "x = 1\n" * 3_000 + "|\n") as desk:
        assert await desk.typed("-----BEGIN PRIVATE KEY-----\n") is None
        desk.edit(desk.cursor - 28, desk.cursor, "")
        assert await desk.typed("y = " + "1,2" * 1_000) is None
        assert desk.flow.status().counts == {"excluded": 2}
        assert await desk.typed("\nz = ") is not None
