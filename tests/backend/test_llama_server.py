"""`foretype serve --engine llama-cpp` over llama.cpp's own server, the real thing: `make peer-env` builds it.

The models are small: ours, and some that answer every prompt with one text.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.test_gateway_process import serving
from backend.tiny_gguf import write_chain_gguf
from foretype_client.asking import ask, plan_at
from foretype_client.client import Client, ClientOptions, open_client
from foretype_context.grammars.grammar import grammar
from foretype_context.syntax.document import Document
from foretype_lab.errors import LlamaServerError
from foretype_lab.peer.llama_server import LlamaServer, find_llama_server
from foretype_models.artifacts import locate
from foretype_models.running_servers import probe
from foretype_wire.messages import Done, Usage


def missing() -> str:
    try:
        find_llama_server()
    except LlamaServerError as error:
        return str(error)
    return ""


MISSING = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

CONTROLS = tuple(sorted(grammar("qwen2.5-coder").controls()))
FILE = "".join(f"def scaled_{n}(value):\n    return value * {n}\n\n\n" for n in range(12))


@contextmanager
def llama_server(model: Path, *arguments: str, port: int = 0) -> Generator[LlamaServer]:
    """With two slots of 2,048 tokens, unless other arguments say otherwise."""
    given = arguments or ("-np", "2", "-c", "4096")
    with LlamaServer(model, threads=1, arguments=("--metrics", *given), port=port) as server:
        yield server


@asynccontextmanager
async def gateway(server: LlamaServer) -> AsyncGenerator[Client]:
    """A client of a gateway over the server."""
    async with AsyncExitStack() as stack:
        arguments = ("--engine", "llama-cpp", "--model", server.url, "--port", "0")
        _, url = await stack.enter_async_context(serving(*arguments))
        options = ClientOptions(gateway=f"{url.replace('http', 'ws')}/v1/stream", local=False)
        client = await stack.enter_async_context(open_client(options))
        await client.ready(60)
        yield client


async def asked(client: Client, name: str, text: str, *, tokens: int = 8) -> Any:
    assembler = await client.ready(60)
    snapshot = Document(f"file:///w/{name}", text, path=name, language="python").snapshot()
    plan, _ = plan_at(assembler, snapshot, len(text))
    return await ask(client.session, plan, snapshot, len(text), max_tokens=tokens)


async def slots(server: LlamaServer) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        return (await http.get(f"{server.url}/slots")).json()


async def written(server: LlamaServer) -> int:
    """Tokens that the server has generated."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        lines = (await http.get(f"{server.url}/metrics")).text.splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("llamacpp:tokens_predicted_total"))))


def chain(folder: Path, name: str, text: str, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    return write_chain_gguf(folder / f"{name}.gguf", text, controls=CONTROLS, **more)


async def test_the_prompts_of_two_documents_stay_cached_in_slots_of_their_own() -> None:
    with llama_server(locate().path) as server:
        async with gateway(server) as client:
            usage = dict[tuple[str, str], Usage]()
            for typed in ("def one(", "def one(value", "def one(value):\n"):
                for name, text in (("a.py", FILE), ("b.py", FILE.replace("scaled", "shifted"))):
                    usage[name, typed] = (await asked(client, name, text + typed)).done.usage
    for name in ("a.py", "b.py"):
        first, *later = [one for (named, _), one in usage.items() if named == name]
        assert first.cached_tokens < first.prompt_tokens / 10
        for one in later:
            assert one.prompt_tokens - one.cached_tokens <= 32, (name, one)
            assert one.cached_source == "engine"


async def test_a_cancelled_request_frees_its_slot(tmp_path: Path) -> None:
    endless = chain(tmp_path, "endless-coder-base", "abcdefgh", endless=True, layers=8, feed_forward=8192)
    with llama_server(endless, "-np", "1", "-c", "4096") as server:
        async with gateway(server) as client:
            before = await written(server)
            snapshot = Document("file:///w/a.py", "x = ", path="a.py", language="python").snapshot()
            texts = client.stream(snapshot, 4, max_tokens=1024)
            async for _ in texts:
                assert (await slots(server))[0]["is_processing"]
                break
            await texts.aclose()
            async with asyncio.timeout(60):
                while (await slots(server))[0]["is_processing"]:  # noqa: ASYNC110  it has no event for it
                    await asyncio.sleep(0.01)
            assert (await asked(client, "a.py", "x = ")).text.startswith("abcd")
            assert await written(server) - before < 900


def test_it_is_found_with_its_slots_and_the_context_of_each() -> None:
    with llama_server(locate().path) as server:
        (found,) = probe((1, int(server.url.rpartition(":")[2]), 2), limit_s=30)
    assert (found.kind, found.engine, found.slots, found.context_tokens) == ("llama.cpp", "llama-cpp", 2, 2048)
    assert found.model_path == str(locate().path)


async def test_more_documents_than_slots_are_all_answered(tmp_path: Path) -> None:
    with llama_server(chain(tmp_path, "coder-base", "abcdef"), "-np", "2", "-c", "4096") as server:
        async with gateway(server) as client:
            answers = await asyncio.gather(*(asked(client, f"{n}.py", f"x{n} = ") for n in range(6)))
    assert [one.text for one in answers] == ["abcdef"] * 6


async def test_prompts_stay_within_the_context_of_one_slot() -> None:
    with llama_server(locate().path, "-np", "2", "-c", "2048") as server:
        async with gateway(server) as client:
            answer = await asked(client, "a.py", FILE * 12 + "def one(")
    done: Done = answer.done
    assert 300 < done.usage.prompt_tokens <= 1024
