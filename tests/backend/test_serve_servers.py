"""`foretype serve --engine …` over stand-ins of servers: the whole way from a client's text to what the server is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.model_servers import LlamaCpp, LmStudio, Ollama, OpenAiServer, running
from backend.replica import Replica
from backend.test_gateway_process import refused, serving
from backend.tiny_gguf import byte_level_tokens, write_tiny_gguf
from backend.world import TOKENIZER, TOKENIZER_PATH
from foretype_backend.config.load import load_config
from foretype_backend.errors import ConfigError
from foretype_backend.start import running_server
from foretype_backend.start.check import check_file
from foretype_backend.start.cli import tell_of_servers
from foretype_context.grammars.grammar import grammar
from foretype_context.tokens.tokenizer import tokenizer_from_bytes
from foretype_models import running_servers
from foretype_models.gguf_tokenizer import tokenizer_of

pytestmark = pytest.mark.slow  # whole processes

QWEN = grammar("qwen2.5-coder")
CONTROLS = tuple(sorted(QWEN.controls()))
FILE = "x = '<|fim_middle|>'\n"


def metadata(**more: Any) -> dict[str, Any]:
    """What `/api/show {verbose:true}` says of a small model with Qwen's control tokens."""
    tokens, merges = byte_level_tokens(700, CONTROLS)
    return {
        "general.architecture": "qwen2",
        "qwen2.context_length": 4096,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [3] * len(CONTROLS) + [1] * (len(tokens) - len(CONTROLS)),
        "tokenizer.ggml.add_bos_token": False,
    } | more


async def completed(url: str, prompt: str = FILE, suffix: str = ")\n") -> str:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        answer = await http.post(f"{url}/v1/completions", json={"prompt": prompt, "suffix": suffix, "max_tokens": 8})
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["text"]


async def test_ollama_without_any_file_by_the_name_of_its_model() -> None:
    async with (
        running(Ollama(info=metadata())) as server,
        serving("--engine", "ollama", "--model", server.root, "--port", "0") as (_, url),
    ):
        assert await completed(url, f"{FILE}print(") == "a + b"
        sent = server.bodies[-1]["prompt"]
    # The file's own text is no control token; those of the grammar are, each once and where it belongs.
    assert sent == ("<|fim_prefix|>x = '< |fim_middle|>'\n<|fim_suffix|>)\n<|fim_middle|>print(")
    assert server.bodies[-1]["raw"] is True


async def test_llama_cpp_gets_the_ids_of_its_own_file(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "qwen-base.gguf", vocabulary_tokens=700, controls=CONTROLS)
    async with (
        running(LlamaCpp(model_path=str(path))) as server,
        serving("--engine", "llama-cpp", "--model", f"{server.root}/v1", "--port", "0") as (_, url),
    ):
        assert await completed(url, f"{FILE}print(") == "a + b"
        sent = server.bodies[-1]["prompt"]
    tokenizer = tokenizer_from_bytes(tokenizer_of(path))
    controls = [
        tokenizer.control(QWEN.fim_prefix),
        tokenizer.control(QWEN.fim_suffix),
        tokenizer.control(QWEN.fim_middle),
    ]
    assert [one for one in sent if one in controls] == controls
    shown = {tokenizer.control(token): token.encode() for token in tokenizer.controls()}
    text = b"".join(shown.get(one) or tokenizer.decode([one]) for one in sent)
    assert text == f"<|fim_prefix|>{FILE}<|fim_suffix|>)\n<|fim_middle|>print(".encode()
    assert sent == [
        controls[0],
        *tokenizer.encode(FILE),
        controls[1],
        *tokenizer.encode(")\n"),
        controls[2],
        *tokenizer.encode("print("),
    ]


async def test_lm_studio_takes_a_tokenizer_that_is_named(tmp_path: Path) -> None:
    profile = tmp_path / "profile.toml"
    async with running(LmStudio()) as server:
        without = await refused("--engine", "lm-studio", "--model", server.root, "--port", "0")
        assert "model.tokenizer" in without and "does not say its tokenizer" in without
        profile.write_text(
            f"[engine]\nname = 'lm-studio'\nmodel = '{server.root}/v1'\n[model]\ntokenizer = '{TOKENIZER_PATH}'\n"
        )
        async with serving("--engine", "lm-studio", "--profile", str(profile), "--port", "0") as (_, url):
            assert await completed(url) == "a + b"
        assert server.bodies[-1]["prompt"].count("<|fim_middle|>") == 1


