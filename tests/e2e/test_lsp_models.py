"""Choosing the private gateway's model from an editor, with a real language server, gateway and `foretype use` behind it."""

import asyncio
import json
import os
import subprocess
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import NamedTuple

import psutil
import pytest
from backend.tiny_gguf import write_tiny_gguf
from e2e.lsp_support import DEADLINE_S, SOURCE, editor
from e2e.test_use import CONTROLS, SCRIPTED, own_catalogue
from lsprotocol import types
from models.file_server import FileServer
from models.file_server import serving as serving_file
from models.model_server import ModelServer, fills_holes, llama_cpp, ollama, serving
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


@pytest.mark.timeout(400)
async def test_every_server_and_file_that_does_not_fit_is_one_sentence_and_suggestions_go_on(
    tmp_path, state, monkeypatch
):
    lame = write_tiny_gguf(tmp_path / "lame.gguf", controls=[one for one in CONTROLS if one != "<|fim_middle|>"])
    tiny = write_tiny_gguf(tmp_path / "tiny-coder.gguf", controls=CONTROLS)
    listed = ollama("llama3:latest", "qwen2.5-coder:7b-instruct")
    talker = ModelServer(llama_cpp("tiny-coder.gguf", model_path=str(tiny)), lambda _: "Sure! Here is the code:\n")
    with serving(ModelServer(listed)) as running, serving(talker) as talks:
        monkeypatch.setenv("OLLAMA_HOST", running.root)
        troubles = {
            "ollama:starcoder2": r"has no model starcoder2 .*get it with `ollama pull starcoder2`",
            "ollama:qwen2.5-coder:7b-instruct": r"trained to chat",
            f"{talks.root}/v1": r"answers in prose .*take the base model",
            str(lame): r"looks like qwen2\.5-coder but lacks <\|fim_middle\|>",
            str(tmp_path / "gone.gguf"): r"gone\.gguf",
            "http://127.0.0.1:9/v1": r"127\.0\.0\.1:9",
        }
        async with at_work(tmp_path, state) as it:
            for number, (name, said) in enumerate(troubles.items()):
                with pytest.raises(JsonRpcException, match=said) as refused:
                    await command(it, USE, name)
                assert "\n" not in str(refused.value.message), name
                assert (await it.status())["model"] == "before", name
                it.insert(1, 9, "a")
                assert await it.suggestion(1, 10 + number, kind=1) is not None, name


async def test_an_editor_where_nothing_may_be_written_says_so_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    async with editor(tmp_path, "--state-dir", tmp_path / "file" / "state", "--no-retrieval", ready=False) as it:
        it.open(SOURCE)
        with pytest.raises(JsonRpcException, match="cannot be written to") as refused:
            await command(it, USE, "shipped")
        assert "\n" not in str(refused.value.message)


class Trouble(NamedTuple):
    """What goes wrong with a download: where from, where to, how large, and the sentence that says so."""

    said: str
    body: bytes = b"GGUF" + bytes(3_000_000)
    url: str = ""
    content_type: str = "application/octet-stream"
    breaks_after: tuple[int, ...] = ()
    announced_bytes: int = 0
    data: str = "data"


TROUBLES = {
    "no network": Trouble(r"127\.0\.0\.1.* cannot be reached.*check the network", url="http://127.0.0.1:9/file.gguf"),
    "a page to log in": Trouble(
        "a web page came in place of the file", b"<html>Welcome</html>", content_type="text/html"
    ),
    "half a file": Trouble(
        r"cannot be reached.*stay, and the next attempt goes on", breaks_after=(1_000_000, *[0] * 20)
    ),
    "too large for memory": Trouble("take a smaller one", announced_bytes=900_000_000_000),
    "a full disk": Trouble("MB free and .* needs .*; make room", data="small"),
    "nothing may be written": Trouble("cannot be written to", data="file/data"),
}


@contextmanager
def small_disk(folder):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a full disk needs a user who may mount one")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
async def test_a_download_that_fails_is_one_sentence_in_the_editor_and_suggestions_go_on(
    trouble, tmp_path, state, monkeypatch
):
    (tmp_path / "file").write_text("")
    server = FileServer(trouble.body, content_type=trouble.content_type, breaks_after=list(trouble.breaks_after))
    with serving_file(server), small_disk(tmp_path / "small") if trouble.data == "small" else nullcontext():
        text = own_catalogue(tmp_path, server).read_text()
        text = text.replace(server.url, trouble.url or server.url)
        text = text.replace(f"bytes = {len(server.body)}", f"bytes = {trouble.announced_bytes or len(server.body)}", 1)
        (tmp_path / "catalogue.toml").write_text(text)
        monkeypatch.setenv("FORETYPE_CATALOGUE", str(tmp_path / "catalogue.toml"))
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / trouble.data))
        monkeypatch.setenv("NO_PROXY", "*")
        async with at_work(tmp_path, state) as it:
            with pytest.raises(JsonRpcException, match=trouble.said) as refused:
                await command(it, USE, "qwen2.5-coder-0.5b")
            assert "\n" not in str(refused.value.message)
            assert (await it.status())["model"] == "before"
            assert await it.suggestion(1, 9, kind=1) is not None


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
