"""What a GGUF file may not ask for, since the engine would ignore it in silence and the model then write nonsense.

As `foretype models pull` refuses a checkpoint. A scaling that long texts alone need (YaRN) is no reason: the reader of the header
keeps it out by a shorter context, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

ELSEWHERE: Final = (
    "llama-server opens it: `llama-server -m FILE --port 8080`, then `foretype serve --engine openai --model "
    "http://127.0.0.1:8080/v1`"
)
"""The remedy."""

_USED: Final = re.compile(
    r"(?:token_embd|output|output_norm)\.weight"
    r"|blk\.\d+\.(?:attn_norm|attn_q|attn_k|attn_v|attn_output|ffn_norm|ffn_gate|ffn_up|ffn_down)\.weight"
)
_USED_BY: Final = {
    "qwen2": re.compile(r"blk\.\d+\.attn_[qkv]\.bias"),
    "qwen3": re.compile(r"blk\.\d+\.attn_[qk]_norm\.weight"),
}


def ignored_tensor(architecture: str, name: str) -> str:
    """What a tensor is for that the engine would not use; empty where it uses it."""
    own = _USED_BY.get(architecture)
    if _USED.fullmatch(name) or (own is not None and own.fullmatch(name)):
        return ""
    if name.startswith("rope"):
        return "a rope scaling"
    if name.endswith(".bias"):
        return "biases in the attention" if "attn" in name else "biases in the feed-forward part"
    return "experts" if "_exps" in name or "gate_inp" in name else "a part"


def ignored_setting(
    meta: Mapping[str, Any], architecture: str, *, context_tokens: int, head_size: int, layers: int
) -> str:
    """What of the metadata the engine would ignore, whatever the length of a text; empty where there is nothing."""

    def of(key: str, default: Any) -> Any:
        return meta.get(f"{architecture}.{key}", default)

    scaling, window = of("rope.scaling.type", "none"), of("attention.sliding_window", 0)
    if scaling not in ("none", "", "yarn"):
        return f"a rope scaling ({scaling})"
    if of("rope.scale_linear", 1.0) != 1.0:
        return "a rope scaling (linear)"
    if isinstance(window, int) and 0 < window < context_tokens:
        return f"a sliding window of {window} tokens"
    if of("rope.dimension_count", head_size) != head_size:
        return "a partial rotary embedding"
    if of("expert_count", 0):
        return "experts"
    if layers > 1 and isinstance(of("attention.head_count_kv", 0), list):
        return "layers of different shapes"
    return ""
