"""Chat and whole blocks on a quality pool: our own gateway is its OpenAI-compatible server where one is needed."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from backend.scrape import total
from backend.world import TOKENIZER, TOKENIZER_PATH, World, closing, complete, gateway
from foretype_backend.admission.limits import Budget
from foretype_backend.admission.outcomes import Decision
from foretype_backend.chat.answer_pace import AnswerPace
from foretype_backend.chat.door import ChatRequest
from foretype_backend.chat.pool import QualityPool, open_quality
from foretype_backend.chat.templates import OTHER, TemplateHitRates, template_name
from foretype_backend.config.config import Config
from foretype_backend.config.settings import LimitsConfig, PoolsConfig, QualityConfig
from foretype_backend.engines.port import Chunk, GenerationRequest
from foretype_backend.engines.scripted import ScriptedEngine
from foretype_backend.errors import FAULT_MESSAGES, ConfigError, EngineUnavailableError, Fault
from foretype_backend.identity.accounts import Accounts
from foretype_backend.identity.directory import Principal, Tenant, Tier
from foretype_backend.serving.served_revision import BlockPool
from foretype_backend.serving.service import CompletionService
from foretype_backend.transport.server import running
from foretype_wire.messages import Delta, Error, ErrorCode, RequestClass
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

ASK: dict[str, Any] = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]}


class Upstream:
    """An instruct server: remembers headers and bodies, answers in five pieces, counts a history that it has seen as cached."""

    def __init__(self) -> None:
        self.headers: list[Any] = []
        self.bodies: list[dict[str, Any]] = []
        self.broken = False
        self.app = Starlette()
        self.app.add_route("/v1/models", self.models, methods=["GET"])
        self.app.add_route("/v1/chat/completions", self.chat, methods=["POST"])

    async def models(self, request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": "instruct"}]})

    async def chat(self, request: Request) -> Any:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers)
        if self.broken:
            return JSONResponse({"error": {"message": "no memory"}}, status_code=500)
        seen = [former["messages"] for former in self.bodies[:-1]]
        turns = len(body["messages"])
        cached = max((10 * n for n in range(turns) for old in seen if old[:n] == body["messages"][:n]), default=0)

        async def events() -> AsyncGenerator[str]:
            for piece in ("Be", "cause", " it", " is", "."):
                yield f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': piece}}]})}\n\n"
            yield f"data: {json.dumps({'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'stop'}]})}\n\n"
            usage = {
                "prompt_tokens": 10 * turns,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


def pool_of(url: str, *, tracing: Any = None, **fields: Any) -> QualityPool:
    quality = QualityConfig(url=url, **fields)
    config = Config(pool=PoolsConfig(quality=quality), limits=LimitsConfig(retry_wait_ms=100))
    pool = open_quality(config, TOKENIZER, tracing=tracing)
    assert pool is not None
    return pool


@asynccontextmanager
async def chatting(tracing: Any = None, **fields: Any) -> AsyncGenerator[tuple[World, Upstream]]:
    upstream = Upstream()
    config = Config()
    config = msgspec.structs.replace(config, gateway=msgspec.structs.replace(config.gateway, port=0))
    async with running(upstream.app, config) as (host, port):
        pool = pool_of(f"http://{host}:{port}/v1", tracing=tracing, **fields)
        await pool.start()
        async with closing(pool), gateway(quality=pool, tracing=tracing) as world:
            yield world, upstream


async def test_an_answer_comes_whole_and_its_history_is_a_cached_prefix() -> None:
    async with chatting() as (world, upstream), world.http() as http:
        headers = {"x-foretype-template": "explain"}
        first = (await http.post("/v1/chat/completions", json=ASK, headers=headers)).json()
        assert first["choices"][0]["message"] == {"role": "assistant", "content": "Because it is."}
        assert first["usage"] == {
            "prompt_tokens": 20,
            "completion_tokens": 5,
            "total_tokens": 25,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        turn = [*ASK["messages"], first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
        second = (await http.post("/v1/chat/completions", json={"messages": turn}, headers=headers)).json()
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 20
        assert upstream.bodies[1]["messages"] == turn
        (report,) = world.gateway.chat.templates.report()
        assert (report.template, report.hit_rate, report.changing) == ("explain", 20 / 60, False)
        metrics = (await http.get("/metrics")).text
        for times in ("ttft", "tpot"):
            assert f'foretype_chat_{times}_seconds_count{{pool="quality",tier="paid"}} 2.0' in metrics
        assert metrics.count("# TYPE foretype_requests_total counter") == 1


async def test_an_answer_is_streamed_as_openai_does() -> None:
    async with chatting() as (world, _), world.http() as http:
        asked = ASK | {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 9, "temperature": 0.5}
        answer = await http.post("/v1/chat/completions", json=asked)
        events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
        assert events[-1] == "[DONE]"
        parsed = [json.loads(event) for event in events[:-1]]
        assert parsed[0]["choices"][0]["delta"]["role"] == "assistant"
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in parsed if event["choices"])
        assert text == "Because it is."
        assert [event["choices"][0]["finish_reason"] for event in parsed if event["choices"]][-1] == "stop"
        assert parsed[-1]["usage"]["completion_tokens"] == 5


async def test_what_goes_upstream_is_what_was_checked() -> None:
    async with chatting(model="instruct") as (world, upstream), world.http() as http:
        parts = [{"type": "text", "text": "Wh"}, {"type": "text", "text": "y?"}]
        asked = {"messages": [{"role": "user", "content": parts}], "stop": "\n", "seed": 7, "max_tokens": 3}
        assert (await http.post("/v1/chat/completions", json=asked)).status_code == 200
        body = upstream.bodies[0]
        assert body["messages"] == [{"role": "user", "content": "Why?"}]
        assert (body["model"], body["stop"], body["seed"], body["max_tokens"]) == ("instruct", ["\n"], 7, 3)


async def test_null_counts_as_left_out() -> None:
    nothing = dict.fromkeys(set(ChatRequest.__struct_fields__) - {"messages"})
    async with chatting() as (world, upstream), world.http() as http:
        asked = ASK | nothing | {"stream_options": {"include_usage": None}}
        assert (await http.post("/v1/chat/completions", json=asked)).status_code == 200
        await http.post("/v1/chat/completions", json=ASK)
        assert upstream.bodies[0] == upstream.bodies[1]
        refused = await http.post("/v1/chat/completions", json=ASK | {"logit_bias": {"1": 1}})
        assert refused.json()["error"]["param"] == "logit_bias"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "word " * 9000}]}, "messages"),
        ({"tools": []}, "tools"),
        ({"n": 2}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"stop": ["a"] * 17}, "stop.strings"),
    ],
)
async def test_a_bad_field_is_named(change: dict[str, Any], field: str) -> None:
    async with chatting() as (world, upstream), world.http() as http:
        answer = await http.post("/v1/chat/completions", json=ASK | change)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
        assert not upstream.bodies


async def test_a_model_that_the_pool_has_not_is_refused_where_its_name_is_known() -> None:
    async with chatting(model="instruct", free_model="small") as (world, upstream), world.http() as http:
        answer = await http.post("/v1/chat/completions", json=ASK | {"model": "gpt-4o"})
        told = answer.json()["error"]
        assert (answer.status_code, told["code"]) == (404, "model_not_found")
        assert told["message"] == "there is no model 'gpt-4o' here; there are instruct, small"
        assert not upstream.bodies
        assert [one["id"] for one in (await http.get("/v1/models")).json()["data"]][-2:] == ["instruct", "small"]
        assert (await http.post("/v1/chat/completions", json=ASK | {"model": "instruct"})).status_code == 200


async def test_a_pool_that_is_missing_or_away_says_so() -> None:
    async with gateway() as world, world.http() as http:
        answer = await http.post("/v1/chat/completions", json=ASK)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "pool_missing")
    away = pool_of("http://127.0.0.1:1/v1")
    await away.start()
    async with gateway(quality=away) as world, world.http() as http:
        answer = await http.post("/v1/chat/completions", json=ASK)
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == FAULT_MESSAGES[Fault.LOST]
        await world.idle()
    await away.close()


async def test_a_server_that_fails_is_told_in_our_words() -> None:
    async with chatting() as (world, upstream), world.http() as http:
        upstream.broken = True
        answer = await http.post("/v1/chat/completions", json=ASK)
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == FAULT_MESSAGES[Fault.ERROR], "the server's own words may name hosts"


async def test_a_block_goes_to_the_quality_pool_and_fails_over_to_the_fast_one() -> None:
    async with gateway() as quality_server:
        quality = pool_of(
            f"{quality_server.url}/v1", tokenizer=str(TOKENIZER_PATH), grammar="foretype-1", context_limit_tokens=2000
        )
        await quality.start()
        async with gateway(quality=quality) as world, world.peer() as peer:
            text, _ = await peer.answer("b", class_=RequestClass.BLOCK)
            assert text
            assert not world.engine.requests
            assert quality_server.engine.requests
            await peer.answer("i")
            assert len(world.engine.requests) == 1
            await quality.close()
            text, _ = await peer.answer("c", class_=RequestClass.BLOCK)
            assert text
            assert len(world.engine.requests) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_admission_refuses_for_the_load_says_so_and_when_to_come_again(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting() as (world, _), world.http() as http:
        monkeypatch.setattr(world.gateway.chat._pool.chat.scheduler, "_refusal", lambda *_: Decision.CLASS_SHED)
        answer = await http.post("/v1/chat/completions", json=ASK | {"stream": stream})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
        assert int(answer.headers["Retry-After"]) >= 1


class Breaks(ScriptedEngine):
    """Answers in part, and is lost."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk]:
        yield Chunk(token_ids=tuple(TOKENIZER.encode("x + 1\ny =")))
        raise EngineUnavailableError("gone")


