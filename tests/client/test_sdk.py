"""The public face of the client: its names and their shapes, its page, and the page's examples at work."""

import asyncio
import inspect
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from pathlib import Path

import foretype_client
import pytest
from client.test_session_client import server_with_tokenizer
from foretype_client import ClientOptions, Document, FlowOptions, RequestRefusedError, Snapshot, Snippet, open_client
from foretype_client.private_gateway.finding import find_gateway
from foretype_wire.messages import Cancel, Complete, Delta, ErrorCode
from foretype_wire.messages import Error as Refusal

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"

EXPORTS = {
    "Client": {
        "ready": "(self, timeout_s: 'float' = 60.0) -> 'Assembler'",
        "edit": "(self, document: 'Document') -> 'OpenDocument'",
        "status": "(self) -> 'FlowStatus'",
        "explain": "(self, suggestion: 'Suggestion') -> 'dict[str, Any]'",
        "stream": "(self, snapshot: 'Snapshot', offset: 'int', *, snippets: 'Sequence[Snippet]' = (), "
        "max_tokens: 'int | None' = None) -> 'AsyncGenerator[str]'",
    },
    "ClientOptions": {},
    "Document": {
        "__init__": "(self, uri: 'str', text: 'str', *, language: 'str' = '', path: 'str' = '', version: 'int' = 0) -> 'None'",
        "snapshot": "(self) -> 'Snapshot'",
    },
    "FlowOptions": {},
    "ForetypeError": {},
    "GatewayGoneError": {},
    "GatewayStartError": {},
    "Location": {"__init__": "(self, path: 'Path', line: 'int', column: 'int') -> None"},
    "OpenDocument": {
        "edit": "(self, start: 'int', end: 'int', text: 'str') -> 'int'",
        "suggest": "(self, offset: 'int', *, automatic: 'bool' = False) -> 'Suggestion | None'",
        "shown": "(self, suggestion: 'Suggestion') -> 'None'",
        "accept": "(self, suggestion: 'Suggestion', offset: 'int') -> 'int'",
    },
    "RequestRefusedError": {},
    "Snapshot": {},
    "Snippet": {},
    "SnippetSource": {
        "snippets": "(self, snapshot: 'Snapshot', offset: 'int', *, limit: 'int') -> 'Sequence[Snippet]'"
    },
    "Suggestion": {},
    "open_client": {
        "": "(options: 'ClientOptions | None' = None, *, sources: 'Sequence[SnippetSource]' = (), clock: 'Clock' = "
        "<built-in function monotonic>, rng: 'random.Random | None' = None, tracing: 'Tracing | None' = None) -> "
        "'AsyncGenerator[Client]'",
    },
    "open_location": {"": "(location: 'Location') -> 'tuple[Snapshot, int]'"},
}
"""What others build on: a change here is a change of theirs."""


def test_these_names_are_exported_with_these_signatures():
    assert set(foretype_client.__all__) == set(EXPORTS)
    for name, signatures in EXPORTS.items():
        one = getattr(foretype_client, name)
        for method, signature in signatures.items():
            assert str(inspect.signature(getattr(one, method) if method else one)) == signature, f"{name}.{method}"


def test_a_name_is_imported_when_it_is_asked_for():
    code = "import sys, foretype_client; print(len([one for one in sys.modules if one.startswith('foretype_')]))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        foretype_client.Cleint  # noqa: B018 - asking is what is tested


@pytest.mark.slow
def test_every_public_type_of_the_client_is_known():
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "pyright", "--verifytypes", "foretype_client", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=100)
    said = json.loads(done.stdout)["typeCompleteness"]
    assert [one["name"] for one in said["symbols"] if not one["isTypeKnown"]] == []
    assert said["completenessScore"] == 1 and len(said["symbols"]) > 1000


def test_the_page_shows_the_examples_and_names_every_export():
    page = (ROOT / "docs" / "sdk.md").read_text("utf-8")
    shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert sorted(shown) == sorted(path.read_text("utf-8") for path in EXAMPLES.glob("*.py"))
    table = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    assert [name for name in EXPORTS if not re.search(rf"`{name}\b", table)] == []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Folders of a user's own; the private gateway that an example starts there serves the others, and ends behind them."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "state" / "foretype").mkdir(parents=True)
    # A scripted engine answers, slowly enough to be seen streaming: what random weights say may be nothing to show.
    (folder / "state" / "foretype" / "private.toml").write_text(
        '[engine]\nname = "scripted"\n[engine.options]\ndecode_s_per_token = 0.05\n'
        "[model]\ndrop_broken = false\n[model.stop]\nleast_chance = 0\n"
        "[model.min_mean_logprob]\nmid_line = -100\nline = -100\nblock = -100\n"
    )
    home = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
    (code := folder / "first.py").write_text("x = 1\n")
    example("stream", home, str(code), "1", "1")
    yield home
    if (record := asyncio.run(find_gateway(folder / "state" / "foretype"))) is not None:
        os.kill(record.pid, signal.SIGTERM)


