import json

import msgspec
import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import Desk
from foretype_client.adaptive.candidates import CopyLine
from foretype_wire.messages import Usage

pytestmark = pytest.mark.virtual_time

ANSWER = Script([(0.02, "foo")], usage=Usage(prompt_tokens=3, cached_tokens=2, cached_source="engine"))


async def test_a_suggestion_names_its_request_its_prompt_and_what_was_cached_of_it() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        suggestion = await desk.typed("x = ")
        said = desk.flow.explain(suggestion.id)
        assert said is not None and said == desk.flow.explain()
        assert (said["origin"], said["request"], said["class"]) == ("network", suggestion.request_id, "interactive")
        (segment,) = said["plan"]["segments"]
        assert (segment["tokens"], segment["cached"]) == (3, 2)
        assert said["plan"]["scopes"]["session"] == {"tokens": 3, "cached": 2}
        assert said["timings_ms"]["debounce"] == 75
        assert "x = " not in json.dumps(msgspec.to_builtins(said)), "names and figures, never text"


async def test_typed_through_it_is_still_the_same_one_and_after_a_while_it_is_forgotten() -> None:
    async with Desk(ScriptedGateway(ANSWER)) as desk:
        first = await desk.typed("x = ")
        again = await desk.typed("f")
        assert again is not None and again.id == first.id
        said = desk.flow.explain(first.id)
        assert said is not None and (said["origin"], said["plan"] is None) == ("cache", False)
        for _ in range(40):
            assert await desk.typed("\nx = ") is not None
        assert desk.flow.explain(first.id) is None
        assert desk.flow.explain("never") is None


async def test_a_local_candidate_has_no_prompt() -> None:
    gateway = ScriptedGateway(ANSWER, connected=False)
    async with Desk(gateway, "value = compute(one)\nother = 2\n|", local=CopyLine()) as desk:
        assert desk.flow.explain() is None
        suggestion = await desk.typed("value = c")
        said = desk.flow.explain(suggestion.id)
        assert said is not None and (said["origin"], said["plan"], said["class"]) == ("local", None, None)