async def test_a_block_that_was_answered_in_part_is_answered_by_nobody_else() -> None:
    """A second answer behind the half of the first would be put into the file as one."""
    async with gateway() as world, world.peer() as peer:
        engine = Breaks(lambda _: (), context_limit_tokens=2048, vocabulary_tokens=TOKENIZER.vocabulary_tokens)
        limits = LimitsConfig(retry_wait_ms=0)
        service = CompletionService(engine, TOKENIZER, end_token_ids=frozenset(), limits=limits)
        world.gateway.stream.block = BlockPool(service, world.gateway.stream.main.renderer, fails_over=True)
        await peer.send(complete("b", class_=RequestClass.BLOCK))
        said = [await peer.receive()]
        while isinstance(said[-1], Delta):
            said.append(await peer.receive())
        assert "".join(one.text for one in said if isinstance(one, Delta)) == "x + 1\ny ="
        assert isinstance(said[-1], Error) and said[-1].code is ErrorCode.ENGINE_UNAVAILABLE
        assert not world.engine.requests


async def test_a_tier_whose_answers_crawl_takes_no_new_ones_until_they_do_not() -> None:
    pace = AnswerPace(paid_s=0.04, free_s=0.06)

    def flow(paid_s: float, free_s: float, now: float) -> tuple[bool, bool]:
        for _ in range(200):
            pace.note(Tier.PAID, paid_s)
            pace.note(Tier.FREE, free_s)
        return pace.sheds(Tier.PAID, now), pace.sheds(Tier.FREE, now)

    assert flow(0.01, 0.01, 0.0) == (False, False)
    assert flow(0.05, 0.05, 1.0) == (False, True), "the free tier stops first"
    assert flow(0.05, 0.05, 2.0) == (True, True)
    assert flow(0.05, 0.05, 2.1) == (True, True), "looked at twice a second alone"
    assert [pace.sheds(tier, now) for now in (3.0, 4.0, 5.0, 6.0, 7.0) for tier in (Tier.PAID,)][-1] is False
    assert not pace.sheds(Tier.FREE, 8.0)
    async with chatting() as (world, upstream), world.http() as http:
        pool_pace = world.gateway.chat._pool.pace
        for turn in range(2):
            for _ in range(50):
                pool_pace.note(Tier.PAID, 1.0)
            answer = await http.post("/v1/chat/completions", json=ASK)
            pool_pace._turned = None
            assert answer.status_code == (200 if turn == 0 else 503)
        assert answer.headers["Retry-After"] == "2"
        assert len(upstream.bodies) == 1


