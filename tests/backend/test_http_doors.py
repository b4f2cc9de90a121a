"""The compatibility doors: OpenAI completions, llama.cpp infill, health, metrics, tokenizer; and who may use them."""

import asyncio
import json
import re
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from backend.world import TOKEN, TOKENIZER, TOKENIZER_PATH, gateway, profile, scripted, until
from context.tiny import tiny
from foretype_backend.config.settings import ModelConfig
from foretype_backend.doors.infill import InfillRequest
from foretype_backend.doors.openai_request import CompletionRequest
from foretype_backend.engines.scripted import ScriptedEngine, fixed
from foretype_backend.errors import EngineUnavailableError
from foretype_context.grammars.grammar import grammar

FIM = {"prompt": "def f(x):\n    ret", "suffix": "\nprint(f(1))\n", "max_tokens": 32}


class Hanging:
    """A sleep that never returns, so that the engine never answers."""

    async def __call__(self, seconds: float) -> None:
        await asyncio.Event().wait()


def events(response: httpx.Response) -> list[Any]:
    parts = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    return [part if part == "[DONE]" else json.loads(part) for part in parts]


async def test_completions_with_suffix_fills_in_the_middle() -> None:
    async with gateway(scripted("urn x\n")) as world, world.http() as http:
        answer = (await http.post("/v1/completions", json=FIM)).json()
        assert answer["object"] == "text_completion"
        assert answer["choices"][0]["text"] == "urn x\n"
        assert answer["choices"][0]["finish_reason"] == "stop"
        usage = answer["usage"]
        prompt = world.engine.requests[-1]
        assert usage["prompt_tokens"] == len(prompt)
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert TOKENIZER.decode(prompt).decode() == "def f(x):\nprint(f(1))\n    ret"


async def test_the_text_right_of_the_cursor_becomes_the_tail() -> None:
    async with gateway() as world, world.http() as http:
        await http.post("/v1/completions", json=FIM | {"prompt": "a(", "suffix": ")\nb\n"})
        prompt = world.engine.requests[-1]
        tail = prompt.index(TOKENIZER.control("<|fim_tail|>"))
        middle = prompt.index(TOKENIZER.control("<|fim_middle|>"))
        assert TOKENIZER.decode(prompt[tail:middle]) == b")"


async def test_completions_stream_gives_the_same_text_and_usage() -> None:
    async with gateway(scripted("urn x\n")) as world, world.http() as http:
        body = FIM | {"stream": True, "stream_options": {"include_usage": True}}
        response = await http.post("/v1/completions", json=body)
        assert response.headers["content-type"].startswith("text/event-stream")
        *chunks, usage, done = events(response)
        assert done == "[DONE]"
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "urn x\n"
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        assert len({chunk["id"] for chunk in chunks}) == 1
        assert usage["usage"]["completion_tokens"] > 0


async def test_a_prompt_that_carries_control_tokens_is_taken_as_it_is() -> None:
    async with gateway() as world, world.http() as http:
        prompt = "<|fim_prefix|>def f():\n<|fim_suffix|>\n<|fim_middle|>    ret"
        await http.post("/v1/completions", json={"prompt": prompt})
        sent = world.engine.requests[-1]
        assert sent[0] == TOKENIZER.control("<|fim_prefix|>")
        assert TOKENIZER.control("<|fim_middle|>") in sent


async def test_control_tokens_in_a_prompt_with_suffix_are_text_of_a_file() -> None:
    async with gateway() as world, world.http() as http:
        await http.post("/v1/completions", json={"prompt": "x = '<|fim_middle|>'\n", "suffix": ""})
        assert world.engine.requests[-1].count(TOKENIZER.control("<|fim_middle|>")) == 1


async def test_token_ids_are_a_prompt_too() -> None:
    async with gateway() as world, world.http() as http:
        ids = TOKENIZER.encode("def f():\n")
        await http.post("/v1/completions", json={"prompt": ids})
        assert list(world.engine.requests[-1]) == ids


@pytest.mark.parametrize(
    "field", [*(set(CompletionRequest.__struct_fields__) - {"prompt"}), "logprobs", "stream_options.include_usage"]
)
async def test_null_counts_as_left_out(field: str) -> None:
    name, _, inner = field.partition(".")
    async with gateway() as world, world.http() as http:
        response = await http.post(
            "/v1/completions", json={"prompt": "def f():\n", name: {inner: None} if inner else None}
        )
        assert response.status_code == 200, response.text


