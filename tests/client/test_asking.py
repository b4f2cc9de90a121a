"""One completion from beginning to end: what is sent, and what is made of the answer."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from context.tiny import tiny
from foretype_client.asking import FinishedCompletion, ask, plan_at
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.profile import Profile
from foretype_context.syntax.document import Document
from foretype_models.use.trial import TrialFigures
from foretype_wire.messages import DEADLINE_MS, Complete, Delta, Done, Finish

BEFORE = "def f(x):\n"


class Gateway:
    """Answers every request with one text."""

    def __init__(self, text: str, end: Finish = Finish.STOP) -> None:
        self.text = text
        self.end = end
        self.calls: list[Complete[Any]] = []

    async def complete(self, call: Complete[Any]) -> AsyncIterator[Delta | Done]:
        self.calls.append(call)
        yield Delta(id=call.id, text=self.text)
        yield Done(id=call.id, finish=self.end)


async def answer(gateway: Gateway, **options: float) -> FinishedCompletion:
    """Left to right, below a line that opens a block."""
    tokenizer = tiny("left-to-right")
    profile = Profile(model="m", grammar="left-to-right", tokenizer_digest=tokenizer.digest, layout="left_to_right")
    snapshot = Document("file:///a.py", BEFORE, path="a.py", language="python").snapshot()
    plan, _ = plan_at(Assembler(tokenizer, profile), snapshot, len(BEFORE))
    session = cast("Any", SimpleNamespace(complete=gateway.complete))
    return await ask(session, plan, snapshot, len(BEFORE), **options)


async def test_what_the_prompt_left_out_is_taken_off_the_answer() -> None:
    gateway = Gateway("\n    return x")
    assert (await answer(gateway)).text == "    return x"
    assert gateway.calls[0].stop.repeats == "\n"


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (Finish.STOP, "    y = x\n    return y.na"),
        (Finish.END_OF_MIDDLE, "    y = x\n    return y.na"),
        (Finish.LENGTH, "    y = x"),
    ],
)
async def test_the_line_in_which_tokens_ran_out_is_left_out(end: Finish, text: str) -> None:
    assert (await answer(Gateway("\n    y = x\n    return y.na", end))).text == text


async def test_an_answer_that_does_not_repeat_it_is_not_shown() -> None:
    found = await answer(Gateway(" return x"))
    assert (found.text, found.reason) == ("", "does not continue the line")


@pytest.mark.parametrize(("options", "deadline_ms"), [({}, DEADLINE_MS), ({"deadline_ms": 60_000.0}, 60_000.0)])
async def test_the_deadline_is_the_wires_or_the_callers(options: dict[str, float], deadline_ms: float) -> None:
    gateway = Gateway("\n    return x")
    await answer(gateway, **options)
    assert gateway.calls[0].deadline_ms == deadline_ms


def test_a_trial_tells_no_speed_of_what_wrote_nothing() -> None:
    figures = {"cold_ms": 1700.0, "cold_tokens": 368, "warm_ms": 142.0, "rounds": 2}
    assert str(TrialFigures(**figures, decode_tokens_s=31.2)).endswith("(368 tokens), 31 tokens/s")  # type: ignore[arg-type]
    assert str(TrialFigures(**figures, decode_tokens_s=0.0)).endswith("(368 tokens)")  # type: ignore[arg-type]
