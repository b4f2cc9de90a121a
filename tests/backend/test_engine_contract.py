"""What callers rely on in every engine, through its port. An engine of your own joins by a line in `MAKERS`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
import pytest_asyncio
from backend.tiny_gguf import write_tiny_gguf
from backend.world import until
from foretype_backend.config.config import Config
from foretype_backend.config.settings import EngineConfig, EngineName
from foretype_backend.engines.by_name import ENGINES
from foretype_backend.engines.embedded.engine import EmbeddedEngine
from foretype_backend.engines.embedded.libraries import LIBRARIES
from foretype_backend.engines.port import Chunk, Engine, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.engines.scripted import ScriptedEngine
from foretype_backend.errors import ConfigError, EngineUnavailableError, PromptRefusedError
from foretype_backend.start.prepare import make_engine
from foretype_context.grammars.grammar import grammar
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models.artifacts import FOLDER

pytestmark = pytest.mark.asyncio(loop_scope="module")


def embedded(library: str, folder: Path) -> Engine:
    return EmbeddedEngine.from_config(model=write_tiny_gguf(folder / "tiny.gguf"), library=library, threads=1)


MAKERS: dict[str, Callable[[Path], Engine]] = {
    "scripted": lambda _folder: ScriptedEngine(vocabulary_tokens=512),
    **{f"embedded, {library}": partial(embedded, library) for library in LIBRARIES},
}
"""Each makes an engine that says three hundred tokens and more after `PROMPT`."""
PROMPT = [4 + i * 7 % 500 for i in range(40)]
LONG = 300
"""Tokens of an answer that is not to end before somebody who waits for a busy core has read its first one."""


@pytest.fixture(scope="module", params=MAKERS)
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Engine]:
    return lambda: MAKERS[request.param](tmp_path_factory.mktemp("engine"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(make: Callable[[], Engine]) -> AsyncIterator[Engine]:
    engine = make()
    await engine.start()
    yield engine
    await engine.close()


def asking(
    engine: Engine, id_: str, prompt: list[int] = PROMPT, *, ends: frozenset[int] = frozenset(), most: int = 8
) -> AsyncIterator[Chunk]:
    return engine.generate(GenerationRequest(id_, prompt, GenerationParams(max_tokens=most, end_token_ids=ends)))


async def idle(engine: Engine) -> None:
    await until(lambda: engine.statistics()[:2] == (0, 0))


def said(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


async def test_it_ends_at_the_length_and_says_so_once(engine: Engine) -> None:
    chunks = [chunk async for chunk in asking(engine, "length")]
    assert len(said(chunks)) == 8
    assert [chunk.finish for chunk in chunks if chunk.finish] == [EngineFinish.LENGTH] and chunks[-1].finish
    assert all(len(chunk.logprobs) == len(chunk.token_ids) for chunk in chunks)


async def test_an_end_token_ends_it_and_is_not_delivered(engine: Engine) -> None:
    whole = said([chunk async for chunk in asking(engine, "whole")])
    chunks = [chunk async for chunk in asking(engine, "ended", ends=frozenset({whole[3]}))]
    assert said(chunks) == whole[: whole.index(whole[3])] and chunks[-1].finish is EngineFinish.END_TOKEN


async def test_an_abort_ends_the_stream_with_aborted_and_frees_the_engine(engine: Engine) -> None:
    chunks: list[Chunk] = []
    async for chunk in asking(engine, "aborted", most=LONG):
        engine.abort("aborted")
        chunks.append(chunk)
    assert chunks[-1].finish is EngineFinish.ABORTED and len(said(chunks)) < LONG
    await idle(engine)


async def test_an_abort_that_overtakes_its_request_wins_and_a_late_one_hits_nobody(engine: Engine) -> None:
    engine.abort("early")
    assert [chunk async for chunk in asking(engine, "early")][-1].finish is EngineFinish.ABORTED
    engine.abort("early")
    assert [chunk async for chunk in asking(engine, "early")][-1].finish is EngineFinish.LENGTH


async def test_closing_the_iterator_frees_the_engine(engine: Engine) -> None:
    stream = asking(engine, "left", most=LONG)
    assert (await anext(stream)).finish is None
    await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    await idle(engine)


async def test_cancelling_the_reader_frees_the_engine(engine: Engine) -> None:
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in asking(engine, "reader", most=LONG):
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await idle(engine)


async def test_a_deadline_that_passed_is_not_started(engine: Engine) -> None:
    before, passed = engine.statistics().prompt_tokens, asyncio.get_running_loop().time() - 1
    late = GenerationRequest("late", PROMPT, GenerationParams(max_tokens=8), deadline=passed)
    assert [chunk.finish async for chunk in engine.generate(late)] == [EngineFinish.ABORTED]
    assert engine.statistics().prompt_tokens == before


@pytest.mark.parametrize(
    ("prompt", "why"),
    [([], "empty"), ([5] * 1_000_000, "at most"), ([10**6], "vocabulary"), ([-1], "vocabulary")],
    ids=["empty", "too long", "outside the vocabulary", "negative"],
)
async def test_a_prompt_that_can_never_run_is_refused_before_the_first_chunk(
    engine: Engine, prompt: list[int], why: str
) -> None:
    with pytest.raises(PromptRefusedError, match=why):
        await anext(asking(engine, "refused", prompt))
    await idle(engine)


async def test_a_warm_prefix_changes_no_answer(engine: Engine) -> None:
    before = said([chunk async for chunk in asking(engine, "cold")])
    await engine.warm(PROMPT)
    assert said([chunk async for chunk in asking(engine, "warm")]) == before


async def test_unavailable_before_start_and_after_close_and_a_stream_then_ends(make: Callable[[], Engine]) -> None:
    engine = make()
    with pytest.raises(EngineUnavailableError):
        await engine.ready()
    with pytest.raises(EngineUnavailableError):
        await anext(asking(engine, "too early"))
    await engine.start()
    await engine.ready()
    stream = asking(engine, "open", most=LONG)
    await anext(stream)
    await engine.close()
    try:
        assert [chunk async for chunk in stream][-1].finish is EngineFinish.ABORTED
    except EngineUnavailableError:
        pass
    with pytest.raises(EngineUnavailableError):
        await engine.ready()


async def test_the_names_in_a_file_are_those_of_the_engines() -> None:
    assert set(get_args(EngineName)) == set(ENGINES)
    assert list(get_args(EngineName)) == sorted(ENGINES)


async def test_an_engine_of_your_own_gets_its_options_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "own", "backend.test_engine_contract:Own")

    def made(model: str | None, **options: object) -> object:
        config = Config(engine=EngineConfig(name="own", options=options))  # pyright: ignore[reportArgumentType]
        return make_engine(config, model, load_tokenizer(FOLDER / "tokenizer.json"), None, grammar("foretype-2"))

    assert vars(made(None)) == {"model": "", "words": 3} and vars(made("x", words=4)) == {"model": "x", "words": 4}
    with pytest.raises(ConfigError, match="colour"):
        made(None, colour="red")


class Own:
    def __init__(self, *, model: str = "", words: int = 3) -> None:
        self.model, self.words = model, words
