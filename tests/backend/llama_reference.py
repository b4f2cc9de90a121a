"""A Llama-shaped GGUF file computed in float64, as its weights say: what an engine's logits are compared with."""

from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def logits_of(path: Path, ids: list[int]) -> Array:
    """Logits of every position, shape (positions, vocabulary). As llama.cpp lays heads out: rotated pairs stand side by side."""
    reader = gguf.GGUFReader(path)
    weights = {one.name: gguf.quants.dequantize(one.data, one.tensor_type).astype(np.float64) for one in reader.tensors}

    def said(key: str) -> float:
        return float(reader.fields[f"llama.{key}"].contents())

    heads, layers = int(said("attention.head_count")), int(said("block_count"))
    count, size = len(ids), int(said("embedding_length")) // heads
    angles = np.arange(count)[:, None] * said("rope.freq_base") ** (-np.arange(0, size, 2) / size)
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def norm(x: Array, name: str) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + said("attention.layer_norm_rms_epsilon")) * weights[name]

    def rotated(x: Array) -> Array:
        pairs = x.reshape(count, heads, size // 2, 2)
        first, second = pairs[..., 0], pairs[..., 1]
        turned = (first * cosine - second * sine, first * sine + second * cosine)
        return np.stack(turned, -1).reshape(count, heads, size)

    x = weights["token_embd.weight"][ids]
    for layer in range(layers):

        def part(name: str, block: str = f"blk.{layer}") -> Array:
            return weights[f"{block}.{name}.weight"].T

        h = norm(x, f"blk.{layer}.attn_norm.weight")
        query, key = rotated(h @ part("attn_q")), rotated(h @ part("attn_k"))
        value = (h @ part("attn_v")).reshape(count, heads, size)
        scores = np.einsum("thd,shd->hts", query, key) / np.sqrt(size)
        scores = np.where(np.tril(np.ones((count, count))) > 0, scores, -np.inf)
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        x = x + np.einsum("hts,shd->thd", chances, value).reshape(count, -1) @ part("attn_output")
        h = norm(x, f"blk.{layer}.ffn_norm.weight")
        gate = h @ part("ffn_gate")
        x = x + (gate / (1 + np.exp(-gate)) * (h @ part("ffn_up"))) @ part("ffn_down")
    return norm(x, "output_norm.weight") @ weights["output.weight"].T
