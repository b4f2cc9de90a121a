"""A developer whose editor shows beginnings, and a simulated stream that has some."""

import asyncio
from random import Random

import pytest
from foretype_client.flow.suggestion import Origin, Suggestion
from foretype_client.policy.trigger import Trigger
from foretype_context.syntax.document import Change, Snapshot
from foretype_eval.replay.accept import Rule
from foretype_eval.replay.commits import Stretch
from foretype_eval.replay.developer import Tally, TypingDeveloper
from foretype_eval.replay.trace import TraceRow
from foretype_eval.replay.virtual import VirtualLoop

LINE = "return self.answer"


class Growing:
    """Says the first word of the line, and the rest of it a little later."""

    def __init__(self, end: str = "answer") -> None:
        self.line = LINE[: LINE.rindex("answer")] + end
        self.grown = False
        self.developer: TypingDeveloper | None = None

    def document_opened(self, snapshot: Snapshot) -> None: ...
    def document_changed(self, change: Change) -> None: ...
    def document_closed(self, snapshot: Snapshot) -> None: ...
    def accepted(self, id: str) -> None: ...
    def partially_accepted(self, id: str, characters: int) -> None: ...

    async def suggest(self, snapshot: Snapshot, offset: int, *, trigger: Trigger) -> Suggestion | None:
        whole = Suggestion(id=str(offset), text=self.line[offset:], source=Origin.NETWORK)
        if offset > 3:
            return None
        if self.grown:
            return whole
        self.grown = True
        if self.developer is not None:
            asyncio.get_running_loop().call_later(0.001, self.developer.grew, snapshot.uri, whole)
        return Suggestion(id=str(offset), text=self.line[offset : len("return")], source=Origin.NETWORK)


def typed(flow: Growing, *, growing: bool) -> Tally:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        developer = TypingDeveloper(flow, rule=Rule.LINE, rng=Random(0), decide_s=0.0, growing=growing)
        flow.developer = developer
        runner.run(developer.type(Stretch("a.py", "", LINE, ""), root="/w", language="python"))
        return developer.tally


def test_what_grows_is_taken_whole_and_is_one_session() -> None:
    tally = typed(Growing(), growing=True)
    assert (tally.sessions, tally.sessions_right, tally.accepts, tally.keys_with) == (1, 1, 1, 1)
    assert tally.shown == 1


def test_what_grows_into_something_wrong_is_one_wrong_session() -> None:
    tally = typed(Growing("other"), growing=True)
    assert (tally.sessions, tally.sessions_right, tally.accepts) == (1, 0, 0)


class Failing(Growing):
    """Fails when the developer has long typed on."""

    async def suggest(self, snapshot: Snapshot, offset: int, *, trigger: Trigger) -> Suggestion | None:
        if offset == 0:
            await asyncio.sleep(1.0)
            raise ZeroDivisionError
        return None


def test_a_question_that_fails_after_the_next_key_is_no_row_without_suggestions() -> None:
    with pytest.raises(ZeroDivisionError):
        typed(Failing(), growing=False)


def test_an_editor_that_is_not_told_sees_the_rest_with_the_next_key() -> None:
    tally = typed(Growing(), growing=False)
    assert (tally.sessions, tally.sessions_right, tally.accepts, tally.keys_with) == (2, 1, 1, 2)


@pytest.mark.parametrize(
    ("row", "times"),
    [
        (TraceRow([20.0, 30.0, 50.0], 60.0), [20.0, 30.0, 50.0, 65.0, 80.0]),
        (TraceRow([20.0], 60.0), [20.0] * 5),
        (TraceRow([], 60.0), [60.0] * 5),
    ],
)
def test_tokens_come_as_in_the_trace_and_then_at_its_pace(row: TraceRow, times: list[float]) -> None:
    assert row.times_ms(5) == times
