"""The strict client of a replay: a question's whole answer, and nothing of one that a newer question overtook."""

import asyncio

from backend.world import until
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import LinePlanner
from foretype_client.policy.trigger import Trigger
from foretype_context.syntax.document import Document
from foretype_eval.replay.strict import StrictFlow


async def test_an_answer_is_shown_whole_unless_a_newer_question_came() -> None:
    scripts = iter([Script([(0.0, "9"), (60.0, "9")]), Script([(0.0, "1"), (0.0, "23")]), Script([(0.0, "")])])
    gateway, planner = ScriptedGateway(lambda call: next(scripts)), LinePlanner()
    flow = StrictFlow(gateway, lambda profile: planner, debounce_s=0.001, local=None)
    snapshot = Document("file:///a.py", "x = ", language="python").snapshot()
    older = asyncio.create_task(flow.suggest(snapshot, 4, trigger=Trigger.AUTOMATIC))
    await until(lambda: gateway.calls)
    newer = await flow.suggest(snapshot, 4, trigger=Trigger.AUTOMATIC)
    assert newer is not None and newer.text == "123"
    gateway.streams[0].stop()
    assert await older is None
    assert await flow.suggest(snapshot, 4, trigger=Trigger.AUTOMATIC) is None