@pytest.mark.parametrize("field", [*InfillRequest.__struct_fields__, "input_extra.text", "input_extra.filename"])
async def test_null_counts_as_left_out_of_infill(field: str) -> None:
    name, _, inner = field.partition(".")
    body = {"input_prefix": "def f(", "input_suffix": "", "prompt": "", name: [{inner: None}] if inner else None}
    async with gateway() as world, world.http() as http:
        response = await http.post("/infill", json=body)
        assert response.status_code == 200 and response.json()["stop"] is True, response.text


async def test_one_list_of_token_ids_in_a_list_is_the_prompt() -> None:
    async with gateway() as world, world.http() as http:
        ids = TOKENIZER.encode("def f():\n")
        assert (await http.post("/v1/completions", json={"prompt": [ids]})).status_code == 200
        assert list(world.engine.requests[-1]) == ids
        for several in ([ids, ids], [ids, "a"], [[]]):
            assert (await http.post("/v1/completions", json={"prompt": several})).json()["error"]["param"] == "prompt"


async def test_what_ends_a_text_in_the_models_grammar_ends_it_at_every_door() -> None:
    rules = msgspec.to_builtins(msgspec.structs.replace(grammar("foretype-1"), id="ends-1", stops=("\nthree",)))
    served = profile(grammar="ends-1", grammar_rules=rules)
    async with gateway(scripted("one\ntwo\nthree"), with_profile=served) as world, world.http() as http:
        answer = (await http.post("/v1/completions", json=FIM | {"stop": ["zzz"]})).json()
        assert answer["choices"][0]["text"] == "one\ntwo"
        answer = (await http.post("/infill", json={"input_prefix": "def f(", "input_suffix": "", "prompt": ""})).json()
        assert answer["content"] == "one\ntwo"


async def test_stop_and_max_tokens_are_kept() -> None:
    async with gateway(scripted("one\ntwo\nthree")) as world, world.http() as http:
        answer = (await http.post("/v1/completions", json=FIM | {"stop": ["\nthree", "zzz"]})).json()
        assert answer["choices"][0]["text"] == "one\ntwo"
        answer = (await http.post("/v1/completions", json=FIM | {"stop": "\n", "max_tokens": 1})).json()
        assert answer["usage"]["completion_tokens"] == 1


NOT_DONE: list[dict[str, Any]] = [
    {"top_p": 7},
    {"top_p": -0.1},
    {"min_p": 2},
    {"top_k": -2},
    {"presence_penalty": 0.5},
    {"frequency_penalty": -1},
    {"repetition_penalty": 1.1},
    {"logit_bias": {"300": -100}},
    {"logprobs": 3},
    {"logprobs": 0},
    {"min_tokens": 4},
    {"response_format": {"type": "json_object"}},
    {"max_completion_tokens": 5},
    {"ignore_eos": True},
    {"anything": None},
]
"""Each changes the answer of a gateway that does it, at any temperature; an unknown one may."""
NOT_DRAWN: list[dict[str, Any]] = [{"top_p": 0.01}, {"top_k": 1}, {"min_p": 0.1}, {"seed": 7}]
SAYS_NOTHING: list[dict[str, Any]] = [
    *({**one, "temperature": 0} for one in NOT_DRAWN),
    *NOT_DRAWN,
    {"temperature": 0.5, "top_p": 1, "top_k": -1, "min_p": 0, "seed": None},
    {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1, "logit_bias": {}, "logprobs": None},
    {"min_tokens": 0, "response_format": {"type": "text"}, "user": "ann", "n": 1, "best_of": 1, "echo": False},
    {"model": "scripted"},
    {"model": "foretype"},
    {"model": ""},
]


@pytest.mark.parametrize("fields", SAYS_NOTHING)
async def test_fields_that_change_nothing_are_taken(fields: dict[str, Any]) -> None:
    async with gateway(scripted("one\n")) as world, world.http() as http:
        answer = await http.post("/v1/completions", json=FIM | fields)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["text"] == "one\n"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": 3}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
        ({"prompt": "a", "temperature": 9}, "temperature"),
        ({"prompt": "a", "n": 2}, "n"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "stop": [""]}, "stop"),
        ({"prompt": "a", "stream": "yes"}, "stream"),
        ({"prompt": "word " * 5000}, "prompt"),
        ({"prompt": " " * 1_000_000}, "prompt"),
        ({"prompt": " " * 1_000_000, "suffix": ""}, "segments"),
        ("no object", "body"),
        ({"prompt": [300, 301], "suffix": "x"}, "suffix"),
        *(({"prompt": "a", **one}, next(iter(one))) for one in NOT_DONE),
        *(({"prompt": "a", "temperature": 0.5, **one}, next(iter(one))) for one in NOT_DRAWN),
    ],
)
async def test_a_bad_body_is_400_and_names_the_parameter(body: Any, param: str) -> None:
    async with gateway() as world, world.http() as http:
        response = await http.post("/v1/completions", json=body)
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", param)


