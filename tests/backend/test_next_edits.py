"""Next edits through a gateway: asked on the stream and over HTTP, admitted in a class of their own, answered with one safe edit."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from backend.world import TOKENIZER, TOKENIZER_PATH, Peer, closing, gateway, profile, scripted, until
from context.tiny import raw
from foretype_backend.admission.degradation import profile_at
from foretype_backend.chat.edit_pool import open_edit_pool
from foretype_backend.config.config import Config
from foretype_backend.config.settings import LimitsConfig, ModelConfig, NextEditConfig, PoolsConfig
from foretype_backend.engines.port import Chunk, GenerationRequest
from foretype_backend.engines.scripted import ScriptedEngine
from foretype_context.edit_models.format import edit_format
from foretype_context.edit_models.prompt import EditPrompts
from foretype_context.edit_models.question import EditQuestion, EditWindow, RecentEdit, WindowEdit
from foretype_context.grammars.grammar import GRAMMARS
from foretype_context.prompt.profile import Service
from foretype_context.tokens.tokenizer import tokenizer_from_bytes
from foretype_wire.messages import VERSION, Cancel, Done, Edited, Error, ErrorCode, Finish, Hello, NextEdit

SWEEP = "sweep-next-edit"
WINDOW = "def total(basket):\n    sum = 0\n    for one in items:\n        sum += one\n    return sum\n"
NEXT = WINDOW.replace("items", "basket")
EDIT = WindowEdit(start=WINDOW.index("items"), end=WINDOW.index("items") + 5, text="basket")
OWN: dict[str, Any] = {"sections": {"model": ModelConfig(next_edit=SWEEP)}}


def question(**fields: Any) -> EditQuestion:
    given: dict[str, Any] = {"path": "a.py", "window": WINDOW, "cursor": 18}
    return EditQuestion(**(given | fields))


def asked(id: str = "n1", **fields: Any) -> NextEdit:
    return NextEdit(**({"id": id, "document": "file:///w/a.py", "question": question()} | fields))


async def answered(peer: Peer, id: str = "n1") -> tuple[Edited | None, Done | Error]:
    edited: Edited | None = None
    while True:
        message = await peer.receive()
        if isinstance(message, Edited):
            assert edited is None and message.id == id
            edited = message
        else:
            assert isinstance(message, Done | Error) and message.id == id, message
            return edited, message


@pytest.mark.parametrize("json", [False, True], ids=["msgpack", "json"])
async def test_a_question_is_answered_with_one_edit_of_its_window(json: bool) -> None:
    edits = [RecentEdit(path="a.py", old="def total(items):\n", new="def total(basket):\n")]
    async with gateway(scripted(NEXT), **OWN) as world, world.peer(json=json) as peer:
        await peer.send(asked(question=question(edits=edits)))
        edited, end = await answered(peer)
        assert edited == Edited(id="n1", edit=EDIT)
        assert isinstance(end, Done) and end.finish is Finish.END_OF_MIDDLE
        wanted = EditPrompts(TOKENIZER, edit_format(SWEEP)).encode(question(edits=edits), most_tokens=2048)
        assert end.usage.prompt_tokens == len(wanted.ids)
        assert list(world.engine.requests[-1]) == wanted.ids.tolist(), (
            "what the engine got is the prompt of the format, id for id"
        )
        await peer.still_works()
        async with world.http() as http:
            metrics = (await http.get("/metrics")).text
    assert 'foretype_requests_total{class="next_edit",reason="end_of_middle"} 1.0' in metrics
    assert 'foretype_objective_total{class="next_edit",outcome="met"} 1.0' in metrics
    assert 'foretype_admission_total{class="next_edit",decision="started"} 1.0' in metrics


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (WINDOW, "nothing"),
        ("x" * 3000, "cut"),
        (NEXT + "    return sum\n", "tail"),
        (NEXT + "<|marker_1|>\n", "marker"),
        ("int main() {}\n", "unreadable"),
    ],
)
async def test_what_is_no_edit_is_told_as_none(answer: str, reason: str) -> None:
    async with gateway(scripted(answer), **OWN) as world, world.peer() as peer:
        await peer.send(asked())
        edited, end = await answered(peer)
        assert edited == Edited(id="n1", reason=reason) and isinstance(end, Done)
        await world.idle()


async def test_markers_that_are_tokens_of_the_vocabulary_are_read() -> None:
    zeta = edit_format("zeta-2.1")
    tokens = {*zeta.controls(), *zeta.end_tokens, *GRAMMARS["seed-coder"].controls()}
    words = {"<|marker_1|>", "<|marker_2|>", "<|user_cursor|>", "<filename>"}
    tokenizer = tokenizer_from_bytes(raw("qwen2", frozenset(tokens | words)))
    answer = [
        tokenizer.control("<|marker_1|>"),
        *tokenizer.encode("\n" + NEXT),
        tokenizer.control("<|marker_2|>"),
        *tokenizer.encode("\nand on and on" * 20),
    ]
    engine = ScriptedEngine(lambda _: answer, context_limit_tokens=4096, vocabulary_tokens=tokenizer.vocabulary_tokens)
    told = profile(grammar="seed-coder", layout="spm_plain", context_limit_tokens=4096)
    section = {"model": ModelConfig(next_edit="zeta-2.1")}
    async with (
        gateway(engine, tokenizer=tokenizer, with_profile=told, sections=section) as world,
        world.peer() as peer,
    ):
        await peer.send(asked())
        edited, end = await answered(peer)
        assert edited == Edited(id="n1", edit=EDIT)
        assert isinstance(end, Done) and end.usage.generated_tokens < len(answer) - 20, (
            "what is behind the marker is not waited for"
        )
        await world.idle()


async def test_without_a_model_a_question_is_refused_and_the_connection_lives() -> None:
    async with gateway(scripted("x + 1\n")) as world, world.peer() as peer, world.http() as http:
        await peer.send(asked())
        refused = await peer.error()
        assert (refused.code, refused.field) == (ErrorCode.INVALID_REQUEST, "type")
        assert refused.id == "n1" and "model.next_edit" in refused.message
        await peer.still_works()
        answer = await http.post("/v1/next_edit", json={"question": {"window": "a\n", "cursor": 0}})
        assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_missing"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"question": question(window="")}, "question.window"),
        ({"question": question(cursor=999)}, "question.cursor"),
        ({"question": question(window="a <|file_sep|> b\n", cursor=0)}, "question.window"),
        ({"question": question(window="word " * 3000, cursor=0)}, "question.window"),
        ({"deadline_ms": 0.0}, "deadline_ms"),
    ],
)
async def test_a_wrong_question_is_named_by_its_field(fields: dict[str, Any], field: str) -> None:
    async with gateway(scripted(NEXT), **OWN) as world, world.peer() as peer:
        await peer.send(asked(**fields))
        _, end = await answered(peer)
        assert isinstance(end, Error) and (end.code, end.field) == (ErrorCode.INVALID_REQUEST, field)
        raw_fields = msgspec.to_builtins(asked("n2"))
        raw_fields["question"]["window"] = "x" * 20_000
        await peer.send(msgspec.msgpack.encode(raw_fields))
        too_long = await peer.error()
        assert (too_long.id, too_long.field) == ("n2", "question.window")
        await peer.still_works()


async def test_a_cancel_frees_the_slot() -> None:
    engine = scripted(NEXT * 20, decode_s_per_token=30.0)
    async with gateway(engine, **OWN) as world, world.peer() as peer:
        await peer.send(asked())
        await until(lambda: engine.statistics().running == 1)
        await peer.send(Cancel(id="n1"))
        edited, end = await answered(peer)
        assert edited is None and isinstance(end, Done) and end.finish is Finish.CANCELLED
        await world.idle()
        await peer.send(Cancel(id="n2"))
        await peer.send(asked("n2"))
        edited, end = await answered(peer, "n2")
        assert edited is None and isinstance(end, Done) and end.finish is Finish.CANCELLED, "a cancel that came first"


async def test_a_newer_question_ends_the_one_that_it_names_and_a_lost_client_all() -> None:
    engine = scripted(NEXT * 20, decode_s_per_token=30.0)
    async with gateway(engine, **OWN) as world:
        async with world.peer() as peer:
            await peer.send(asked())
            await until(lambda: engine.statistics().running == 1)
            await peer.send(asked("n2", supersedes="n1"))
            _, end = await answered(peer)
            assert isinstance(end, Done) and end.finish is Finish.CANCELLED
            await until(lambda: engine.statistics().running == 1)
        await world.idle()


async def test_over_http_the_same_edit_comes() -> None:
    body = {"question": {"path": "a.py", "window": WINDOW, "cursor": 18}}
    async with gateway(scripted(NEXT), **OWN) as world, world.http() as http:
        answer = await http.post("/v1/next_edit", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["edit"] == msgspec.structs.asdict(EDIT) and answer.json()["reason"] == ""
        assert answer.json()["usage"]["prompt_tokens"] > 0
        for wrong, field in (
            ({"question": {"window": WINDOW}}, "question"),
            ({"question": {"window": WINDOW, "cursor": -1}}, "question.cursor"),
            ({"question": {"window": "", "cursor": 0}}, "question.window"),
            (body | {"deadline_ms": 0}, "deadline_ms"),
            (body | {"surprise": 1}, "surprise"),
        ):
            refused = await http.post("/v1/next_edit", json=wrong)
            assert refused.status_code == 400 and refused.json()["error"]["param"].startswith(field), refused.text


async def test_a_model_on_a_server_of_its_own_answers_and_one_that_is_away_keeps_nobody_waiting() -> None:
    seen: list[str] = []

    def give(prompt: str) -> str:
        seen.append(prompt)
        return NEXT

    async with gateway(scripted(give)) as upstream:
        pool = NextEditConfig(
            url=f"{upstream.url}/v1", format=SWEEP, tokenizer=str(TOKENIZER_PATH), context_limit_tokens=2000
        )
        config = Config(pool=PoolsConfig(next_edit=pool), limits=LimitsConfig(retry_wait_ms=100))
        opened = open_edit_pool(config)
        assert opened is not None
        await opened.start()
        async with (
            closing(opened),
            gateway(scripted("x + 1\n"), edit_pool=opened) as world,
            world.peer() as peer,
            world.http() as http,
        ):
            await peer.send(asked())
            edited, end = await answered(peer)
            assert edited == Edited(id="n1", edit=EDIT) and isinstance(end, Done), end
            assert "updated/a.py" in seen[-1]
            await peer.still_works()
            assert 'pool="next_edit"' in (await http.get("/metrics")).text
    away = open_edit_pool(
        msgspec.structs.replace(
            config, pool=PoolsConfig(next_edit=msgspec.structs.replace(pool, url="http://127.0.0.1:9/v1"))
        )
    )
    assert away is not None
    await away.start()
    async with closing(away), gateway(scripted("x + 1\n"), edit_pool=away) as world, world.peer() as peer:
        await peer.send(asked())
        edited, end = await answered(peer)
        assert edited is None and isinstance(end, Error) and end.code is ErrorCode.ENGINE_UNAVAILABLE
        await peer.still_works()


def test_a_loaded_gateway_asks_for_less_and_in_the_end_for_nothing() -> None:
    window = EditWindow(model="m", format="zeta-2.1", around_lines=80, edits=8, related=True)
    full = profile(next_edit=window)
    assert profile_at(full, Service.FULL).next_edit == window
    assert profile_at(full, Service.NO_RETRIEVAL).next_edit == msgspec.structs.replace(window, related=False)
    short = profile_at(full, Service.SHORT_CONTEXT).next_edit
    assert short == msgspec.structs.replace(window, related=False, around_lines=40, edits=4)
    assert profile_at(full, Service.CACHE_ONLY).next_edit is None
    assert all(profile_at(profile(), rung).next_edit is None for rung in Service)


@pytest.mark.parametrize("path", ["a\n", "a\r", "a\nb", "\n"])
async def test_a_path_has_no_line_ending(path: str) -> None:
    async with gateway(scripted(NEXT), **OWN) as world, world.http() as http:
        body = {"question": {"path": path, "window": WINDOW, "cursor": 0}}
        answer = await http.post("/v1/next_edit", json=body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "question.path"


async def test_a_question_goes_to_the_revision_of_its_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom a client names stays with one revision while another is rolled out, whatever is asked."""
    engine, developers = scripted(NEXT), list[str]()
    generate = engine.generate

    def noted(request: GenerationRequest) -> AsyncIterator[Chunk]:
        assert request.origin is not None
        developers.append(request.origin.developer)
        return generate(request)

    monkeypatch.setattr(engine, "generate", noted)
    async with gateway(engine, **OWN) as world, world.peer(hello=Hello(v=VERSION, user="ann")) as peer:
        await peer.send(asked())
        await answered(peer)
        await peer.answer()
    assert developers == ["default/ann"] * 2
