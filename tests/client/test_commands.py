"""The sub-commands against a real WebSocket server with a real (tiny) tokenizer; only the model's words are made up."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest
from client.wire_server import Behaviour, Peer, WireServer, answer
from context.tiny import raw
from foretype_client.commands.cli import app
from foretype_context.prompt.profile import MinMeanLogprob
from foretype_context.prompt.templates import grammar
from foretype_context.syntax.languages import syntax_of
from foretype_wire.messages import Complete, Delta, Done, Error, ErrorCode, Finish, Profile, RequestClass, Usage
from typer.testing import CliRunner

TOKENIZER = raw("qwen2", grammar("foretype-1").controls())
PROFILE = Profile(model="test", grammar="foretype-1", tokenizer_digest=blake2b(TOKENIZER, digest_size=16).hexdigest())
ASKED_ONLY = msgspec.structs.replace(PROFILE, min_mean_logprob=MinMeanLogprob(mid_line=0.0, line=0.0, block=0.0))
SOURCE = "import os\n\n\ndef add(a, b):\n    return \n\n\ndef last():\n    pass\n"


class Gateway:
    """A `WireServer` on a thread of its own, so that commands can run their own event loop."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = answer
        self.asked: list[Complete] = []
        self.url = ""
        self.server: WireServer
        self._ready: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Gateway:  # noqa: PYI034
        self._thread.start()
        self._ready.result(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async def behave(peer: Peer, message: Complete) -> None:
            self.asked.append(message)
            await self.behaviour(peer, message)

        async with WireServer(behave, profile=PROFILE) as server:
            server.tokenizer = TOKENIZER
            self.server = server
            self.url = server.url
            self._ready.set_result(None)
            await self._end.wait()


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    with Gateway() as gateway:
        monkeypatch.setenv("FORETYPE_GATEWAY", gateway.url)
        yield gateway


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "odd:name" / "module.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


class TestComplete:
    def test_the_suggestion_is_on_stdout_and_its_figures_are_on_stderr(self, gateway: Gateway, source: Path) -> None:
        async def write(peer: Peer, message: Complete) -> None:
            await peer.send(Delta(id=message.id, text="a + b", tokens=3))
            usage = Usage(prompt_tokens=40, cached_tokens=32, cached_source="engine", generated_tokens=3)
            await peer.send(Done(id=message.id, finish=Finish.END_OF_MIDDLE, usage=usage))

        gateway.behaviour = write
        result = run("complete", f"{source}:5:12")
        assert (result.exit_code, result.stdout) == (0, "a + b\n")
        assert "32 of 40 prompt tokens cached" in result.stderr
        (asked,) = gateway.asked
        assert asked.class_ is RequestClass.INTERACTIVE
        assert "".join(segment.text or "" for segment in asked.segments if segment.kind == "middle").endswith("return ")

    def test_json_has_the_keys_of_the_contract(self, gateway: Gateway, source: Path) -> None:
        result = run("complete", f"{source}:5:12", "--json")
        answer = json.loads(result.stdout)
        assert list(answer) == [
            "text",
            "request_id",
            "finish",
            "prompt_tokens",
            "cached_tokens",
            "cached_source",
            "timings_ms",
        ]
        assert (answer["finish"], answer["prompt_tokens"], answer["cached_tokens"]) == ("stop", 9, 4)
        assert answer["request_id"] == gateway.asked[0].id
        stages = {"debounce", "assemble", "network", "admit", "queue", "prefill", "decode_first", "stream", "finish"}
        assert set(answer["timings_ms"]) == stages | {"ttft"}
        assert answer["timings_ms"]["ttft"] > 0

    def test_columns_count_characters(self, gateway: Gateway, source: Path) -> None:
        source.write_text("s = '😀é' + \nrest = 1\n")
        assert run("complete", f"{source}:1:12").exit_code == 0
        (asked,) = gateway.asked
        assert [segment.text for segment in asked.segments if segment.kind == "middle"] == ["s = '😀é' + "]

    def test_a_refusal_is_one_line_and_exit_code_1(self, gateway: Gateway, source: Path) -> None:
        async def refuse(peer: Peer, message: Complete) -> None:
            await peer.send(Error(code=ErrorCode.OVERLOADED, id=message.id, retry_after_ms=50))

        gateway.behaviour = refuse
        result = run("complete", f"{source}:5:12")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "error: the gateway refused: overloaded; try again in 50 ms\n"

    def test_a_gateway_that_vanishes_is_one_line_and_exit_code_1(self, gateway: Gateway, source: Path) -> None:
        async def vanish(peer: Peer, message: Complete) -> None:
            peer.connection.transport.abort()

        gateway.behaviour = vanish
        result = run("complete", f"{source}:5:12")
        assert result.exit_code == 1
        assert result.stderr.startswith("error: the connection to the gateway was lost")


class TestExplain:
    def test_json_has_the_keys_of_the_contract_and_ranges_that_join(self, gateway: Gateway, source: Path) -> None:
        result = run("explain", f"{source}:5:12", "--json")
        explained = json.loads(result.stdout)
        assert {"profile", "layout", "budget_tokens", "prompt_tokens", "segments", "dropped", "timings_ms"} <= set(
            explained
        )
        segments = explained["segments"]
        assert all(
            set(segment) == {"kind", "scope", "source", "tokens", "start", "end", "cached"} for segment in segments
        )
        assert [segment["start"] for segment in segments] == [0, *(segment["end"] for segment in segments[:-1])]
        assert segments[-1]["end"] == explained["prompt_tokens"]
        assert all(segment["tokens"] == segment["end"] - segment["start"] for segment in segments)
        # The server says that four tokens are cached: those are the first four of the prompt.
        assert sum(segment["cached"] for segment in segments) == 4
        assert explained["cached_source"] == "engine"
        # The same per scope, most stable first.
        assert list(explained["scopes"]) == ["global", "repository", "file", "session"]
        for scope, one in explained["scopes"].items():
            own = [segment for segment in segments if segment["scope"] == scope]
            assert one == {name: sum(segment[name] for segment in own) for name in ("tokens", "cached")}
        assert explained["strategy"] == "default-1" and explained["notes"] == []
        (asked,) = gateway.asked
        assert (asked.class_, asked.max_tokens) == (RequestClass.SPECULATIVE, 1)

    def test_what_is_cached_is_null_when_the_gateway_does_not_tell(self, gateway: Gateway, source: Path) -> None:
        async def refuse(peer: Peer, message: Complete) -> None:
            await peer.send(Error(code=ErrorCode.OVERLOADED, id=message.id))

        gateway.behaviour = refuse
        explained = json.loads(run("explain", f"{source}:5:12", "--json").stdout)
        assert {segment["cached"] for segment in explained["segments"]} == {None}
        assert explained["cached_source"] == "unknown: overloaded"
        assert {one["cached"] for one in explained["scopes"].values()} == {None}

    def test_the_table_names_every_segment(self, gateway: Gateway, source: Path) -> None:
        result = run("explain", f"{source}:5:12")
        assert result.exit_code == 0
        assert all(kind in result.stdout for kind in ("path", "prefix", "suffix", "middle", "nothing was dropped"))
        assert "cached by scope: file " in result.stdout and "strategy default-1" in result.stdout


def git_repository(root: Path) -> Path:
    (root / "shop").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "shop" / "cart.py").write_text("class Basket:\n    def grand_total(self):\n        return 1\n")
    path = root / "pay.py"
    path.write_text("from shop.cart import Basket\n\nbasket = Basket()\ntotal = basket.\n")
    return path


