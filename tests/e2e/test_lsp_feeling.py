"""How it feels, through the whole of it: the language server asks its editor, the answer stands in the gateway's store."""

import asyncio

import pytest
from e2e.lsp_support import editor, gateway
from e2e.stored import stored
from lsprotocol import types

SOURCE = "def f(a):\n    x = 1\n\ndef g(b):\n    return \n"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_who_opted_in_is_asked_in_a_pause_and_the_answer_is_kept_with_their_own_times(tmp_path):
    events = tmp_path / "events.db"
    more = f'[telemetry]\nurl = "{events}"\n'
    with gateway(tmp_path, more=more, options=("--state-dir", tmp_path / "gateway")) as running:
        state = tmp_path / "state"
        given = {"askHowItFeels": True, "stateDir": str(state)}
        async with editor(tmp_path, "--gateway", running.url, options=given) as it:
            asked = asyncio.get_running_loop().create_future()

            def answer(params):
                asked.set_result(params)
                return types.MessageActionItem("Mostly")

            it.client.protocol.fm.features[types.WINDOW_SHOW_MESSAGE_REQUEST] = answer
            it.open(SOURCE)
            for _ in range(200):
                assert await it.suggestion(4, 11) is not None
            assert not asked.done()
            async with asyncio.timeout(300):
                question = await asked
            assert "instant" in question.message and [one.title for one in question.actions] == ["Yes", "Mostly", "No"]
            (row,) = await stored(events, "feel")
            assert row.answer == "mostly" and row.suggestions == 200 and 0 < row.p50_ms <= row.p95_ms
            assert (state / "telemetry/asked").exists()