async def test_no_json_is_400_and_a_body_over_the_limit_413() -> None:
    async with gateway() as world, world.http() as http:
        assert (await http.post("/v1/completions", content=b"\xff{")).status_code == 400
        assert (await http.post("/v1/completions", content=b"[" * 200_000)).status_code == 400
        assert (await http.post("/v1/completions", content=b"x" * (2 << 20))).status_code == 413

        async def endless() -> Any:
            for _ in range(40):
                yield b"x" * (1 << 16)

        assert (await http.post("/v1/completions", content=endless())).status_code in (400, 413)


@pytest.mark.parametrize("path", ["/v1/completions", "/infill"])
async def test_a_body_that_calls_itself_no_json_is_refused(path: str) -> None:
    body = json.dumps({"prompt": "a = "}).encode()
    async with gateway(scripted("one\n")) as world, world.http() as http:
        for named in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
            answer = await http.post(path, content=body, headers={"Content-Type": named})
            assert answer.status_code == 400
            assert "Content-Type" in answer.text and f"must be application/json, not {named}" in answer.text
        for named in ("application/json", "Application/JSON; charset=utf-8"):
            assert (await http.post(path, content=body, headers={"Content-Type": named})).status_code == 200
        assert (await http.post(path, content=body)).status_code == 200, "a client that does not say what it sends"


async def test_models_are_listed_told_one_by_one_and_no_other_is_served() -> None:
    named = {"model": ModelConfig(aliases=("foretype", "us/coder:7b"))}
    async with gateway(sections=named) as world, world.http() as http:
        listed = (await http.get("/v1/models")).json()["data"]
        assert [one["id"] for one in listed] == ["scripted", "foretype", "us/coder:7b"]
        for one in listed:
            assert (await http.get(f"/v1/models/{quote(one['id'], safe='')}")).json() == one
            assert (await http.post("/v1/completions", json=FIM | {"model": one["id"]})).status_code == 200
        unknown = (
            await http.get("/v1/models/gpt-4o"),
            await http.post("/v1/completions", json=FIM | {"model": "gpt-4o"}),
        )
        for answer in unknown:
            error = answer.json()["error"]
            assert (answer.status_code, error["type"], error["code"]) == (
                404,
                "invalid_request_error",
                "model_not_found",
            )
            assert error["message"] == "there is no model 'gpt-4o' here; there are scripted, foretype, us/coder:7b"


async def test_a_lost_engine_is_503_with_retry_after_also_when_streaming() -> None:
    engine = scripted()
    async with gateway(engine) as world, world.http() as http:
        for stream in (False, True):
            for _ in range(2):
                engine.fail_next(EngineUnavailableError("gone"))
            response = await http.post("/v1/completions", json=FIM | {"stream": stream})
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            assert response.json()["error"]["code"] == "engine_unavailable"


async def test_an_engine_lost_in_the_middle_of_a_stream_ends_it_with_an_error_event() -> None:
    engine = scripted("one two three four five\n")
    async with gateway(engine) as world, world.http() as http:
        engine.fail_next(after_tokens=3)
        *_, error, done = events(await http.post("/v1/completions", json=FIM | {"stream": True}))
        assert error["error"]["code"] == "engine_unavailable"
        assert done == "[DONE]"