class TestOtherFiles:
    def test_explain_shows_what_another_file_defines_with_its_source(
        self, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("explain._INDEX_WAIT_S", "gathering._ASK_S"):  # a busy machine takes longer than a user would wait
            monkeypatch.setattr(f"foretype_client.commands.{name}", 60.0)
        place = f"{git_repository(tmp_path / 'repository')}:4:16"
        explained = json.loads(run("explain", place, "--json").stdout)
        others = [segment["source"] for segment in explained["segments"] if segment["kind"] == "file"]
        assert {other["path"] for other in others} == {"shop/cart.py"}, (explained["dropped"], explained["sources"])
        assert "imports" in [other["document"] for other in others]
        (note,) = [note for note in explained["sources"] if note["name"] == "retrieval"]
        assert note["found"] >= 1 and "definitions" in note["reason"]
        assert "retrieval: " in run("explain", place).stdout

    def test_retrieval_can_be_left_out_and_says_so(self, gateway: Gateway, tmp_path: Path) -> None:
        place = f"{git_repository(tmp_path / 'repository')}:4:16"
        explained = json.loads(run("explain", place, "--no-retrieval", "--json").stdout)
        assert all(segment["kind"] != "file" for segment in explained["segments"])
        assert [note["reason"] for note in explained["sources"]] == ["switched off"]

    def test_without_a_repository_no_folder_is_read(self, gateway: Gateway, source: Path) -> None:
        explained = json.loads(run("explain", f"{source}:5:12", "--json").stdout)
        assert "lies in no git repository" in explained["sources"][0]["reason"]

    def test_the_prompt_of_complete_holds_it_too(self, gateway: Gateway, tmp_path: Path) -> None:
        assert run("complete", f"{git_repository(tmp_path / 'repository')}:4:16", "--json").exit_code == 0
        (asked,) = gateway.asked
        assert any("grand_total" in (segment.text or "") for segment in asked.segments)


class TestBadInput:
    @pytest.mark.parametrize("command", ["complete", "explain"])
    @pytest.mark.parametrize(
        ("place", "message"),
        [
            ("{file}:99:1", "line 99 is outside .*module.py: its lines are 1 to 10"),
            ("{file}:0:1", "lines are 1 to 10"),
            ("{file}:5:13", "column 13 is outside line 5 of .*: its columns are 1 to 12"),
            ("{file}:5:0", "columns are 1 to 12"),
            ("{file}:5", "is not FILE:LINE:COL"),
            ("{file}:five:1", "is not FILE:LINE:COL"),
            ("{file}:x:1", ":x:1' is not FILE:LINE:COL"),  # no emoji
            ("{file}:²:1", "is not FILE:LINE:COL"),
            (":1:1", "is not FILE:LINE:COL"),
            ("{file}.missing:1:1", "no such file"),
            ("{folder}:1:1", "is a folder"),
        ],
    )
    def test_a_place_that_is_not_there_is_named(
        self, command: str, place: str, message: str, source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FORETYPE_GATEWAY", "ws://127.0.0.1:9/v1/stream")
        result = run(command, place.format(file=source, folder=source.parent))
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")
        assert re.search(message, result.stderr)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"\x7fELF\0\0\0\0" * 20, "is a binary file"),
            (b"x = 1\ny = '\xff'\n", "is not UTF-8: byte 12 is 0xff"),
            (b"x" * 50_000_000, "is 50,000,000 bytes"),
            (b"-----BEGIN PRIVATE KEY-----\nabc\n", "holds a private key"),
        ],
        ids=["binary", "latin-1", "50 MB", "key"],
    )
    def test_a_file_that_cannot_be_completed_is_refused(self, content: bytes, message: str, source: Path) -> None:
        source.write_bytes(content)
        result = run("complete", f"{source}:1:1", "--gateway", "ws://127.0.0.1:9/v1/stream")
        assert result.exit_code == 2
        assert message in result.stderr

    def test_an_unreachable_gateway_is_one_line(self, source: Path, gateway: Gateway) -> None:
        result = run("complete", f"{source}:5:12", "--gateway", "ws://127.0.0.1:9/v1/stream")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: the gateway cannot be reached")
        assert "Traceback" not in result.stderr

    def test_a_url_and_a_model_that_cannot_be_used_are_named(self, source: Path, gateway: Gateway) -> None:
        result = run("complete", f"{source}:5:12", "--gateway", "http://h")
        assert (result.exit_code, "looks like ws://" in result.stderr) == (2, True)
        result = run("complete", f"{source}:5:12", "--model", "no-such.gguf")
        assert (result.exit_code, "no such model file" in result.stderr) == (2, True)

    def test_an_empty_file_is_completed_at_its_only_place(self, source: Path, gateway: Gateway) -> None:
        source.write_text("")
        assert run("complete", f"{source}:1:1").exit_code == 0
        assert "columns are 1 to 1" in run("complete", f"{source}:1:2").stderr

    def test_mixed_line_ends_and_control_tokens_are_only_text(self, source: Path, gateway: Gateway) -> None:
        source.write_bytes(b"a = 1\r\nb = '<|fim_middle|>'\nc = 3\r\n")
        assert run("complete", f"{source}:2:21").exit_code == 0
        assert "columns are 1 to 6" in run("complete", f"{source}:1:9").stderr
        asked = gateway.asked[0]
        assert [segment.text for segment in asked.segments if segment.kind == "middle"] == ["b = '<|fim_middle|>'"]


