"""What other editors' plugins send to the OpenAI door, field by field, and what they read of the answer.

llama.vim and llama.vscode are with the infill door (test_http_doors.py).
"""

from typing import Any

from backend.test_http_doors import events
from backend.world import TOKENIZER, gateway, scripted
from foretype_backend.config.settings import ModelConfig

NAMED: dict[str, Any] = {"model": ModelConfig(aliases=("qwen2.5-coder",))}
"""Plugins that choose their template by the model's name ask for one that there is not, but for the gateway's file."""
BEFORE, AFTER = "def f(x):\n    ret", "\nprint(f(1))\n"
TEMPLATED = f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>"
"""The template of Qwen's family, whose tokens the shipped grammar shares."""

MINUET: dict[str, Any] = {
    "model": "foretype",
    "stream": True,
    "max_tokens": 56,
    "top_p": 0.9,
    "prompt": "# language: python\n# indentation: use 4 spaces for a tab\n" + BEFORE,
    "suffix": AFTER,
}
"""minuet-ai.nvim, provider `openai_fim_compatible`: its own comments, then the text (backends/openai_base.lua)."""

CONTINUE: dict[str, Any] = {
    "model": "qwen2.5-coder",
    "prompt": TEMPLATED,
    "max_tokens": 256,
    "temperature": 0.01,
    "stop": [
        *("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>"),
        *("<|file_sep|>", "<|im_start|>", "<|im_end|>", "/src/", "#- coding: utf-8", "```"),
    ],
    "stream": True,
}
"""Continue, provider `openai` or `vllm`: a templated prompt to `completions` (core/llm/openaiTypeConverters.ts)."""

ZED: dict[str, Any] = {
    "model": "qwen2.5-coder",
    "prompt": TEMPLATED,
    "max_tokens": 64,
    "stop": ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"],
}
"""Zed, provider `open_ai_compatible_api`: one answer, no stream (crates/edit_prediction/src/open_ai_compatible.rs)."""


async def test_minuet_asks_three_times_at_once_and_reads_a_stream() -> None:
    headers = {"Accept": "application/json", "Authorization": "Bearer TERM"}
    async with gateway(scripted("urn x\n")) as world, world.http() as http:
        for _ in range(3):
            response = await http.post("/v1/completions", json=MINUET, headers=headers)
            *chunks, done = events(response)
            assert done == "[DONE]"
            assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "urn x\n"
        sent = TOKENIZER.decode(world.engine.requests[-1]).decode()
        assert sent.endswith("print(f(1))\n    ret")
        assert "# indentation: use 4 spaces for a tab\ndef f(x):\n" in sent


async def test_continue_templates_by_itself_and_sends_more_stop_strings_than_openai_takes() -> None:
    headers = {"Authorization": "Bearer EMPTY", "x-api-key": "EMPTY"}
    async with gateway(scripted("urn x\n"), sections=NAMED) as world, world.http() as http:
        response = await http.post("/v1/completions", json=CONTINUE, headers=headers)
        assert response.headers["content-type"].startswith("text/event-stream")
        *chunks, done = events(response)
        assert done == "[DONE]"
        assert "".join(chunk["choices"][0]["text"] or "" for chunk in chunks) == "urn x\n"
        _controls_are_parsed(world.engine.requests[-1])


async def test_zed_reads_one_answer_with_all_the_fields_it_insists_on() -> None:
    async with gateway(scripted("urn x\n"), sections=NAMED) as world, world.http() as http:
        answer = (await http.post("/v1/completions", json=ZED)).json()
        assert {"id", "object", "created", "model", "choices", "usage"} <= set(answer)
        assert isinstance(answer["created"], int)
        (choice,) = answer["choices"]
        assert choice["text"] == "urn x\n" and isinstance(choice["finish_reason"], str)
        assert set(answer["usage"]) >= {"prompt_tokens", "completion_tokens", "total_tokens"}
        _controls_are_parsed(world.engine.requests[-1])


def _controls_are_parsed(ids: list[int]) -> None:
    """The template's tokens are tokens, not text, and stand where a prompt of ours has them."""
    marks = [TOKENIZER.control(f"<|fim_{name}|>") for name in ("prefix", "suffix", "middle")]
    places = [ids.index(mark) for mark in marks]
    assert places == sorted(places) and ids[-1] == marks[-1]
