"""The flow with the real assembler: what it sends, and what it does not send again."""

import asyncio
import math

import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk, profile
from context.tiny import tiny
from foretype_client.policy.switches import Switches
from foretype_client.policy.trigger import Policy, PolicyOptions, Trigger
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.profile import LineChance, MinMeanLogprob, StopRules
from foretype_context.prompt.segments import STABLE_KINDS, Kind
from foretype_context.prompt.templates import encode_prompt, grammar

pytestmark = pytest.mark.virtual_time

SOURCE = "".join(f"def f{n}(a, b):\n    c = a + {n}\n    return c * b\n\n\n" for n in range(60))


def real_desk(gateway: ScriptedGateway, text: str) -> Desk:
    tokenizer = tiny()
    assembler = Assembler(tokenizer, profile(tokenizer_digest=tokenizer.digest))
    return Desk(gateway, text, planner_for=lambda _: assembler)


async def test_the_prompt_that_is_sent_has_the_counted_tokens_and_ends_in_the_typed_text() -> None:
    async with real_desk(ScriptedGateway(Script([(0.01, "turn c")])), SOURCE + "def g(a):\n    |\n") as desk:
        answer = await desk.typed("re")
        assert answer is not None and answer.text == "turn c"
        (call,) = desk.gateway.calls
        assert call.segments[-1].kind is Kind.MIDDLE
        assert call.segments[-1].text.endswith("re")
        encoded = encode_prompt(tiny(), grammar("foretype-1"), call.segments)
        assert call.prompt_tokens == len(encoded.ids)
        assert call.stop.max_lines == 1


async def test_another_key_changes_volatile_segments_alone() -> None:
    async with real_desk(ScriptedGateway(Script([(0.01, "zzz")])), SOURCE + "x = |\n") as desk:
        for key in ("a", "b", "c"):
            await desk.typed(key)
            await asyncio.sleep(0.2)
        stable = [[s.text for s in call.segments if s.kind in STABLE_KINDS] for call in desk.gateway.calls]
        assert len(stable) == 3
        assert stable[0] == stable[1] == stable[2]


async def test_who_asks_by_hand_gets_all_of_an_unlikely_answer() -> None:
    tokenizer = tiny()
    told = profile(tokenizer_digest=tokenizer.digest, stop=StopRules(least_chance=0.02))
    assembler = Assembler(tokenizer, told)
    gateway = ScriptedGateway(Script([(0.01, "zzz")]))
    async with Desk(gateway, "x = |\n", planner_for=lambda _: assembler) as desk:
        for trigger in (Trigger.AUTOMATIC, Trigger.INVOKED):
            await desk.typed("a", trigger=trigger)
        assert [call.stop.least_chance for call in desk.gateway.calls] == [0.02, 0.0]


@pytest.mark.parametrize(
    ("line", "unsure", "least"),
    [("f(|)\n", False, 0.35), ("f(|)\n", True, 0.02), ("x = |\n", False, math.exp(-3))],
)
async def test_an_answer_ends_where_it_has_become_too_unlikely_to_be_shown(
    line: str, unsure: bool, least: float
) -> None:
    tokenizer = tiny()
    told = profile(
        tokenizer_digest=tokenizer.digest,
        stop=StopRules(least_chance=0.02),
        line_chance=LineChance(least=0.35),
        min_mean_logprob=MinMeanLogprob(block=-0.15),
    )
    assembler = Assembler(tokenizer, told)
    policy = Policy(PolicyOptions(switches=Switches(unsure=unsure)))
    async with Desk(
        ScriptedGateway(Script([(0.01, "zzz")]), told), line, planner_for=lambda _: assembler, policy=policy
    ) as desk:
        await desk.typed("a")
        assert [call.stop.least_chance for call in desk.gateway.calls] == [pytest.approx(least)]


@pytest.mark.parametrize("size", [10_000, 4_000_000])
async def test_mistake_full_text_of_all_tabs_at_each_request(size: int) -> None:
    text = SOURCE * (size // len(SOURCE) + 1)
    async with real_desk(ScriptedGateway(Script([(0.01, "zzz")])), text + "x = |\n") as desk:
        await desk.typed("a")
        (call,) = desk.gateway.calls
        assert sum(len(segment.text) for segment in call.segments) < 20_000
