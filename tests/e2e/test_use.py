"""`foretype use` as a command: real gateways, real files, and servers that stand in for those that people run."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from backend.tiny_gguf import write_tiny_gguf
from foretype_client.asking import ask, plan_at
from foretype_client.client import Client, ClientOptions, open_client
from foretype_client.private_gateway.finding import find_gateway
from foretype_client.private_gateway.starting import replace_gateway
from foretype_context.syntax.document import Document
from foretype_models.artifacts import locate
from foretype_models.use.catalogue import CATALOGUE
from models.file_server import FileServer
from models.file_server import serving as serving_file
from models.model_server import ModelServer, fills_holes, llama_cpp, serving
from waiting import until

pytestmark = pytest.mark.slow  # whole processes

TIMEOUT_S = 300
CONTROLS = (
    "<|endoftext|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|im_end|>",
)
"""Of Qwen2.5-Coder."""
SCRIPTED = '[engine]\nname = "scripted"\n[engine.options]\ndecode_s_per_token = {decode_s}\n[model]\nname = "{name}"\n'


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state directory; whatever gateway is registered there in the end is ended."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    yield folder
    try:
        pid = json.loads((folder / "gateway.json").read_text())["pid"]
        (folder / "gateway.json").unlink()  # nobody finds it any more: it ends by itself
        psutil.Process(pid).wait(300)
    except (FileNotFoundError, psutil.NoSuchProcess):
        pass


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny-coder.gguf", controls=CONTROLS)


def use(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("foretype")
    return subprocess.run(
        [program, "use", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, "COLUMNS": "80", **environment},
    )


def in_one(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def refused(*arguments: object, **environment: str) -> str:
    done = use(*arguments, **environment)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stdout
    return done.stderr


def own_catalogue(folder: Path, served: FileServer) -> Path:
    """The real one, in which the first model is a file of this machine."""
    text = CATALOGUE.read_text("utf-8")
    body = served.body
    text = text.replace("531_068_128", str(len(body)), 1).replace("494_032_768", str(len(body)), 1)
    text = re.sub(
        r'sha256 = "[0-9a-f]{64}"',
        f'sha256 = "{hashlib.sha256(body).hexdigest()}"\nurl = "{served.url}"',
        text,
        count=1,
    )
    (path := folder / "catalogue.toml").write_text(text)
    return path


@asynccontextmanager
async def typing(state: Path) -> AsyncIterator[Client]:
    async with open_client(ClientOptions(state_dir=state, local=False)) as client:
        await client.ready(60)
        yield client


async def complete(client: Client, uri: str = "file:///w/a.py") -> Any:
    assembler = await client.ready(60)
    snapshot = Document(uri, "def f(a):\n    x = \n", path="a.py", language="python").snapshot()
    plan, _ = plan_at(assembler, snapshot, 18)
    return await ask(client.session, plan, snapshot, 18, max_tokens=20)


# The private gateway changes hands


async def test_a_replaced_gateway_finishes_what_runs_and_ends(state: Path) -> None:
    profile = state / "private.toml"
    profile.write_text(SCRIPTED.format(decode_s=0.15, name="before"))
    async with typing(state) as client:
        record = state / "gateway.json"
        before = json.loads(record.read_text())
        former = psutil.Process(before["pid"])
        profile.write_text(SCRIPTED.format(decode_s=0.0, name="after"))
        answers: list[asyncio.Task[Any]] = []
        spanned: list[asyncio.Task[Any]] = []
        replacing = asyncio.ensure_future(replace_gateway(state, clock=time.monotonic))
        while client.session.connected and client.session.endpoint.token == before["token"]:
            answers.append(asyncio.ensure_future(complete(client, f"file:///w/{len(answers)}.py")))
            await asyncio.sleep(0.1)
            spanned = [one for one in answers if not one.done()]  # the former gateway writes them after it was replaced
        assert json.loads(record.read_text())["token"] != before["token"] and spanned
        for answer in await asyncio.gather(*answers):
            assert answer.raw.endswith("# scripted") and answer.done.finish == "stop"
        replaced = await replacing
        await until(lambda: client.session.profile is not None and client.session.profile.model == "after")
        await until(lambda: client.session.connected)
        assert (await complete(client)).raw
        await asyncio.to_thread(former.wait, 30)
        found = await find_gateway(state)
        assert found is not None and found.token == replaced.token


async def test_a_gateway_that_nobody_can_find_ends(state: Path) -> None:
    (state / "private.toml").write_text(SCRIPTED.format(decode_s=0.0, name="x"))
    async with typing(state):
        former = psutil.Process(json.loads((state / "gateway.json").read_text())["pid"])
    (state / "gateway.json").unlink()
    await asyncio.to_thread(former.wait, 30)


# One command


@pytest.mark.engine
@pytest.mark.timeout(240)
async def test_a_model_of_the_catalogue_is_fetched_tried_and_served_while_somebody_types(
    state: Path, tmp_path: Path
) -> None:
    (state / "private.toml").write_text(SCRIPTED.format(decode_s=0.0, name="before"))
    content = locate().path.read_bytes()
    first, second = len(content) // 3, len(content) // 4
    with serving_file(FileServer(content, breaks_after=[first, second])) as served:
        arguments = [
            "--catalogue",
            own_catalogue(tmp_path, served),
            "--folder",
            tmp_path / "models",
            "--state-dir",
            state,
        ]
        async with typing(state) as client:
            command = asyncio.create_task(
                asyncio.to_thread(use, "qwen2.5-coder-0.5b", *arguments, "--anyway", "--bench-s", "1")
            )
            answers, gaps = 0, 0
            while not command.done():
                if client.session.connected:
                    assert (await complete(client)).done is not None
                    answers += 1
                else:
                    gaps += 1
                await asyncio.sleep(0.05)
            done = command.result()
            assert done.returncode == 0, done.stderr
            await until(
                lambda: client.session.profile is not None and client.session.profile.model == "qwen2.5-coder-0.5b"
            )
            assert (await complete(client)).done.usage.generated_tokens > 0
    assert answers > 10
    assert [request.get("Range") for request in served.requests] == [
        None,
        f"bytes={first}-",
        f"bytes={first + second}-",
    ]
    said = in_one(done.stdout)
    assert "holes filled" in said and "tokens/s" in said and "have it at the next key" in said
    listed = use("--list", *arguments)
    assert re.search(r"^\* qwen2\.5-coder-0\.5b", listed.stdout, re.MULTILINE)
    back = use("shipped", *arguments)
    assert back.returncode == 0 and not (state / "private.toml").exists()


@pytest.mark.timeout(240)
def test_a_server_that_fills_holes_is_taken(state: Path, tiny: Path) -> None:
    with serving(ModelServer(llama_cpp("tiny-coder.gguf", model_path=str(tiny), context=4096), fills_holes)) as running:
        done = use(f"{running.root}/v1", "--state-dir", state, "--bench-s", "0.5", "--json")
        assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    last = events[-1]
    assert last["event"] == "done" and last["model"] == "tiny-coder" and last["canary"].startswith("3 of 3 holes")
    assert any("def subtract(a, b)" in prompt for prompt in running.prompts)
    assert 'name = "llama-cpp"' in (state / "private.toml").read_text()
    assert f'model = "{running.root}/v1"' in (state / "private.toml").read_text()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("prose", ["Sure! Here is the code:\n```python\nreturn a + b\n```\n", "a + b<|im_end|>\n"])
async def test_a_server_that_chats_is_refused_and_what_served_serves(state: Path, tiny: Path, prose: str) -> None:
    before = SCRIPTED.format(decode_s=0.0, name="before")
    (state / "private.toml").write_text(before)
    async with typing(state) as client:
        with serving(ModelServer(llama_cpp("tiny-coder.gguf", model_path=str(tiny)), lambda prompt: prose)) as running:
            said = await asyncio.to_thread(refused, f"{running.root}/v1", "--state-dir", state)
        assert re.search(
            r"tiny-coder does not serve: .*(answers in prose .*take the base model|writes the control token .* as text)",
            said,
        )
        assert (await complete(client)).raw and client.session.profile is not None
        assert client.session.profile.model == "before"
    assert (state / "private.toml").read_text() == before
    assert not [name for name in os.listdir(state) if name.startswith(".trying-")]


@pytest.mark.engine
@pytest.mark.timeout(240)
def test_the_grammar_that_is_named_is_served(state: Path) -> None:
    arguments = (locate().path, "--state-dir", state, "--bench-s", "0", "--anyway")
    assert "no-such" in refused(*arguments, "--grammar", "no-such")
    assert use(*arguments, "--grammar", "foretype-1").returncode == 0
    assert 'grammar = "foretype-1"' in (state / "private.toml").read_text()


@pytest.mark.timeout(240)
def test_weights_that_know_nothing_are_refused(state: Path, tiny: Path) -> None:
    (state / ".trying-killed").mkdir()
    said = refused(tiny, "--state-dir", state, "--bench-s", "0")
    assert re.search(r"tiny-coder (filled none of 3 easy holes|is asked in a way)", said)
    assert not [name for name in os.listdir(state) if name.startswith(".trying-")]


def test_without_a_name_it_proposes_and_does_nothing(state: Path, tmp_path: Path) -> None:
    done = use("--state-dir", state, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"now\s+shipped", done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert list(state.iterdir()) == []
    found = json.loads(use("--json", "--state-dir", state, "--folder", tmp_path).stdout)
    assert found["current"] == "shipped" and found["good"]
    assert {"qwen2.5-coder-0.5b", "shipped"} <= {row["asked"] for row in found["rows"]}


def test_two_at_a_time_wait_for_nobody(state: Path) -> None:
    import filelock

    with filelock.FileLock(state / "use.lock"):
        assert "another `foretype use` is at work" in refused("shipped", "--state-dir", state)


def test_a_choice_whose_file_has_gone_is_told_and_can_be_undone(state: Path, tiny: Path) -> None:
    shutil.copyfile(tiny, gone := state / "gone.gguf")
    (state / "private.toml").write_text(f'[engine]\nmodel = "{gone}"\n')
    gone.unlink()
    done = subprocess.run(
        [Path(sys.executable).with_name("foretype"), "complete", f"{__file__}:1:1", "--state-dir", str(state)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    assert re.search(
        r"error: engine.model: .*gone\.gguf: no such file; .*; or choose another model: `foretype use`\n$", done.stderr
    )
    undone = use("shipped", "--state-dir", state)
    assert undone.returncode == 0 and "from their next start on" in in_one(undone.stdout)
    assert "undoes it" not in undone.stdout, "there is nothing to undo"
