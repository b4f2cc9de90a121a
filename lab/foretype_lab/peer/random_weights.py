"""A model of no sense with a real vocabulary: prompts cost what they cost with a real one, and texts mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, cast

import gguf
import numpy as np
from foretype_models.gguf_metadata import read_metadata

__all__ = ["write_random"]

_KEYS: Final = ("model", "pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id", "unknown_token_id")
_WIDTH, _LAYERS, _HEADS, _FEED_FORWARD, _CONTEXT_TOKENS = 256, 8, 4, 768, 8192
_SCALE: Final = 0.02
_Q8: Final = gguf.GGMLQuantizationType.Q8_0


def write_random(vocabulary: Path, out: Path) -> Path:
    """Write `out`, a small Llama in Q8_0 with the tokenizer of a GGUF file (a header is enough). The same bytes each time.

    Raises:
        GgufError: `vocabulary` is no GGUF file, with the remedy.
        OSError: one of them cannot be read or written.
    """
    said = read_metadata(vocabulary, frozenset(f"tokenizer.ggml.{key}" for key in _KEYS))
    writer, rng = gguf.GGUFWriter(out, "llama"), np.random.default_rng(0)
    for key, value in said.items():
        _add(writer, key, value)
    rows = len(said["tokenizer.ggml.tokens"])
    writer.add_add_bos_token(False)
    writer.add_context_length(_CONTEXT_TOKENS)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_vocab_size(rows)

    def matrix(name: str, height: int, width: int) -> None:
        drawn = (rng.standard_normal((height, width)) * _SCALE).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(drawn, _Q8), raw_dtype=_Q8)

    matrix("token_embd", rows, _WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(_WIDTH, np.float32))
    for layer in range(_LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(_WIDTH, np.float32))
        for part in ("q", "k", "v", "output"):
            matrix(f"blk.{layer}.attn_{part}", _WIDTH, _WIDTH)
        for part in ("gate", "up"):
            matrix(f"blk.{layer}.ffn_{part}", _FEED_FORWARD, _WIDTH)
        matrix(f"blk.{layer}.ffn_down", _WIDTH, _FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, cast("list[Any]", value))
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_string(key, str(value))
