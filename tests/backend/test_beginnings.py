"""An engine that does not hold an answer to what the prompt left out: it is asked behind that, since such an answer fits nowhere."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from backend.scrape import total
from backend.world import TOKENIZER, complete, gateway, scripted, segments
from foretype_backend.engines.beginnings import Beginning
from foretype_backend.engines.port import Chunk, EngineFinish, GenerationRequest
from foretype_backend.engines.scripted import ScriptedEngine, text_script
from foretype_context.prompt.healing import strip_healed
from foretype_context.prompt.profile import Stop
from foretype_wire.messages import Cancel, Delta, Done, Finish


@pytest.mark.parametrize(
    ("left_out", "at_first", "behind", "text"),
    [
        pytest.param("retu", "quit()", "rn x\n", "return x", id="another word"),
        pytest.param("retu", "", "rn x\n", "return x", id="nothing"),
        pytest.param("retu", "ret", "rn x\n", "return x", id="a part of it alone"),
        pytest.param(" retu", " record", "rn x\n", " return x", id="a part, then otherwise"),
        pytest.param("\n    ", "x", "return x\n", "\nreturn x", id="no line break, and one stands for all of it"),
        pytest.param("retu", "quit()", "", "retu", id="nothing behind it either"),
        pytest.param("retu", "return y\n", "", "return y", id="the same: it is asked once"),
        pytest.param("retu", "retu", "", "retu", id="the same and no more: it is asked once"),
    ],
)
async def test_an_answer_that_begins_otherwise_is_asked_for_again(
    left_out: str, at_first: str, behind: str, text: str
) -> None:
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return behind if prompt.endswith("\n" if "\n" in left_out else left_out) else at_first

    async with gateway(scripted(answer)) as world, world.peer() as peer:
        said, end = await peer.answer(stop=Stop(max_lines=1, repeats=left_out))
        await world.idle()
        metrics = world.service.metrics.render()
    assert end.finish in (Finish.STOP, Finish.END_OF_MIDDLE)
    assert said == text and strip_healed(said, left_out) is not None
    is_same = strip_healed(at_first, left_out) is not None and len(at_first) >= len(left_out)
    assert (len(asked) == 1) == is_same
    assert total(metrics, "foretype_requests_total") == total(metrics, "foretype_requests_received_total") == 1
    assert total(metrics, "foretype_engine_retries_total") == 0


class Choosing(ScriptedEngine):
    """Takes one of the tokens that it may take, as vLLM does: `return`."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk]:
        if not (first_of := request.params.first_of):
            async for chunk in super().generate(request):
                yield chunk
            return
        [token] = TOKENIZER.encode("return")
        assert token in first_of and request.params.max_tokens == 1
        yield Chunk(token_ids=(token,), finish=EngineFinish.LENGTH)


async def test_its_first_token_is_the_likeliest_of_those_that_go_with_the_beginning() -> None:
    """`return` is one token where `retu` is two: a model that never saw it cut says nothing behind the half."""
    script = text_script(
        TOKENIZER.encode,
        lambda ids: TOKENIZER.decode(ids).decode(),
        lambda prompt: " x\n" if prompt.endswith("return") else "",
    )
    engine = Choosing(script, context_limit_tokens=2048, vocabulary_tokens=TOKENIZER.vocabulary_tokens)
    async with gateway(engine) as world, world.peer() as peer:
        said, end = await peer.answer(segments=segments("value = 1\n"), stop=Stop(max_lines=1, repeats="retu"))
    assert (said, end.finish) == ("return x", Finish.STOP)


class Counting(ScriptedEngine):
    """Says with its last chunk how many tokens it has generated, as vLLM's server does; all of an answer is one chunk, as under load."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk]:
        first_of = request.params.first_of
        if first_of:
            chunk = Chunk(token_ids=(TOKENIZER.encode("return")[0],), finish=EngineFinish.LENGTH, generated_tokens=1)
        else:
            chunks = [one async for one in super().generate(request)]
            ids = tuple(id for one in chunks for id in one.token_ids)
            chunk = Chunk(token_ids=ids, finish=chunks[-1].finish, generated_tokens=len(ids))
        self.counted += chunk.generated_tokens or 0
        yield chunk

    counted = 0


@pytest.mark.parametrize("at_first", ["re", "re quit", "quit()", "ret", ""])
async def test_what_came_of_the_beginning_with_what_ended_it_is_not_lost_and_all_attempts_are_counted(
    at_first: str,
) -> None:
    script = text_script(
        TOKENIZER.encode,
        lambda ids: TOKENIZER.decode(ids).decode(),
        lambda prompt: " x\n" if prompt.endswith("return") else at_first,
    )
    engine = Counting(script, context_limit_tokens=2048, vocabulary_tokens=TOKENIZER.vocabulary_tokens)
    async with gateway(engine) as world, world.peer() as peer:
        said, end = await peer.answer(segments=segments("value = 1\n"), stop=Stop(max_lines=1, repeats="retu"))
        assert (said, end.finish) == ("return x", Finish.STOP)
        assert end.usage.generated_tokens == engine.counted
        await world.idle()
        assert total(world.service.metrics.render(), "foretype_generated_tokens_total") == engine.counted


class Cancelled(Counting):
    """Is cancelled while it is asked for the beginning, or behind it, and counts what it had generated."""

    def __init__(self, *given: object, in_beginning: bool, **more: object) -> None:
        super().__init__(*given, **more)  # pyright: ignore[reportArgumentType]
        self.in_beginning, self.asked, self.gone = in_beginning, asyncio.Event(), asyncio.Event()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk]:
        if request.params.first_of if self.in_beginning else request.prompt_text.endswith("return"):
            self.asked.set()
            await self.gone.wait()
            yield Chunk(finish=EngineFinish.ABORTED, generated_tokens=1)
            return
        async for chunk in super().generate(request):
            yield chunk

    def abort(self, request_id: str) -> None:
        self.gone.set()
        super().abort(request_id)


@pytest.mark.parametrize("in_beginning", [True, False])
async def test_a_cancel_of_an_answer_that_is_begun_is_a_cancel(in_beginning: bool) -> None:
    script = text_script(TOKENIZER.encode, lambda ids: TOKENIZER.decode(ids).decode(), lambda _: "quit() + 1 + 2 + 3")
    engine = Cancelled(
        script, context_limit_tokens=2048, vocabulary_tokens=TOKENIZER.vocabulary_tokens, in_beginning=in_beginning
    )
    async with gateway(engine) as world, world.peer() as peer:
        await peer.send(complete("a", segments=segments("value = 1\n"), stop=Stop(max_lines=1, repeats="retu")))
        await engine.asked.wait()
        await peer.send(Cancel(id="a"))
        message = await peer.receive()
        while isinstance(message, Delta):
            message = await peer.receive()
        assert isinstance(message, Done) and message.finish is Finish.CANCELLED
        await world.idle()
        metrics = world.service.metrics.render()
    assert total(metrics, "foretype_requests_total", reason="cancelled") == 1


async def test_a_vocabulary_without_such_a_token_is_asked_no_third_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_self: Beginning, _pieces: object) -> None:
        return None

    monkeypatch.setattr(Beginning, "allowed", none)
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "quit()"

    async with gateway(scripted(answer)) as world, world.peer() as peer:
        said, end = await peer.answer(stop=Stop(max_lines=1, repeats="retu"))
    assert len(asked) == 2 and strip_healed(said, "retu") is None and end.finish is Finish.STOP