class TestDemo:
    def test_without_a_terminal_it_prints_progress_and_figures(
        self, gateway: Gateway, source: Path, tmp_path: Path
    ) -> None:
        source.write_text("import os\n\n\ndef add(a, b):\n    return a + b\n\n\nlast = 1\n")

        async def write(peer: Peer, message: Complete) -> None:
            middle = "".join(segment.text or "" for segment in message.segments if segment.kind == "middle")
            if middle == "    re":
                await peer.send(Delta(id=message.id, text="turn a + b", tokens=3, logprob=-0.1))
            await peer.send(Done(id=message.id, finish=Finish.END_OF_MIDDLE))

        gateway.behaviour = write
        picture = tmp_path / "demo.svg"
        result = run("demo", source, "--speed", "0", "--keys", "60", "--svg", picture)
        assert result.exit_code == 0, result.output
        assert "Tab   turn a + b" in result.stdout
        assert "accepted" in result.stdout and "1 times, 10 of" in result.stdout
        svg = picture.read_text()
        assert svg.startswith("<svg") and "turn" in svg

    def test_it_types_with_the_settings_of_an_editor_and_says_how_many_keys_that_saves(
        self, gateway: Gateway, source: Path
    ) -> None:
        line = "    total = compute(first, second, third)\n"
        source.write_text(f"{line * 4}\ndef last(first, second, third):\n{line * 4}".replace("    total", "total", 4))
        gateway.server.profile = ASKED_ONLY
        result = run("demo", source, "--speed", "0", "--keys", "200")
        assert result.exit_code == 0, result.output
        assert "network" not in result.stdout, "a model that is right too seldom says nothing unasked"
        saved = re.search(r"(\d+) instead of (\d+), (\d+)% saved", result.stdout)
        assert saved is not None and int(saved[1]) < int(saved[2]) and int(saved[3]) > 20
        unsure = run("demo", source, "--speed", "0", "--keys", "12", "--unsure")
        assert unsure.exit_code == 0 and "network" in unsure.stdout, unsure.output

    def test_a_file_that_repeats_nothing_beside_a_model_that_must_be_asked_is_no_fault(
        self, gateway: Gateway, source: Path
    ) -> None:
        gateway.server.profile = ASKED_ONLY
        source.write_text("a = 1\n")
        result = run("demo", source, "--speed", "0", "--keys", "3")
        assert result.exit_code == 0 and "`--unsure` shows all" in result.stdout

    def test_with_nothing_to_show_it_fails_and_names_the_doctor(self, gateway: Gateway, source: Path) -> None:
        async def nothing(peer: Peer, message: Complete) -> None:
            await peer.send(Done(id=message.id, finish=Finish.END_OF_MIDDLE))

        gateway.behaviour = nothing
        source.write_text("a = 1\n")
        result = run("demo", source, "--speed", "0", "--keys", "3")
        assert result.exit_code == 1
        assert "foretype doctor" in result.stdout

    def test_an_empty_file_and_a_missing_one_are_refused(self, gateway: Gateway, source: Path) -> None:
        source.write_text(" \n")
        assert "nothing to type" in run("demo", source).stderr
        assert "no such file" in run("demo", source.with_name("missing")).stderr


