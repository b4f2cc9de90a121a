"""Any order of typing, asking, cancelling, accepting and failing: every question is answered once, and nothing is left."""

import asyncio
from dataclasses import dataclass
from typing import Any

from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk, LinePlanner
from foretype_client.adaptive.candidates import CopyLine
from foretype_client.flow.suggestion import Suggestion
from foretype_client.policy.trigger import Trigger
from foretype_context.prompt.segments import Segment
from foretype_context.syntax.blocks import SuggestionKind
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import Complete, ErrorCode, Finish
from hypothesis import given, settings
from hypothesis import strategies as st

from client import virtual

LINE = "value = compute(one)"
WAITS = st.sampled_from([0.0, 0.001, 0.02, 0.076, 0.2, 0.9])

SCRIPTS = st.builds(
    Script,
    deltas=st.lists(
        st.tuples(WAITS, st.sampled_from(["v", "value", " = ", "compute(one)", "\n", "    x\n", ""])), max_size=6
    ),
    finish=st.sampled_from([Finish.END_OF_MIDDLE, Finish.STOP, Finish.LENGTH, Finish.CANCELLED, Finish.EXPIRED]),
    end_after_s=WAITS,
    error=st.sampled_from(
        [
            None,
            None,
            None,
            GatewayGoneError("gone"),
            RequestRefusedError(ErrorCode.OVERLOADED),
            RequestRefusedError(ErrorCode.RATE_LIMITED, retry_after_ms=300),
        ]
    ),
)


@dataclass
class Step:
    what: str
    text: str = ""


STEPS = st.one_of(
    st.builds(Step, st.just("type"), st.sampled_from([*"value", "\n", "    ", "value = c", "zz"])),
    st.builds(Step, st.just("ask")),
    st.builds(Step, st.just("ask")),
    st.builds(Step, st.just("invoke")),
    st.builds(Step, st.just("cancel")),
    st.builds(Step, st.just("backspace")),
    st.builds(Step, st.just("accept")),
    st.builds(Step, st.just("connect")),
    st.builds(Step, st.just("close")),
)


async def play(
    steps: list[tuple[Step, float]], scripts: list[Script], kind: SuggestionKind, local: CopyLine | None
) -> None:
    def answer(call: Complete[Segment]) -> Script:
        return scripts[len(gateway.calls) % len(scripts)]

    gateway = ScriptedGateway(answer)
    asked: list[asyncio.Task[Suggestion | None]] = []
    cancelled = 0
    desk = Desk(gateway, f"{LINE}\n|", planner=LinePlanner(kind), local=local)
    for step, wait_s in steps:
        match step.what:
            case "type":
                desk.type(step.text)
            case "ask":
                asked.append(desk.asking())
            case "invoke":
                asked.append(desk.asking(trigger=Trigger.INVOKED))
            case "cancel" if asked and not asked[-1].done():
                asked[-1].cancel()
                cancelled += 1
            case "backspace" if desk.cursor:
                desk.backspace()
            case "accept" if asked and asked[-1].done() and not asked[-1].cancelled():
                if (suggestion := asked[-1].result()) is not None:
                    desk.accept(suggestion)
            case "connect":
                gateway.connected = not gateway.connected
            case "close":
                desk.flow.document_closed(desk.document.snapshot())
            case _:
                pass
        await asyncio.sleep(wait_s)
    await asyncio.sleep(20)
    assert all(task.done() for task in asked)
    answers = [task.result() for task in asked if not task.cancelled()]
    status = desk.flow.status()
    assert sum(status.counts.values()) == status.asked
    assert "fault" not in status.counts
    assert status.running == 0
    assert all(stream.ended for stream in gateway.streams)
    assert all(gateway.given_up(call) <= 1 for call in gateway.calls)
    assert gateway.most_running <= 2
    assert all(answer is None or answer.text for answer in answers)
    shown = [answer.id for answer in answers if answer is not None and answer.source != "cache"]
    local_again = [answer.id for answer in answers if answer is not None and answer.source == "local"]
    assert len(set(shown)) + len(local_again) - len(set(local_again)) == len(shown)
    await desk.flow.close()


async def close_after(steps: list[tuple[Step, float]], scripts: list[Script]) -> None:
    gateway: Any = ScriptedGateway(lambda call: scripts[len(gateway.calls) % len(scripts)])
    desk = Desk(gateway, f"{LINE}\n|")
    asked: list[asyncio.Task[Suggestion | None]] = []
    for step, wait_s in steps:
        if step.what == "type":
            desk.type(step.text)
        else:
            asked.append(desk.asking())
        await asyncio.sleep(wait_s)
    await desk.flow.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert all(task.done() for task in asked)
    assert all(stream.ended or stream.cancels == 1 for stream in gateway.streams)


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(st.tuples(STEPS, WAITS), max_size=14),
    scripts=st.lists(SCRIPTS, min_size=1, max_size=4),
    kind=st.sampled_from([SuggestionKind.LINE, SuggestionKind.BLOCK]),
    local=st.booleans(),
)
def test_every_question_is_answered_once_and_nothing_is_left(
    steps: list[tuple[Step, float]], scripts: list[Script], kind: SuggestionKind, local: bool
) -> None:
    virtual.run(lambda: play(steps, scripts, kind, CopyLine() if local else None))


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(st.tuples(STEPS, WAITS), max_size=10),
    scripts=st.lists(SCRIPTS, min_size=1, max_size=3),
)
def test_closing_at_any_moment_ends_everything(steps: list[tuple[Step, float]], scripts: list[Script]) -> None:
    virtual.run(lambda: close_after(steps, scripts))
