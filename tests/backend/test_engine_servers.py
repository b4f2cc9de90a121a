"""Engines over servers that somebody already runs: what they are asked, byte for byte, and what is read of them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from backend.model_servers import LlamaCpp, LmStudio, Ollama, running
from backend.world import TOKENIZER, closing
from foretype_backend.engines.by_name import load_engine
from foretype_backend.engines.port import Chunk, Engine, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.engines.text_prompts import TextPrompts
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError, SaltIgnoredError
from foretype_backend.prefix.origin import Origin

MIDDLE = "<|fim_middle|>"
END = TOKENIZER.control("<|endoftext|>")


def text(ids: Any) -> str:
    return TextPrompts(TOKENIZER).text(ids)


async def ask(engine: Engine, ids: list[int], *, name: str = "a", tokens: int = 8, document: str = "") -> list[Chunk]:
    params = GenerationParams(max_tokens=tokens, end_token_ids=frozenset({END}), stop_strings=("\n\n",))
    origin = Origin(document=document) if document else None
    return [one async for one in engine.generate(GenerationRequest(name, ids, params, origin=origin))]


@contextlib.asynccontextmanager
async def started(name: str, **options: Any) -> AsyncGenerator[Engine]:
    engine = load_engine(name, **options)
    await engine.start()
    async with closing(engine):
        yield engine


def written(chunks: list[Chunk]) -> str:
    return "".join(chunk.text or "" for chunk in chunks)


async def hung_up_on(engine: Engine, server: Any) -> Chunk:
    """Ask for an endless answer, abort it in the middle, and see the server notice."""
    server.endless = True
    params = GenerationParams(max_tokens=1000)
    last = None
    async for chunk in engine.generate(GenerationRequest("endless", [1, 2], params)):
        last = chunk
        engine.abort("endless")
    await server.hung_up.wait()
    assert last is not None
    return last


# Prompts as text


def test_what_looks_like_a_control_token_in_a_file_is_none_and_those_of_the_prompt_stay() -> None:
    file = f"x = '{MIDDLE}'  # <|endoftext|> naïve 漢字\n"
    prompt = [TOKENIZER.control("<|fim_prefix|>"), *TOKENIZER.encode(file), TOKENIZER.control(MIDDLE)]
    sent = text(prompt)
    assert sent == "<|fim_prefix|>x = '< |fim_middle|>'  # < |endoftext|> naïve 漢字\n<|fim_middle|>"
    assert sent.count(MIDDLE) == 1


def test_a_control_token_is_none_either_where_two_segments_meet() -> None:
    assert MIDDLE not in text([*TOKENIZER.encode("a <|fim_"), *TOKENIZER.encode("middle|> b")])


def test_tokens_that_the_server_puts_first_itself_are_left_out_there_alone() -> None:
    begins = TextPrompts(TOKENIZER, begins=("<|endoftext|>",))
    assert begins.text([END, *TOKENIZER.encode("a"), END]) == "a<|endoftext|>"


# Ollama


async def test_ollama_is_asked_past_its_template_with_one_context_and_residency() -> None:
    async with (
        running(Ollama()) as server,
        started("ollama", url=server.root, text=text, context_limit_tokens=2048) as engine,
    ):
        prompt = [TOKENIZER.control("<|fim_prefix|>"), *TOKENIZER.encode(f"é {MIDDLE}"), TOKENIZER.control(MIDDLE)]
        chunks = await ask(engine, prompt)
        assert written(chunks) == "a + b"
        assert [value for chunk in chunks for value in chunk.logprobs] == [-0.5, -0.5]
        last = chunks[-1]
        assert (last.finish, last.prompt_tokens, last.generated_tokens, last.cached_tokens) == (
            EngineFinish.END_TOKEN,
            9,
            2,
            None,
        )
        sent = server.bodies[-1]
        assert sent["prompt"] == f"<|fim_prefix|>é < |fim_middle|>{MIDDLE}"
        assert (sent["raw"], sent["stream"], sent["truncate"], sent["shift"]) == (True, True, False, False)
        assert sent["options"] == {"num_ctx": 2048, "num_predict": 8, "temperature": 0.0, "stop": ["\n\n"]}
        # One other context and the model would be loaded anew.
        assert {(body["options"]["num_ctx"], body["keep_alive"], body["model"]) for body in server.bodies} == {
            (2048, "30m", "qwen2.5-coder:1.5b-base")
        }
        assert server.bodies[0]["prompt"] == ""  # loads it before anybody types
        assert (await hung_up_on(engine, server)).finish is EngineFinish.ABORTED


async def test_an_ollama_of_before_log_probabilities_works_without_them() -> None:
    async with (
        running(Ollama(knows_logprobs=False)) as server,
        started("ollama", url=server.root + "/v1", text=text) as engine,
    ):
        assert not engine.capabilities().logprobs
        assert written(await ask(engine, [1])) == "a + b"
        assert "logprobs" not in server.bodies[-1]


@pytest.mark.parametrize(
    ("has", "named", "message"),
    [
        ([], None, r"lists no model; get it with `ollama pull qwen2.5-coder:1.5b-base`"),
        (["llama3"], "mine", r"has no model 'mine' \(it has llama3\); get it with `ollama pull mine`"),
        (["codellama:7b-instruct"], None, r"trained to chat by its name, which answers in prose; serve its base model"),
        (["one-base", "two-base"], None, r"has 2 models \(one-base, two-base\); name one with `\[model\] name`"),
    ],
)
async def test_an_ollama_without_the_model_is_told_with_the_remedy(
    has: list[str], named: str | None, message: str
) -> None:
    async with running(Ollama(models=has)) as server:
        engine = load_engine("ollama", url=server.root, text=text, model=named)
        with pytest.raises(EngineUnavailableError, match=message):
            await engine.start()
        assert server.bodies == []


async def test_an_ollama_whose_model_went_away_is_told_and_comes_back() -> None:
    async with running(Ollama()) as server, started("ollama", url=server.root, text=text) as engine:
        had, server.models = server.models, ["llama3"]
        with pytest.raises(EngineUnavailableError, match=r"get it with `ollama pull qwen2\.5-coder:1\.5b-base`"):
            await ask(engine, [1])
        server.models = had
        assert written(await ask(engine, [1])) == "a + b"
        server.fails = "llama runner process has terminated"
        with pytest.raises(EngineUnavailableError, match="runner process has terminated; see `ollama ps`"):
            await ask(engine, [1])


async def test_the_openai_engine_refuses_an_ollama_and_says_which_engine_takes_it() -> None:
    async with running(Ollama()) as server:
        engine = load_engine("openai", url=server.root + "/v1")
        with pytest.raises(EngineUnavailableError, match="chat template; use `--engine ollama`"):
            await engine.start()


# llama.cpp


async def test_llama_cpp_gets_ids_and_its_counts_and_log_probabilities_are_read() -> None:
    async with running(LlamaCpp(ends_itself=False)) as server, started("llama-cpp", url=server.root + "/v1") as engine:
        chunks = await ask(engine, [3, 4, 5])
        assert written(chunks) == "a + b"
        assert [value for chunk in chunks for value in chunk.logprobs] == [-0.25, -0.25]
        last = chunks[-1]
        assert (last.finish, last.prompt_tokens, last.cached_tokens) == (EngineFinish.LENGTH, 3, 2)
        sent = server.bodies[-1]
        assert (sent["prompt"], sent["n_predict"], sent["cache_prompt"]) == ([3, 4, 5], 8, True)
        assert "id_slot" not in sent  # of no document
        assert engine.statistics().cached_tokens == 2
        capabilities = engine.capabilities()
        assert (capabilities.model, capabilities.context_limit_tokens) == ("qwen2.5-coder-1.5b-q8_0", 4096)
        with pytest.raises(PromptRefusedError, match="4096"):
            await ask(engine, [1] * 4096)
        assert (await hung_up_on(engine, server)).finish is EngineFinish.ABORTED


async def test_a_control_token_ends_the_answer_though_llama_cpp_writes_nothing_for_it() -> None:
    server = LlamaCpp(writes=("a", "", "prose"), ids=(10, END, 11))
    async with running(server):
        engine = load_engine("llama-cpp", url=server.root)
        await engine.start()
        chunks = await ask(engine, [3])
        assert written(chunks) == "a"
        assert chunks[-1].finish is EngineFinish.END_TOKEN
        # And where the server takes it for no end at all, it is made to stop.
        server.endless = True
        assert written(await ask(engine, [3])) == "a"
        await server.hung_up.wait()
        # Where it does, its counts are read.
        server.endless, server.writes = False, ("a", "")
        assert (await ask(engine, [3, 4]))[-1].cached_tokens == 1
        await engine.close()


async def test_each_document_keeps_its_slot() -> None:
    async with running(LlamaCpp(slots=2)) as server, started("llama-cpp", url=server.root) as engine:
        server.bodies.clear()
        for document in ("a", "b", "a", "c", "a", "b"):
            await ask(engine, [1], document=document)
        assert [body["id_slot"] for body in server.bodies] == [0, 1, 0, 1, 0, 1]
        await engine.warm([1, 2], origin=Origin(document="a"))
        assert (server.bodies[-1]["id_slot"], server.bodies[-1]["n_predict"]) == (0, 0)


async def test_a_server_that_still_loads_is_waited_for() -> None:
    async with running(LlamaCpp(loading=2)) as server:
        engine = load_engine("llama-cpp", url=server.root)
        await engine.start()
        assert server.props_asked == 3
        await engine.close()
        late = load_engine("llama-cpp", url=server.root, load_timeout_s=0.1)
        server.loading = 10**6
        with pytest.raises(EngineUnavailableError, match="still loading its model; raise 'load_timeout_s'"):
            await late.start()


async def test_a_server_that_came_back_with_another_model_is_not_asked() -> None:
    first = LlamaCpp()
    async with running(first):
        engine = load_engine("llama-cpp", url=first.root)
        await engine.start()
        assert written(await ask(engine, [1])) == "a + b"
    other = LlamaCpp(model_path="/models/starcoder2.gguf")
    async with running(other, first.port):
        with pytest.raises(EngineUnavailableError, match="serves starcoder2") as told:
            await ask(engine, [1], name="b")
        assert told.value.fault is Fault.REPLACED
        assert other.bodies == []
    async with running(LlamaCpp(), first.port):
        for _ in range(100):  # it looks again once a second
            try:
                chunks = await ask(engine, [1], name="c")
                break
            except EngineUnavailableError:
                await asyncio.sleep(0.05)
        else:
            pytest.fail("it did not come back")
        assert written(chunks) == "a + b"
    await engine.close()


async def test_an_instruct_model_is_refused_unless_it_is_named() -> None:
    async with running(LlamaCpp(model_path="/m/qwen2.5-coder-7b-instruct-q4.gguf")) as server:
        with pytest.raises(
            EngineUnavailableError, match="answers in prose; serve its base model, or take it all the same"
        ):
            await load_engine("llama-cpp", url=server.root).start()
        named = load_engine("llama-cpp", url=server.root, model="anyway")
        await named.start()
        await named.close()


# LM Studio


async def test_lm_studio_gets_text_and_the_model_that_is_loaded() -> None:
    async with running(LmStudio()) as server, started("lm-studio", url=server.root, text=text) as engine:
        chunks = await ask(engine, [TOKENIZER.control(MIDDLE), *TOKENIZER.encode(MIDDLE)])
        assert written(chunks) == "a + b"
        assert server.bodies[-1]["prompt"] == f"{MIDDLE}< |fim_middle|>"
        assert server.bodies[-1]["model"] == "qwen2.5-coder-1.5b"
        assert (chunks[-1].prompt_tokens, chunks[-1].generated_tokens) == (7, 2)
        assert engine.capabilities().context_limit_tokens == 4096


@pytest.mark.parametrize("name", ["ollama", "llama-cpp", "lm-studio"])
async def test_no_two_tenants_share_a_server_without_salts(name: str) -> None:
    server = {"ollama": Ollama, "llama-cpp": LlamaCpp, "lm-studio": LmStudio}[name]()
    more = {} if name == "llama-cpp" else {"text": text}
    async with running(server):
        with pytest.raises(SaltIgnoredError, match=r"cannot keep tenants apart\. Put `vllm serve` there"):
            await load_engine(name, url=server.root, shared=True, **more).start()