class TestDoctor:
    def test_everything_is_looked_at_and_each_fault_has_a_remedy(self, gateway: Gateway) -> None:
        async def write(peer: Peer, message: Complete) -> None:
            await peer.send(Delta(id=message.id, text="a + b"))
            await peer.send(Done(id=message.id, finish=Finish.END_OF_MIDDLE))

        gateway.behaviour = write
        result = run("doctor", "--json")
        assert result.exit_code == 0, result.output
        report = json.loads(result.stdout)
        findings = {finding["name"]: finding for finding in report["findings"]}
        assert {"versions", "extra lsp", "gateway", "engine", "tokenizer", "grammar", "cache directory"} <= set(
            findings
        )
        assert re.fullmatch(r"return 'a \+ b', first text after \d+ ms", findings["grammar"]["detail"])
        assert all(finding["remedy"] for finding in report["findings"] if finding["status"] != "ok")

    def test_languages_whose_grammar_wheel_is_missing_are_listed(
        self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for wheel in ("tree_sitter_go", "tree_sitter_typescript"):
            monkeypatch.setitem(sys.modules, wheel, None)  # what an import of something not installed sees
        syntax_of.cache_clear()
        try:
            report = json.loads(run("doctor", "--json").stdout)
        finally:
            syntax_of.cache_clear()
        found = {finding["name"]: finding for finding in report["findings"]}["languages"]
        assert found["status"] == "warn"
        assert found["detail"].startswith("no grammar for typescript, typescriptreact, go:")
        assert "missing: tree-sitter-go, tree-sitter-typescript" in found["detail"]

    @pytest.mark.parametrize("written", ["42", "", "return return"])
    def test_a_weak_model_is_a_warning_and_not_a_fault(self, gateway: Gateway, written: str) -> None:
        async def write(peer: Peer, message: Complete) -> None:
            await peer.send(Delta(id=message.id, text=written))
            await peer.send(Done(id=message.id, finish=Finish.END_OF_MIDDLE))

        gateway.behaviour = write
        result = run("doctor", "--json")
        assert result.exit_code == 0
        report = json.loads(result.stdout)
        found = {finding["name"]: finding for finding in report["findings"]}["grammar"]
        assert (report["status"], found["status"]) == ("warn", "warn")
        assert found["remedy"]

    def test_a_wrong_template_fails(self, gateway: Gateway) -> None:
        async def write(peer: Peer, message: Complete) -> None:
            await peer.send(Delta(id=message.id, text="a + b<|fim_suffix|>"))
            await peer.send(Done(id=message.id, finish=Finish.LENGTH))

        gateway.behaviour = write
        result = run("doctor")
        assert result.exit_code == 1
        assert "the control token <|fim_suffix|> came out as text" in result.stdout

    def test_no_gateway_is_a_finding_and_not_an_error(self, gateway: Gateway) -> None:
        result = run("doctor", "--json", "--gateway", "ws://127.0.0.1:9/v1/stream")
        assert result.exit_code == 1
        findings = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
        assert findings["gateway"]["status"] == "fail"
        assert "serve" in findings["gateway"]["remedy"]