@pytest.mark.parametrize("path", ["/v1/completions", "/infill"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_before_the_first_token_frees_the_engine(path: str, stream: bool) -> None:
    async with gateway(scripted(sleep=Hanging())) as world:
        async with world.http() as http:
            request = asyncio.create_task(http.post(path, json=FIM | {"stream": stream}))
            await until(lambda: world.engine.statistics().running == 1)
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        await world.idle()
        assert len(world.engine.aborted) == 1
        assert b'reason="disconnected"} 1.0' in world.service.metrics.render()


async def test_infill_puts_the_typed_line_behind_the_middle_token() -> None:
    async with gateway(scripted("urn x\n")) as world, world.http() as http:
        body = {
            "input_prefix": "def f(x):\n",
            "prompt": "    ret",
            "input_suffix": ")\nprint(f(1))\n",
            "input_extra": [{"filename": "lib.py", "text": "def g():\n    pass", "time": 3}],
            "n_predict": 16,
        }
        answer = (await http.post("/infill", json=body)).json()
        assert answer["content"] == "urn x\n"
        assert answer["stop"] is True
        assert answer["truncated"] is False
        prompt = world.engine.requests[-1]
        middle = prompt.index(TOKENIZER.control("<|fim_middle|>"))
        assert TOKENIZER.decode(prompt[middle:]) == b"    ret"
        assert b"lib.py\ndef g():\n    pass\n" in TOKENIZER.decode(prompt)
        timings = answer["timings"]
        assert timings["prompt_n"] == len(prompt)
        assert timings["predicted_n"] > 0
        assert timings["prompt_ms"] >= 0
        assert answer["tokens_evaluated"] == len(prompt)


async def test_infill_appends_only_while_typing_on_a_line() -> None:
    async with gateway() as world, world.http() as http:
        for typed in ("    ret", "    return", "    return x"):
            await http.post("/infill", json={"input_prefix": "def f(x):\n", "prompt": typed, "input_suffix": "\n"})
        prompts = world.engine.requests
        middle = prompts[0].index(TOKENIZER.control("<|fim_middle|>")) + 1
        assert len({tuple(prompt[:middle]) for prompt in prompts}) == 1


async def test_infill_with_n_predict_zero_warms_only() -> None:
    async with gateway() as world, world.http() as http:
        extra = [{"filename": "lib.py", "text": "value = compute(value)\n" * 40}]
        answer = (await http.post("/infill", json={"input_extra": extra, "n_predict": 0})).json()
        assert answer["content"] == ""
        assert not world.engine.requests
        answer = (await http.post("/infill", json={"input_extra": extra, "n_predict": 4})).json()
        assert answer["timings"]["cache_n"] > 0


async def test_infill_answers_with_the_fields_that_were_asked_for() -> None:
    async with gateway() as world, world.http() as http:
        fields = ["content", "timings/prompt_n", "tokens_cached", "truncated", "no/such"]
        answer = (await http.post("/infill", json={"prompt": "x", "response_fields": fields})).json()
        assert set(answer) == {"content", "timings/prompt_n", "tokens_cached", "truncated"}


async def test_infill_ends_before_a_line_that_is_indented_less() -> None:
    async with gateway(scripted("a = 1\n    b = 2\nc = 3\n")) as world, world.http() as http:
        answer = (await http.post("/infill", json={"prompt": "    ", "n_indent": 4})).json()
        assert answer["content"] == "a = 1\n    b = 2"


LLAMA_VIM = {
    "id_slot": 0,
    "input_prefix": "def f(x):\n",
    "input_suffix": "\n",
    "input_extra": [{"text": "import os\n", "time": [1, 2], "filename": "lib.py"}],
    "prompt": "    ret",
    "n_predict": 128,
    "stop": [],
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.90,
    "samplers": ["top_k", "top_p", "infill"],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 250,
    "response_fields": [
        "content",
        *(
            f"timings/{kind}_{what}"
            for kind in ("prompt", "predicted")
            for what in ("n", "ms", "per_token_ms", "per_second")
        ),
        "truncated",
        "tokens_cached",
    ],
}
"""What llama.vim sends (autoload/llama.vim, `llama#fim`), field by field."""


async def test_infill_serves_llama_vim() -> None:
    async with gateway(scripted("urn x\n")) as world, world.http() as http:
        response = await http.post("/infill", json=LLAMA_VIM | {"model": "any"})
        assert response.text.startswith("{")
        assert '"content":"' in response.text  # it looks for this before it decodes
        answer = response.json()
        assert set(answer) == set(LLAMA_VIM["response_fields"])
        assert answer["content"] == "urn x\n"
        assert all(isinstance(answer[field], int | float) for field in answer if field.startswith("timings/"))
        ring = LLAMA_VIM | {"input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "samplers": []}
        warmed = await http.post("/infill", json=ring | {"t_max_prompt_ms": 1, "response_fields": [""]})
        assert (warmed.status_code, warmed.json()) == (200, {})


async def test_infill_serves_llama_vscode() -> None:
    body = {name: LLAMA_VIM[name] for name in LLAMA_VIM if name not in ("stop", "response_fields")}
    body |= {"n_cmpl": 3, "top_p": 0.99, "t_max_prompt_ms": 2500, "lora": [{"id": 0, "scale": 0.5}]}
    async with gateway(scripted("urn x\n")) as world, world.http() as http:
        answer = (await http.post("/infill", json=body)).json()
        assert answer["content"] == "urn x\n"  # one candidate; a list is optional for it
        assert answer["generation_settings"]["n_ctx"] == 2048  # read without a check: it throws where this is missing
        assert answer["tokens_cached"] > 0
        for kind in ("prompt", "predicted"):
            assert {f"{kind}_n", f"{kind}_ms", f"{kind}_per_second"} <= set(answer["timings"])
        warm = {name: body[name] for name in ("id_slot", "input_prefix", "input_suffix", "input_extra", "prompt")}
        warm |= {"n_predict": 0, "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 2500, "t_max_predict_ms": 1}
        assert (await http.post("/infill", json=warm)).json()["content"] == ""
        assert (await http.get("/health")).json()["status"] == "ok"


async def test_infill_streams() -> None:
    async with gateway(scripted("urn x\n")) as world, world.http() as http:
        *deltas, last = events(await http.post("/infill", json={"prompt": "ret", "stream": True}))
        assert "".join(delta["content"] for delta in deltas) == "urn x\n"
        assert not any(delta["stop"] for delta in deltas)
        assert last["stop"] is True
        assert last["timings"]["predicted_n"] > 0


async def test_infill_cuts_a_prompt_over_the_context_and_says_so() -> None:
    async with gateway() as world, world.http() as http:
        lines = "".join(f"value_{number} = compute({number})\n" for number in range(2000))
        body = {"input_prefix": lines, "prompt": "valu", "input_suffix": lines, "n_predict": 8}
        answer = (await http.post("/infill", json=body)).json()
        assert answer["truncated"] is True
        sent = TOKENIZER.decode(world.engine.requests[-1]).decode()
        assert "value_1999 = compute(1999)\nvalue_1 = compute(1)" in sent  # the first line below is the tail
        assert len(world.engine.requests[-1]) + 8 <= 2048


async def test_infill_ends_a_long_generation_at_a_line_after_its_time() -> None:
    async def slow(seconds: float) -> None:
        await asyncio.sleep(0.01)

    async with gateway(scripted("line of text\n" * 50, sleep=slow)) as world, world.http() as http:
        body = {"prompt": "x", "n_predict": 400, "t_max_predict_ms": 50}
        answer = (await http.post("/infill", json=body)).json()
        assert answer["stop_type"] == "limit"
        assert answer["content"].endswith("\n")
        assert answer["content"].count("\n") < 50


@pytest.mark.parametrize(
    "body",
    [
        {"input_prefix": 3},
        {"input_extra": [{"filename": "a\nb", "text": "x"}]},
        {"stop": [""]},
        [1],
        {"prompt": "w " * 9000},
        {"prompt": " " * 1_000_000},
    ],
)
async def test_infill_refuses_a_bad_body(body: Any) -> None:
    async with gateway() as world, world.http() as http:
        response = await http.post("/infill", json=body)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/healthz", "/health"])
async def test_health_needs_no_token_and_confirms_a_right_one(path: str) -> None:
    async with gateway(token=TOKEN) as world, world.http() as http:
        health = (await http.get(path)).json()
        assert health["status"] == "ok"
        assert health["authorized"] is False
        assert TOKEN not in json.dumps(health)
        health = (await http.get(path, headers={"Authorization": f"Bearer {TOKEN}"})).json()
        assert health["authorized"] is True
        assert health["engine"]["running"] == 0


PATHS = [("POST", "/v1/completions"), ("POST", "/infill"), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/x")]


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_every_other_door_asks_for_the_token(method: str, path: str) -> None:
    async with gateway(token=TOKEN) as world, world.http() as http:
        for headers in (
            {},
            {"Authorization": "Bearer no"},
            {"Authorization": "Bearer \udcff".encode("utf-8", "replace")},
        ):
            response = await http.request(method, path, headers=headers, json=FIM)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
        good = {"Authorization": f"Bearer {TOKEN}"}
        assert (await http.request(method, path, headers=good, json=FIM)).status_code != 401


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example:80"}, {"Host": ""}])
@pytest.mark.parametrize(("method", "path"), [*PATHS, ("GET", "/healthz")])
async def test_no_web_page_reaches_any_door(method: str, path: str, headers: dict[str, str]) -> None:
    async with gateway() as world, world.http() as http:
        response = await http.request(method, path, headers=headers, json=FIM)
        assert response.status_code in (400, 403)
        assert not world.engine.requests


async def test_the_tokenizer_is_served_under_its_digest() -> None:
    async with gateway() as world, world.http() as http:
        response = await http.get(f"/v1/tokenizers/{TOKENIZER.digest}")
        assert response.content == TOKENIZER_PATH.read_bytes()
        assert (await http.get("/v1/tokenizers/0000")).status_code == 404


async def test_metrics_tell_what_happened() -> None:
    async with gateway() as world, world.http() as http:
        await http.post("/v1/completions", json=FIM)
        async with world.peer() as peer:
            await peer.ask(class_="block")
            text = (await http.get("/metrics")).text
        assert 'foretype_requests_total{class="interactive",reason="end_of_middle"} 1.0' in text
        assert 'foretype_requests_total{class="block",reason="end_of_middle"} 1.0' in text
        assert 'foretype_ttft_seconds_count{class="block"} 1.0' in text
        assert "foretype_connections 1.0" in text
        assert "foretype_engine_restarts_total 0.0" in text
        sent = sum(len(prompt) for prompt in world.engine.requests)
        assert f"foretype_prompt_tokens_total {float(sent)}" in text
        for counter in ("prompt", "cached", "generated"):
            by_the_gateway, by_the_engine = (
                re.findall(rf"^foretype_{whose}{counter}_tokens_total (\S+)$", text, re.MULTILINE)
                for whose in ("", "engine_")
            )
            assert by_the_gateway == by_the_engine, counter
        for nothing in (
            "tokens_after_cancel_total",
            "engine_tokens_after_cancel_total",
            "engine_waiting",
            "feedback_events_total",
            "shedding_level",
        ):
            assert f"\nforetype_{nothing} 0.0\n" in text


async def test_a_grammar_without_tail_token_gets_the_tail_as_start_of_the_suffix() -> None:
    tokenizer = tiny("qwen2.5-coder")
    with_profile = profile(grammar="qwen2.5-coder", tokenizer_digest=tokenizer.digest)
    engine = ScriptedEngine(fixed(tokenizer.encode("x")))
    async with gateway(engine, tokenizer=tokenizer, with_profile=with_profile) as world, world.http() as http:
        await http.post("/v1/completions", json=FIM | {"prompt": "a(", "suffix": ")\nb\n"})
        assert tokenizer.decode(world.engine.requests[-1]) == b")\nb\na("


@pytest.mark.parametrize("path", ["/v1/completions", "/infill"])
async def test_stateless_clients_get_the_layout_that_serves_the_model(path: str) -> None:
    async with gateway(with_profile=profile(layout="spm")) as world, world.http() as http:
        if path == "/infill":
            body = {"input_prefix": "def f(x):\n", "prompt": "    ret", "input_suffix": ")\nf(1)\n", "n_predict": 4}
        else:
            body = {"prompt": "def f(x):\n    ret", "suffix": ")\nf(1)\n", "max_tokens": 4}
        assert (await http.post(path, json=body)).status_code == 200
        prompt = world.engine.requests[-1]
        before, suffix, middle = (TOKENIZER.control(f"<|fim_{part}|>") for part in ("prefix", "suffix", "middle"))
        typed = TOKENIZER.encode("def f(x):\n    ret")
        assert list(prompt) == [before, suffix, *TOKENIZER.encode(")\nf(1)\n"), middle, *typed]


async def test_infill_in_suffix_first_is_cut_to_the_context() -> None:
    async with gateway(with_profile=profile(layout="spm")) as world, world.http() as http:
        body = {
            "input_prefix": "value = 1\n" * 2000,
            "prompt": "va",
            "input_suffix": "\nx = 2\n" * 2000,
            "n_predict": 4,
        }
        answer = (await http.post("/infill", json=body)).json()
        assert answer["truncated"] is True
        prompt = world.engine.requests[-1]
        assert len(prompt) <= 2048
        assert TOKENIZER.decode(prompt[-8:]).endswith(b"value = 1\nva")
