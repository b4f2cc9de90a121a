"""Choosing the private gateway's model from an editor, with a real language server, gateway and `foretype use` behind it."""

import asyncio
import json
from contextlib import asynccontextmanager

import psutil
import pytest
from backend.tiny_gguf import write_tiny_gguf
from e2e.lsp_support import DEADLINE_S, SOURCE, editor
from e2e.test_use import CONTROLS, SCRIPTED
from lsprotocol import types
from models.model_server import ModelServer, fills_holes, llama_cpp, serving
from pygls.exceptions import JsonRpcException

pytestmark = pytest.mark.slow  # whole processes

LIST, USE = "foretype.models.list", "foretype.models.use"
NOTHING_GOOD = "[model.min_mean_logprob]\nmid_line = 0.0\nline = 0.0\nblock = 0.0\n"


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "private.toml").write_text(SCRIPTED.format(decode_s=0.0, name="before") + NOTHING_GOOD)
    yield folder
    try:
        gateway = psutil.Process(json.loads((folder / "gateway.json").read_text())["pid"])
        gateway.terminate()
        gateway.wait(300)
    except psutil.NoSuchProcess:
        pass


def command(it, name, *arguments):
    return it.send("workspace/executeCommand", types.ExecuteCommandParams(name, list(arguments)))


@asynccontextmanager
async def at_work(tmp_path, state, **options):
    async with editor(tmp_path, "--state-dir", state, "--no-retrieval", **options) as it:
        it.open(SOURCE)
        yield it


async def until_model(it, model):
    async with asyncio.timeout(DEADLINE_S):
        while (status := await it.status())["model"] != model or status["state"] != "ready":  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)
    return status


@pytest.mark.timeout(240)
async def test_an_editor_lists_models_and_takes_one_while_its_user_types(tmp_path, state):
    tiny = write_tiny_gguf(tmp_path / "tiny-coder.gguf", controls=CONTROLS)
    with serving(ModelServer(llama_cpp("tiny-coder.gguf", model_path=str(tiny)), fills_holes)) as running:
        async with at_work(tmp_path, state, progress=True) as it:
            assert {LIST, USE} <= set(it.capabilities.execute_command_provider.commands)
            assert "no good model is configured" in (await it.status())["advice"]
            listed = await command(it, LIST)
            assert "qwen2.5-coder-0.5b" in [row["asked"] for row in listed["rows"]]
            taking = asyncio.ensure_future(command(it, USE, f"{running.root}/v1"))
            answered = 0
            while not taking.done():
                it.insert(1, 9, "a")
                async with asyncio.timeout(DEADLINE_S):
                    await it.ask(1, 10 + answered)  # an error would be raised here
                answered += 1
                await asyncio.sleep(0.02)
            done = await taking
            assert done["model"] == "tiny-coder" and done["canary"].startswith("3 of 3") and done["replaced"]
            status = await until_model(it, "tiny-coder")
            assert status["advice"] == ""
            assert answered > 10


@pytest.mark.timeout(240)
async def test_what_cannot_be_taken_is_one_sentence_and_suggestions_go_on(tmp_path, state):
    async with at_work(tmp_path, state) as it:
        with pytest.raises(JsonRpcException, match=r"'nope' is no model that is known; name one of"):
            await command(it, USE, "nope")
        with pytest.raises(JsonRpcException, match=r"'--list' is no model"):
            await command(it, USE, "--list")
        with pytest.raises(JsonRpcException, match=r"takes one name"):
            await command(it, USE)
        assert (await it.status())["model"] == "before"
        assert await it.suggestion(1, 9, kind=1) is not None


async def test_an_editor_where_nothing_may_be_written_says_so_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    async with editor(tmp_path, "--state-dir", tmp_path / "file" / "state", "--no-retrieval", ready=False) as it:
        it.open(SOURCE)
        with pytest.raises(JsonRpcException, match="cannot be written to") as refused:
            await command(it, USE, "shipped")
        assert "\n" not in str(refused.value.message)


async def test_who_asks_a_teams_gateway_is_told_whose_choice_it_is(tmp_path):
    async with editor(tmp_path, "--gateway", "ws://127.0.0.1:9/v1/stream", ready=False) as it:
        for name, arguments in ((LIST, ()), (USE, ("shipped",))):
            with pytest.raises(JsonRpcException, match="whose operator chooses the model"):
                await command(it, name, *arguments)


async def test_a_model_that_the_options_name_is_not_chosen_over(tmp_path):
    async with editor(tmp_path, "--model", tmp_path / "x.gguf", "--state-dir", tmp_path, ready=False) as it:
        with pytest.raises(JsonRpcException, match="the option `model` names a file; empty it"):
            await command(it, USE, "shipped")


@pytest.mark.timeout(240)
async def test_a_server_that_changes_its_model_under_our_feet_is_told_and_not_asked(tmp_path, state):
    tiny = write_tiny_gguf(tmp_path / "tiny-coder.gguf", controls=CONTROLS)
    with serving(ModelServer(llama_cpp("tiny-coder.gguf"), lambda prompt: "1")) as running:
        engine = f'[engine]\nname = "openai"\nmodel = "{running.root}/v1"\n'
        model = f'[model]\nname = "tiny-coder.gguf"\ntokenizer = "{tiny}"\n'
        (state / "private.toml").write_text(engine + model)
        listed = running.says["/v1/models"]["data"][0]
        async with at_work(tmp_path, state) as it:
            typed = 0

            async def type_until(state):
                nonlocal typed
                async with asyncio.timeout(DEADLINE_S):
                    while (status := await it.status())["state"] != state:
                        it.insert(1, 9, "a")
                        typed += 1
                        await it.ask(1, 9 + typed, kind=1)  # an error would be raised here
                        await asyncio.sleep(0.05)
                return status

            await it.ask(1, 9, kind=1)
            listed["id"] = "llama-3.gguf"
            status = await type_until("degraded")
            assert "has another model now" in status["detail"] and "`foretype use`" in status["detail"]
            listed["id"] = "tiny-coder.gguf"
            assert (await type_until("ready"))["model"] == "tiny-coder.gguf"