def example(name: str, home: dict[str, str], *arguments: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **home}, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.engine
@pytest.mark.timeout(120)
def test_the_example_of_a_place_in_a_file_streams(home: dict[str, str], tmp_path: Path):
    code = tmp_path / "fibonacci.py"
    code.write_text("def fibonacci(n):\n    if n < 2:\n        return n\n    ")
    lines = example("stream", home, str(code), "4", "5")
    assert len(lines) > 1 and all(len(line) > 2 for line in lines)


@pytest.mark.engine
@pytest.mark.timeout(120)
def test_the_example_of_a_session_overtakes_cancels_and_types_through(home: dict[str, str]):
    lines = example("session", home)
    assert lines[:3] == ["overtaken: None", "cancelled: CancelledError", "typed through: True True"]
    assert lines[-1].startswith("    r")


@pytest.mark.engine
@pytest.mark.timeout(120)
def test_the_example_of_a_source_puts_its_snippet_into_the_prompt(home: dict[str, str]):
    assert any(line.startswith("file house/money.py ") for line in example("snippets", home))


def test_an_example_says_what_is_wrong_with_a_place(tmp_path: Path):
    command = [sys.executable, str(EXAMPLES / "stream.py"), str(tmp_path / "nothing.py"), "1", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 1 and done.stderr.startswith("no completion: no such file")


SNAPSHOT = Document("file:///a.py", "def add(a, b):\n    ", path="a.py").snapshot()


async def test_a_stream_that_is_left_stops_the_engine(tmp_path: Path):
    async with server_with_tokenizer() as server:
        server.behaviour = lambda peer, message: peer.send(Delta(id=message.id, text="if a:\n        ", tokens=4))
        async with open_client(ClientOptions(gateway=server.url, cache_dir=tmp_path)) as client:
            async with aclosing(client.stream(SNAPSHOT, len(SNAPSHOT.text))) as texts:
                assert await anext(texts) == "if a:"
            (asked,), (left,) = await server.wait_for(Complete), await server.wait_for(Cancel)
        assert isinstance(asked, Complete) and isinstance(left, Cancel) and asked.id == left.id


async def test_a_stream_ends_with_the_whole_suggestion_and_raises_what_the_gateway_refuses(tmp_path: Path):
    async with server_with_tokenizer() as server:
        async with open_client(ClientOptions(gateway=server.url, cache_dir=tmp_path)) as client:
            texts = [text async for text in client.stream(SNAPSHOT, len(SNAPSHOT.text), max_tokens=7)]
            (asked,) = await server.wait_for(Complete)
            server.behaviour = lambda peer, message: peer.send(Refusal(id=message.id, code=ErrorCode.OVERLOADED))
            with pytest.raises(RequestRefusedError, match="overloaded"):
                await anext(client.stream(SNAPSHOT, len(SNAPSHOT.text)))
        assert texts[-1] == "return a + b" and texts == sorted(set(texts), key=len)
        assert isinstance(asked, Complete) and asked.max_tokens == 7


class Conventions:
    name = "conventions"

    def __init__(self) -> None:
        self.heard: list[str] = []

    def opened(self, uri: str, text: str) -> None:
        self.heard.append(uri)

    def snippets(self, snapshot: Snapshot, offset: int, *, limit: int) -> Sequence[Snippet]:
        return [Snippet(path="b.py", text="def sum_of(a, b): ...\n", source_name=self.name)]

    def close(self) -> None:
        self.heard.append("closed")


async def test_a_source_of_ones_own_hears_of_documents_is_asked_and_is_closed(tmp_path: Path):
    source = Conventions()
    async with server_with_tokenizer() as server:
        options = ClientOptions(gateway=server.url, cache_dir=tmp_path, local=False, flow=FlowOptions(snippets_ms=5000))
        async with open_client(options, sources=[source]) as client:
            await client.ready()
            with client.edit(Document("file:///a.py", SNAPSHOT.text, path="a.py")) as document:
                suggestion = await document.suggest(len(document.text))
                assert suggestion is not None
                here = document.accept(suggestion, len(document.text))
                assert document.text == f"{SNAPSHOT.text}return a + b" and here == len(document.text)
            (asked,) = await server.wait_for(Complete)
            assert isinstance(asked, Complete)
            assert any("sum_of" in text for text in server.peers[0].prompts[asked.id])
    assert source.heard == ["file:///a.py", "closed"]