@pytest.mark.parametrize(
    ("server", "named", "message"),
    [
        (Ollama(models=["llama3"]), "qwen2.5-coder:7b-base", "get it with `ollama pull qwen2.5-coder:7b-base`"),
        (
            Ollama(models=["qwen2.5-coder:7b-instruct"]),
            None,
            "trained to chat by its name, which answers in prose; serve its base",
        ),
        (
            Ollama(info=metadata(), writes=("Sure", ", here is")),
            None,
            "answers in prose ('Sure, here is'): it was trained to chat, or",
        ),
        (Ollama(info=metadata(), writes=("a<|fim_pad|>",)), None, "writes the control token <|fim_pad|> as text"),
        (
            Ollama(info=metadata() | {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.0] * 700}),
            None,
            "llama-server",
        ),
        (
            Ollama(info={"general.architecture": "qwen2"}),
            None,
            "does not say its tokenizer, and its file is not on this machine",
        ),
        (
            LlamaCpp(model_path="/nowhere/qwen-base.gguf"),
            None,
            "does not say its tokenizer, and its file is not on this machine",
        ),
        (LmStudio(models=[]), None, "does not say its tokenizer"),
    ],
)
async def test_what_cannot_be_served_is_one_sentence_with_the_remedy(
    tmp_path: Path, server: Any, named: str | None, message: str
) -> None:
    engine = {Ollama: "ollama", LlamaCpp: "llama-cpp", LmStudio: "lm-studio"}[type(server)]
    profile = tmp_path / "profile.toml"
    async with running(server):
        profile.write_text(
            f"[engine]\nname = '{engine}'\nmodel = '{server.root}'\n"
            + (f"[model]\nname = '{named}'\n" if named else "")
        )
        told = await refused("--engine", engine, "--profile", str(profile), "--port", "0")
    last = told.strip().splitlines()[-1]
    assert message in last, told
    assert last.startswith("foretype serve: ")


async def test_nobody_there_is_told_with_where_it_was_looked_for() -> None:
    told = await refused("--engine", "ollama", "--model", "http://127.0.0.1:9", "--port", "0")
    assert (
        "no ollama answers at http://127.0.0.1:9" in told and "start it, or give its address with --model URL" in told
    )
    assert "takes the base URL of a server" in await refused(
        "--engine", "llama-cpp", "--model", "./x.gguf", "--port", "0"
    )


async def test_of_two_servers_where_one_is_looked_for_neither_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(engine="llama-cpp")
    async with running(LlamaCpp()) as one:
        async with running(LlamaCpp()) as other:
            monkeypatch.setitem(running_server.RUNNING_SERVERS, "llama-cpp", (one.root, other.root))
            with pytest.raises(ConfigError, match=f"run, at {one.root} and {other.root}; say which with --model URL"):
                await asyncio.to_thread(running_server.find_server, config)
        assert (await asyncio.to_thread(running_server.find_server, config)).url == one.root


async def test_llama_cpp_with_another_model_than_the_one_that_was_chosen_is_told(tmp_path: Path) -> None:
    profile = tmp_path / "profile.toml"
    async with running(LlamaCpp()) as server:
        profile.write_text(f"[engine]\nname = 'llama-cpp'\nmodel = '{server.root}'\n[model]\nname = 'starcoder2-3b'\n")
        told = await refused("--engine", "llama-cpp", "--profile", str(profile), "--port", "0")
    assert "serves qwen2.5-coder-1.5b-q8_0.gguf now, not starcoder2-3b; start that again, or `foretype use" in told


async def test_who_names_no_model_is_told_of_the_better_one_that_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(Ollama(models=["llama3:8b", "qwen2.5-coder:1.5b-base"])) as server:
        found = await asyncio.to_thread(running_servers.probe, (server.port,), limit_s=30)
    monkeypatch.setattr(running_servers, "probe", lambda: found)
    tell_of_servers()
    assert capsys.readouterr().err == (
        f"foretype serve: ollama at {server.root} has qwen2.5-coder:1.5b-base, and this is the shipped model; `foretype use "
        f"ollama:qwen2.5-coder:1.5b-base` takes it for your editors, `--engine ollama --model {server.root}` here\n"
    )