async def test_an_answer_that_is_refused_for_the_load_holds_nothing_of_its_budget_and_is_counted() -> None:
    async with chatting() as (world, upstream), world.http() as http:
        pool = world.gateway.chat._pool
        pool.chat.accounts = accounts = Accounts(lambda: "2026-01-01")
        budget, name = Budget(tokens_per_s=1, burst_tokens=50_000), Principal().tenant
        accounts.quotas.follow({name: Tenant(name=name, budgets={"tenant": budget})}, asyncio.get_running_loop().time())
        pool.pace._shed, pool.pace._turned = {Tier.PAID}, asyncio.get_running_loop().time() + 1e6
        for _ in range(20):
            assert (await http.post("/v1/chat/completions", json=ASK)).status_code == 503
        pool.pace._shed = set()
        assert (await http.post("/v1/chat/completions", json=ASK)).status_code == 200
        assert len(upstream.bodies) == 1
        metrics = pool.chat.metrics.render()
        assert total(metrics, "foretype_requests_received_total") == total(metrics, "foretype_requests_total") == 21


def test_a_pool_names_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match=r"pool\.quality\.url: .*http"):
        pool_of("quality:8000")
    with pytest.raises(ConfigError, match=r"pool\.quality\.grammar: belongs to the tokenizer"):
        pool_of("http://q/v1", tokenizer=str(TOKENIZER_PATH))
    with pytest.raises(ConfigError, match=r"pool\.quality\.tokenizer"):
        pool_of("http://q/v1", tokenizer="/nowhere", grammar="foretype-1")


def test_a_template_whose_beginning_changes_is_found() -> None:
    templates = TemplateHitRates()
    for minute in range(10):
        templates.asked("clock", f"Today is {minute}. Be brief.")
        templates.asked("still", "Be brief.")
    reports = {report.template: report for report in templates.report()}
    assert (reports["clock"].changing, reports["clock"].stable_characters) == (True, len("Today is "))
    assert not reports["still"].changing


def test_labels_are_few_and_never_text_of_a_user() -> None:
    templates = TemplateHitRates()
    labels = {templates.asked(template_name(f"t{number}"), "x") for number in range(100)}
    assert len(labels) == 33
    assert template_name("def f(x):") == template_name(None) == OTHER


@given(st.lists(st.text(max_size=30), min_size=1, max_size=20))
def test_the_stable_beginning_is_the_longest_that_all_share(texts: list[str]) -> None:
    templates = TemplateHitRates()
    for text in texts:
        templates.asked("t", text)
    shared = templates.report()[0].stable_characters
    assert all(text[:shared] == texts[0][:shared] for text in texts)
    assert shared == min(map(len, texts)) or len({text[: shared + 1] for text in texts}) > 1
