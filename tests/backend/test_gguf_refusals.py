"""A GGUF file that asks for what the embedded engine would ignore in silence is refused, with the server that opens it."""

from pathlib import Path
from typing import Any

import pytest
from backend.tiny_gguf import write_tiny_gguf
from foretype_backend.config.load import load_config
from foretype_backend.engines.embedded.gguf_header import read_header
from foretype_backend.errors import ConfigError, ModelFileError
from foretype_backend.start.cli import app
from foretype_backend.start.prepare import prepare
from foretype_context.grammars.grammar import GRAMMARS
from typer.testing import CliRunner

BIASES = ("blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"extra": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}}, r"a rope scaling \(linear\)"),
        ({"extra": {"rope.scaling.type": "longrope"}}, r"a rope scaling \(longrope\)"),
        ({"extra": {"rope.scale_linear": 4.0}}, r"a rope scaling \(linear\)"),
        ({"vectors": ["rope_freqs.weight"]}, r"a rope scaling \(rope_freqs.weight\)"),
        ({"vectors": BIASES}, r"biases in the attention \(blk.0.attn_q.bias\)"),
        ({"architecture": "qwen3", "vectors": BIASES[:1]}, "biases in the attention"),
        ({"architecture": "qwen2", "vectors": ["blk.0.attn_output.bias"]}, "biases in the attention"),
        ({"vectors": ["blk.1.ffn_down.bias"]}, "biases in the feed-forward part"),
        ({"extra": {"attention.sliding_window": 512}}, "a sliding window of 512 tokens"),
        ({"extra": {"expert_count": 8}}, "experts"),
        ({"vectors": ["blk.0.ffn_gate_inp.weight"]}, "experts"),
        ({"vectors": ["blk.0.post_attention_norm.weight"]}, "a part"),
        ({"architecture": "gemma"}, "architecture 'gemma' does not open here"),
    ],
)
def test_what_the_engine_would_ignore_is_refused_with_the_server_that_opens_it(
    tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", **values)
    with pytest.raises(ModelFileError, match=words) as caught:
        read_header(path)
    assert "llama-server -m FILE" in str(caught.value) and "--engine openai" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "context"),
    [
        ({}, 4096),
        ({"architecture": "qwen2", "vectors": BIASES}, 4096),
        ({"architecture": "qwen3", "vectors": ["blk.0.attn_q_norm.weight"]}, 4096),
        ({"extra": {"attention.sliding_window": 4096}}, 4096),
        ({"extra": {"rope.scaling.type": "none"}}, 4096),
        ({"extra": {"rope.scaling.type": "yarn", "rope.scaling.original_context_length": 1024}}, 1024),
    ],
)
def test_what_it_uses_or_a_shorter_context_keeps_out_is_taken(
    tmp_path: Path, values: dict[str, Any], context: int
) -> None:
    header = read_header(write_tiny_gguf(tmp_path / "m.gguf", **values))
    assert header.context_limit_tokens == context
    assert bool(header.notes) is (context < 4096)


def test_serve_refuses_such_a_file_before_anything_is_started(tmp_path: Path) -> None:
    controls = sorted(GRAMMARS["qwen2.5-coder"].controls())
    path = write_tiny_gguf(tmp_path / "m.gguf", controls=controls, extra={"rope.scaling.type": "linear"})
    with pytest.raises(ConfigError, match=r"engine\.model: .*a rope scaling \(linear\).*llama-server"):
        prepare(load_config(model=str(path)))
    result = CliRunner().invoke(app, ["--model", str(path), "--port", "0"])
    assert result.exit_code == 2, result.output