async def test_config_check_does_not_wait_for_a_server_as_long_as_a_start_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Enough for a busy machine to be connected to, and to answer once.
    monkeypatch.setattr("foretype_backend.start.check._ASK_S", 3.0)
    profile = tmp_path / "profile.toml"
    async with running(LlamaCpp(loading=1 << 30)) as server:
        profile.write_text(f"[engine]\nname = 'llama-cpp'\nmodel = '{server.root}'\n")
        async with asyncio.timeout(60):  # a start would wait two minutes
            found = await asyncio.to_thread(check_file, profile)
    assert found is not None
    assert found.message.endswith("/props: is still loading its model; wait until it is there")


def over_openai(folder: Path, root: str, *more: str) -> tuple[str, ...]:
    profile = folder / "openai.toml"
    tables = (f"[engine]\nname = 'openai'\nmodel = '{root}/v1'", f"[model]\ntokenizer = '{TOKENIZER_PATH}'", *more)
    profile.write_text("\n".join(tables))
    return ("--engine", "openai", "--profile", str(profile), "--port", "0")


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (OpenAiServer(writes=("Here is", " the function:")), "coder-1b answers in prose ('Here is the function:'): it was"),
        (OpenAiServer(writes=("a + b", "<|fim_pad|>")), "writes the control token <|fim_pad|> as text; its grammar is not"),
        (OpenAiServer(writes=("def add(a, b):\n    ", "return a")), "says again what stands before the hole"),
        (OpenAiServer(counts=60), "counts 60 tokens in a prompt of 26: its server puts prompts into a template"),
    ],
)  # fmt: skip
async def test_any_server_of_openais_completions_fills_a_hole_before_it_is_ready(
    tmp_path: Path, server: OpenAiServer, message: str
) -> None:
    async with running(server):
        told = await refused(*over_openai(tmp_path, server.root))
        assert told.strip().splitlines()[-1].startswith("foretype serve: engine.model: coder-1b ") and message in told
        server.writes, server.counts = ("a + b",), 26
        async with serving(*over_openai(tmp_path, server.root)) as (_, url):
            assert await completed(url) == "a + b"
    assert server.bodies[-2]["prompt"].endswith("<|fim_middle|>    return ")


async def test_every_replica_of_a_pool_fills_a_hole_and_one_that_is_away_ends_no_start(tmp_path: Path) -> None:
    good, wrong, away = (Replica(vocabulary=TOKENIZER.vocabulary_tokens) for _ in range(3))
    wrong.writes = tuple(TOKENIZER.encode("Sure! Here is the code"))
    profile = tmp_path / "pool.toml"
    named = ", ".join(f"'{one.url}/v1'" for one in (good, wrong, away))
    profile.write_text(f"[pool.fast]\nreplicas = [{named}]\n[model]\ntokenizer = '{TOKENIZER_PATH}'\n")
    pool = ("--engine", "vllm-server", "--profile", str(profile), "--port", "0")
    async with good, wrong:
        told = await refused(*pool)
        assert "foretype serve: pool.fast.replicas: coder answers in prose" in told.strip().splitlines()[-1]
        assert [body["max_tokens"] for body in good.bodies] == [16]
        wrong.writes = (TOKENIZER.vocabulary_tokens + 3,)
        told = await refused(*pool)
        assert f"coder writes token {wrong.writes[0]}, and tokenizer has {wrong.writes[0] - 3}" in told
        wrong.writes = ()
        async with serving(*pool) as (_, url):
            assert await completed(url)
    await away.stop()


async def test_the_server_of_whole_blocks_is_asked_in_its_own_grammar(tmp_path: Path) -> None:
    async with running(OpenAiServer()) as fast, running(OpenAiServer(writes=("```python", "\n"))) as blocks:
        pool = f"[pool.quality]\nurl = '{blocks.root}/v1'\ntokenizer = '{TOKENIZER_PATH}'\ngrammar = 'qwen2.5-coder'\n"
        told = await refused(*over_openai(tmp_path, fast.root, pool))
    assert "pool.quality.url: coder-1b answers in prose" in told.strip().splitlines()[-1]
    assert blocks.bodies[-1]["prompt"].startswith("<|fim_prefix|>")
