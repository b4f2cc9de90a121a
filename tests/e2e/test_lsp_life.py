"""From start to end, and everything that can go away in between."""

import asyncio
import sys

import pytest
from e2e.lsp_support import DEADLINE_S, GatewayProcess, editor, gateway, raw_editor

pytestmark = pytest.mark.slow  # whole processes, many of them killed

SOURCE = "def f(a):\n    x = 1\n\ndef g(b):\n    return \n"
NOWHERE = ("--gateway", "ws://127.0.0.1:9/v1/stream")


async def test_initialize_advertises_and_shutdown_and_exit_end_with_zero(tmp_path):
    async with raw_editor(tmp_path, *NOWHERE) as it:
        assert it.answers(0)[0]["result"]["capabilities"]["inlineCompletionProvider"] == {}
        it.send(id=1, method="shutdown")
        assert (await it.answer(1))["result"] is None
        it.send(method="exit")
        assert await it.ended() == 0


async def test_it_ends_when_the_editor_closes_the_pipe(tmp_path):
    async with raw_editor(tmp_path, *NOWHERE) as it:
        it.process.stdin.close()
        assert await it.ended() == 1


async def test_it_ends_when_the_editor_is_gone_although_the_pipe_stays_open(tmp_path):
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
    async with raw_editor(tmp_path, *NOWHERE, process_id=parent.pid) as it:
        parent.kill()
        await parent.wait()
        assert await it.ended() == 1


async def test_a_process_id_from_another_name_space_ends_nothing(tmp_path):
    async with raw_editor(tmp_path, *NOWHERE, process_id=2**22 + 1) as it:
        it.send(id=1, method="foretype/status")
        assert (await it.answer(1))["result"]["version"]


async def test_the_log_never_holds_source(tmp_path):
    with gateway(tmp_path) as served:
        async with editor(tmp_path, "--gateway", served.url) as it:
            it.open("hush_hush = 1\nreturn hush_")
            assert await it.suggestion(1, 12) is not None
            it.insert(1, 12, "hush")
            await it.send("foretype/status")
    log = (tmp_path / "lsp.log").read_text()
    assert "hush" not in log
    assert "INFO" in log


async def test_a_killed_gateway_is_silent_and_coming_back_is_seen(tmp_path):
    first = GatewayProcess(tmp_path, prefill_s=10.0)
    async with editor(tmp_path, "--gateway", first.url) as it:
        it.open(SOURCE)
        request = it.ask(4, 11)
        await it.until_requests(1)
        first.kill()
        assert not (await asyncio.wait_for(request, DEADLINE_S)).items
        status = await it.until("degraded")
        assert status["detail"]
        assert await it.suggestion(4, 11) is None
        with gateway(tmp_path, port=first.port):
            await it.until("ready")
            assert (await it.suggestion(4, 11)).insert_text == "return return  # scripted"
        assert it.client.messages == []


async def test_another_gateway_can_be_chosen_while_running(tmp_path):
    with gateway(tmp_path) as served:
        async with editor(tmp_path, options={"gatewayUrl": "ws://127.0.0.1:9/v1/stream"}, ready=False) as it:
            await it.until("degraded")
            it.open(SOURCE)
            it.configure(gatewayUrl=served.url)
            await it.until("ready")
            assert (await it.suggestion(4, 11)).insert_text == "return return  # scripted"


async def test_a_wrong_token_is_named_in_the_status_and_the_right_one_works(tmp_path):
    token = tmp_path / "token"
    token.write_text("a-token-that-is-long-enough\n")
    with gateway(tmp_path, options=("--token-file", str(token))) as served:
        async with editor(tmp_path, "--gateway", served.url, options={"token": "wrong"}, ready=False) as it:
            assert "token" in (await it.until("degraded"))["detail"]
            assert it.client.messages == []
        async with editor(tmp_path, "--gateway", served.url, "--token-file", str(token)) as it:
            it.open(SOURCE)
            assert await it.suggestion(4, 11) is not None


async def test_a_token_file_that_cannot_be_read_is_a_problem_and_no_end(tmp_path):
    with gateway(tmp_path) as served:
        async with editor(tmp_path, "--gateway", served.url, "--token-file", str(tmp_path / "none")) as it:
            assert "tokenFile" in (await it.status())["problems"][0]
            assert "tokenFile" in it.client.log_messages[0].message
