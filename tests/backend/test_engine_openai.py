"""The adapter against a real HTTP server that can be told to be difficult."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from backend.model_servers import StandIn, running, wait_for_answers
from backend.world import chunks_of, closing, until
from foretype_backend.engines.by_name import load_engine
from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.engines.port import Chunk, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.errors import EngineUnavailableError, Fault, PromptRefusedError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(kw_only=True)
class Server(StandIn):
    """A completion server. `refuses` names fields that it answers with 400; `behaviour` is for generation alone."""

    refuses: set[str] = field(default_factory=set)
    behaviour: str = "ok"
    status: int = 200
    key: str = ""
    models: list[str] = field(default_factory=lambda: ["coder", "other"])
    looks: int = 0
    disconnects: int = 0
    counts: int | None = None

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def routes(self) -> list[Route]:
        async def models(request: Request) -> Any:
            if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
                return JSONResponse({"error": {"message": "bad key"}}, 401)
            if self.behaviour == "html":
                return PlainTextResponse("<html>")
            self.looks += 1
            first, *rest = self.models
            return JSONResponse({"data": [{"id": first, "max_model_len": 100}, *({"id": name} for name in rest)]})

        async def completions(request: Request) -> Any:
            body = await request.json()
            self.bodies.append(body)
            wrong = self.refuses & {*body, "ids" if isinstance(body["prompt"], list) else "text"}
            if wrong:
                return JSONResponse({"error": {"message": f"unknown field {wrong.pop()}"}}, 400)
            if self.status != 200:
                return JSONResponse({"error": {"message": "broken"}}, self.status)
            if not body.get("stream"):
                logprobs = {"token_logprobs": [-0.5]} if "logprobs" in body else None
                usage = {} if self.counts is None else {"usage": {"prompt_tokens": self.counts, "completion_tokens": 1}}
                return JSONResponse(
                    {"choices": [{"text": "x", "finish_reason": "length", "logprobs": logprobs}], **usage}
                )
            return StreamingResponse(self.stream(request, body), media_type="text/event-stream")

        return [Route("/v1/models", models), Route("/v1/completions", completions, methods=["POST"])]

    async def stream(self, request: Request, body: dict[str, Any]) -> AsyncIterator[str]:
        def event(**data: Any) -> str:
            return f"data: {json.dumps(data)}\n\n"

        yield ": hello\n\n"
        if self.behaviour == "at once":
            yield event(choices=[{"text": "t ", "finish_reason": None}]) * 50
            await asyncio.sleep(60)
        if self.behaviour == "in one turn":
            for _ in range(50):
                yield event(choices=[{"text": "t ", "finish_reason": None}])
            await asyncio.sleep(60)
        endless = self.behaviour == "endless"
        for i in range(body["max_tokens"] if not endless else 10**6):
            if self.behaviour == "silent" and i == 1:
                await asyncio.sleep(60)
            if self.behaviour == "dies" and i == 2:
                raise RuntimeError("the server was told to die mid-stream")
            if self.behaviour == "ends early" and i == 2:
                return
            if self.behaviour == "error event" and i == 2:
                yield event(error={"message": "out of memory"})
                return
            if self.behaviour in ("nonsense", "deep"):
                yield "data: {{{\n\n" if self.behaviour == "nonsense" else f'data: {{"error": {"[" * 5000}\n\n'
                return
            logprobs = {"token_logprobs": [-0.25]} if "logprobs" in body else None
            try:
                yield event(choices=[{"text": f"t{i} ", "logprobs": logprobs, "finish_reason": None}])
                await asyncio.sleep(0.01 if endless else 0)
            except (asyncio.CancelledError, GeneratorExit):
                self.disconnects += 1
                raise
        yield event(choices=[{"text": "", "finish_reason": "length"}])
        if "stream_options" in body:
            details = {"cached_tokens": 16}
            yield event(
                choices=[], usage={"prompt_tokens": 20, "completion_tokens": 3, "prompt_tokens_details": details}
            )
        yield "data: [DONE]\n\n"


@pytest_asyncio.fixture(loop_scope="module")
async def server() -> AsyncIterator[Server]:
    async with running(Server()) as server:
        yield server


async def started(server: Server, **options: object) -> OpenAIEngine:
    engine = OpenAIEngine.from_config(url=server.url, **options)
    await engine.start()
    server.bodies.clear()
    return engine


@pytest_asyncio.fixture(loop_scope="module")
async def engine(server: Server) -> AsyncIterator[OpenAIEngine]:
    engine = await started(server)
    async with closing(engine):
        yield engine


async def collect(engine: OpenAIEngine, ids: list[int], *, name: str = "a", takes: int = 0, **kw: Any) -> list[Chunk]:
    params = GenerationParams(max_tokens=3, end_token_ids=frozenset({7}), stop_strings=("\n\n",))
    return await chunks_of(engine, GenerationRequest(name, ids, params, **kw), takes)


def text_of(chunks: list[Chunk]) -> str:
    return "".join(c.text or "" for c in chunks)


async def test_never_more_than_four_stop_strings_are_sent_for_some_servers_refuse_five(
    server: Server, engine: OpenAIEngine
) -> None:
    params = GenerationParams(max_tokens=1, stop_strings=tuple("abcdef"))
    assert [chunk async for chunk in engine.generate(GenerationRequest("stops", [1], params))]
    assert server.bodies[0]["stop"] == list("abcd")


async def test_streams_text_with_logprobs_and_the_servers_own_counts(server: Server, engine: OpenAIEngine) -> None:
    chunks = await collect(engine, [1, 2, 3])
    assert text_of(chunks) == "t0 t1 t2 "
    assert [p for c in chunks for p in c.logprobs] == [-0.25] * 3
    assert chunks[-1].finish is EngineFinish.LENGTH
    assert chunks[-1].cached_tokens == 16
    sent = server.bodies[0]
    assert (sent["prompt"], sent["max_tokens"], sent["stop"], sent["stop_token_ids"]) == ([1, 2, 3], 3, ["\n\n"], [7])
    statistics = engine.statistics()
    assert (statistics.prompt_tokens, statistics.cached_tokens, statistics.generated_tokens) == (20, 16, 3)
    capabilities = engine.capabilities()
    assert (capabilities.model, capabilities.context_limit_tokens, engine.exact) == ("coder", 100, True)


async def test_where_token_ids_are_refused_the_text_goes_and_counts_are_not_exact(server: Server) -> None:
    server.refuses = {"ids"}
    engine = await started(server)
    chunks = await collect(engine, [1, 2, 3], prompt_text="def f")
    assert text_of(chunks) == "t0 t1 t2 "
    assert server.bodies[0]["prompt"] == "def f"
    assert not engine.exact
    assert any("exact: false" in note for note in engine.capabilities().notes)
    with pytest.raises(PromptRefusedError, match="no text"):
        await collect(engine, [1, 2, 3])
    await engine.warm([1, 2, 3])
    assert len(server.bodies) == 1
    await engine.close()


async def test_a_server_that_knows_nothing_extra_still_works(server: Server) -> None:
    server.refuses = {"logprobs", "stream_options", "stop_token_ids"}
    engine = await started(server)
    chunks = await collect(engine, [1])
    assert text_of(chunks) == "t0 t1 t2 "
    assert chunks[-1].finish is EngineFinish.LENGTH
    assert not engine.capabilities().logprobs
    assert all(c.logprobs == () for c in chunks)
    await engine.close()


async def test_abort_closes_the_connection_and_the_server_notices(server: Server, engine: OpenAIEngine) -> None:
    server.behaviour = "endless"
    chunks: list[Chunk] = []
    async for chunk in engine.generate(GenerationRequest("endless", [1], GenerationParams(max_tokens=9))):
        chunks.append(chunk)
        if len(chunks) == 3:
            engine.abort("endless")
    assert chunks[-1].finish is EngineFinish.ABORTED
    await until(lambda: server.disconnects)
    assert engine.statistics().running == 0
    engine.abort("early")
    assert [c.finish for c in await collect(engine, [1], name="early")] == [EngineFinish.ABORTED]


async def test_nothing_comes_behind_an_abort_though_it_was_here_before(server: Server, engine: OpenAIEngine) -> None:
    server.behaviour, before = "at once", engine.statistics().tokens_after_cancel
    chunks: list[Chunk] = []
    async for chunk in engine.generate(GenerationRequest("gone", [1], GenerationParams(max_tokens=60))):
        chunks.append(chunk)
        engine.abort("gone")
    assert [one.finish for one in chunks] == [None, EngineFinish.ABORTED]
    assert engine.statistics().tokens_after_cancel == before + 49


async def test_closing_the_iterator_early_closes_the_connection(server: Server, engine: OpenAIEngine) -> None:
    server.behaviour = "endless"
    stream = engine.generate(GenerationRequest("endless", [1], GenerationParams(max_tokens=9)))
    await anext(stream)
    await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]
    await until(lambda: server.disconnects)


@pytest.mark.parametrize("takes", range(5))
async def test_what_is_taken_as_it_comes_and_what_is_yielded_are_one_answer(engine: OpenAIEngine, takes: int) -> None:
    chunks = await collect(engine, [1], takes=takes)
    assert chunks == await collect(engine, [1]) and text_of(chunks) == "t0 t1 t2 "


async def test_an_abort_while_a_chunk_is_taken_is_an_abort(server: Server, engine: OpenAIEngine) -> None:
    server.behaviour, before = "at once", engine.statistics().tokens_after_cancel
    taken: list[Chunk] = []

    def take(chunk: Chunk) -> bool:
        taken.append(chunk)
        engine.abort("gone")
        return True

    asked = GenerationRequest("gone", [1], GenerationParams(max_tokens=60), take=take)
    assert [one.finish async for one in engine.generate(asked)] == [EngineFinish.ABORTED] and len(taken) == 1
    assert engine.statistics().tokens_after_cancel == before + 49


async def test_a_fault_of_who_takes_is_raised_to_who_reads_and_ends_the_request(
    server: Server, engine: OpenAIEngine
) -> None:
    server.behaviour = "endless"

    def take(_chunk: Chunk) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await chunks_of(engine, GenerationRequest("endless", [1], GenerationParams(max_tokens=9), take=take))
    await until(lambda: server.disconnects)
    assert engine.statistics().running == 0


async def test_what_came_together_with_the_end_that_a_reader_chose_is_not_after_a_cancel(
    server: Server, engine: OpenAIEngine
) -> None:
    server.behaviour, before = "in one turn", engine.statistics()
    taken: list[Chunk] = []

    def take(chunk: Chunk) -> bool:
        taken.append(chunk)
        return len(taken) < 3

    stream = engine.generate(GenerationRequest("enough", [1], GenerationParams(max_tokens=60), take=take))
    await anext(stream)
    await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]
    after = engine.statistics()
    assert after.tokens_after_cancel == before.tokens_after_cancel and len(taken) == 3
    assert after.generated_tokens > before.generated_tokens + 3


async def test_who_waits_while_chunks_are_taken_can_be_cancelled(server: Server, engine: OpenAIEngine) -> None:
    server.behaviour = "endless"
    taken: list[Chunk] = []
    asked = GenerationRequest(
        "endless", [1], GenerationParams(max_tokens=9), take=lambda chunk: not taken.append(chunk)
    )
    waiting = asyncio.ensure_future(anext(engine.generate(asked)))
    await until(lambda: len(taken) > 3)
    waiting.cancel()
    await until(lambda: server.disconnects and waiting.cancelled())
    assert engine.statistics().running == 0


@pytest.mark.parametrize("takes", [0, 99])
@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("dies", "connection broke"),
        ("ends early", "ended without a finish reason"),
        ("error event", "out of memory"),
        ("nonsense", "no completion"),
        ("deep", "no completion"),
        ("silent", "idle_timeout_s"),
    ],
)
async def test_a_stream_that_breaks_is_engine_unavailable(
    server: Server, engine: OpenAIEngine, behaviour: str, message: str, takes: int
) -> None:
    server.behaviour = behaviour
    if behaviour == "silent":
        wait_for_answers(engine, 1.0)
    with pytest.raises(EngineUnavailableError, match=message):
        await collect(engine, [1], takes=takes)
    server.behaviour = "ok"
    wait_for_answers(engine, 60.0)
    assert text_of(await collect(engine, [1])) == "t0 t1 t2 "


class Relay:
    """Between a client and a server; while it is `tired`, a connection that carried a request is closed at the next one."""

    def __init__(self, port: int) -> None:
        self.tired, self.closed = False, 0
        self._port = port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", self._port)
        back = asyncio.create_task(self._pass_on(answers, writer))
        used = False
        while (data := await reader.read(65536)) and not (self.tired and used):
            used = True
            requests.write(data)
        self.closed += bool(data)
        back.cancel()
        requests.close()
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()


async def test_a_kept_connection_that_is_closed_at_the_next_request_costs_no_answer(server: Server) -> None:
    relay = Relay(int(server.url.split(":")[2].partition("/")[0]))
    async with await asyncio.start_server(relay.serve, "127.0.0.1", 0) as between:
        url = f"http://127.0.0.1:{between.sockets[0].getsockname()[1]}/v1"
        engine = OpenAIEngine.from_config(url=url)
        await engine.start()
        relay.tired = True
        for _ in range(3):
            assert text_of(await collect(engine, [1])) == "t0 t1 t2 "
        assert relay.closed == 2
        await engine.close()


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (400, PromptRefusedError, "broken"),
        (401, EngineUnavailableError, "api_key"),
        (404, EngineUnavailableError, "model"),
        (429, EngineUnavailableError, "retry later"),
        (500, EngineUnavailableError, "broken"),
    ],
)
async def test_each_status_has_its_typed_error(
    server: Server, engine: OpenAIEngine, status: int, error: type[Exception], message: str
) -> None:
    server.status = status
    with pytest.raises(error, match=message):
        await collect(engine, [1])


async def test_prompts_over_the_servers_context_are_refused_here(server: Server, engine: OpenAIEngine) -> None:
    with pytest.raises(PromptRefusedError, match="100"):
        await collect(engine, [1] * 100)
    assert server.bodies == []


async def test_a_deadline_that_passed_sends_nothing(server: Server, engine: OpenAIEngine) -> None:
    assert [c.finish for c in await collect(engine, [1], deadline=0.0)] == [EngineFinish.ABORTED]
    assert server.bodies == []


async def test_start_says_what_is_wrong(server: Server) -> None:
    for options, message in (
        ({"url": "http://127.0.0.1:9/v1"}, "is the server running"),
        ({"url": server.url, "model": "absent"}, "coder, other"),
        ({"url": server.url + "/nothing"}, "up to /v1"),
    ):
        engine = load_engine("openai", **options)
        with pytest.raises(EngineUnavailableError, match=message):
            await engine.start()
    server.key = "secret"
    with pytest.raises(EngineUnavailableError, match="api_key"):
        await started(server, api_key="wrong")
    await (await started(server, api_key="secret")).close()
    server.behaviour = "html"
    with pytest.raises(EngineUnavailableError, match="JSON"):
        await started(server, api_key="secret")


async def test_options_that_do_not_exist_or_cannot_be_are_named() -> None:
    with pytest.raises(TypeError, match="url"):
        load_engine("openai")
    with pytest.raises(TypeError, match="uri"):
        load_engine("openai", uri="http://x")
    engine = load_engine("openai", url="http://127.0.0.1:9/v1")
    with pytest.raises(EngineUnavailableError, match="not started"):
        await anext(engine.generate(GenerationRequest("a", [1], GenerationParams(max_tokens=1))))


async def test_a_server_that_comes_back_with_another_model_is_not_asked(server: Server, engine: OpenAIEngine) -> None:
    assert text_of(await collect(engine, [1]))
    server.behaviour = "dies"  # its connection breaks, as where it is stopped
    with pytest.raises(EngineUnavailableError):
        await collect(engine, [1], name="b")
    server.behaviour, server.models = "ok", ["starcoder2-3b"]
    server.bodies.clear()
    with pytest.raises(
        EngineUnavailableError, match=r"serves starcoder2-3b now, not coder; start that again, or `foretype use"
    ) as raised:
        await collect(engine, [1], name="c")
    assert raised.value.fault is Fault.REPLACED and server.bodies == []
    server.models = ["coder"]
    engine._same._clock = lambda: time.monotonic() + 2.0  # a second later it is looked at again
    assert text_of(await collect(engine, [1], name="d"))


async def test_a_server_that_changes_its_model_without_a_break_is_seen_soon(
    server: Server, engine: OpenAIEngine
) -> None:
    now = time.monotonic()
    engine._same._clock = lambda: now
    assert text_of(await collect(engine, [1]))
    looks = server.looks
    assert text_of(await collect(engine, [1], name="b")) and server.looks == looks  # it was seen a moment ago
    server.models = ["other"]
    engine._same._clock = lambda: now + 6.0
    assert text_of(await collect(engine, [1], name="c"))  # looked at beside this one, which need not wait
    await until(lambda: engine._same._looking is None)
    with pytest.raises(EngineUnavailableError, match="serves other now"):
        await collect(engine, [1], name="d")


# Shapes that servers give their answers

SHAPES = {
    "llama.cpp": (
        {"logprobs": {"content": [{"id": 5, "token": "x", "logprob": -0.75}]}},
        {"prompt_tokens": 20, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 12}},
    ),
    "DeepSeek": (
        {"logprobs": {"token_logprobs": [-0.75]}},
        {"prompt_tokens": 20, "completion_tokens": 1, "prompt_cache_hit_tokens": 12},
    ),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("twice", [False, True])
async def test_usage_on_the_last_choice_and_log_probabilities_in_either_shape_are_read(
    server: Server, name: str, twice: bool
) -> None:
    piece, usage = SHAPES[name]

    async def stream(body: dict[str, Any]) -> AsyncIterator[str]:
        yield f"data: {json.dumps({'choices': [{'text': 'x', 'finish_reason': None, **piece}]})}\n\n"
        yield f"data: {json.dumps({'choices': [{'text': '', 'finish_reason': 'length'}], 'usage': usage})}\n\n"
        if twice:
            yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"

    engine = await started(server)
    server.stream = lambda request, body: stream(body)
    chunks = await collect(engine, [1])
    assert [value for chunk in chunks for value in chunk.logprobs] == [-0.75]
    last = chunks[-1]
    assert (last.finish, last.prompt_tokens, last.generated_tokens, last.cached_tokens) == (
        EngineFinish.LENGTH,
        20,
        1,
        12,
    )
    statistics = engine.statistics()
    assert (statistics.prompt_tokens, statistics.cached_tokens, statistics.generated_tokens) == (20, 12, 1)
    await engine.close()


async def test_a_model_that_was_trained_to_chat_is_not_taken_unasked(server: Server) -> None:
    server.models = ["coder-instruct", "coder"]
    engine = await started(server)
    assert engine.capabilities().model == "coder"
    await engine.close()
    server.models = ["coder-instruct"]
    with pytest.raises(
        EngineUnavailableError, match=r"coder-instruct, trained to chat by its name, .* serve its base model"
    ):
        await started(server)
    await (await started(server, model="coder-instruct")).close()


async def test_a_list_of_ids_that_is_accepted_and_read_as_text_is_none(server: Server) -> None:
    server.counts = 3
    engine = await started(server)
    await collect(engine, [1], prompt_text="def f")
    assert server.bodies[0]["prompt"] == "def f"
    await engine.close()
