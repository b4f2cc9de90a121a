"""A Llama-shaped decoder in plain PyTorch: RMSNorm, rotary positions, grouped-query attention, SwiGLU, tied embeddings.

Parameter names and the rotary convention (rotate halves) are those of Hugging Face's ``LlamaForCausalLM``, so that
export is a rename-free copy; the GGUF export alone permutes, because llama.cpp's ``llama`` rotates neighbours.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the model. Every matrix dimension is a multiple of 32, the block of Q8_0.

    Attributes:
        vocabulary: entries, the special tokens included.
        width: hidden size.
        layers: decoder layers.
        heads: query heads.
        kv_heads: key/value heads; cache bytes per token are proportional to them.
        head_width: size of one head.
        feed_forward: inner size of the SwiGLU.
        rope_base: base of the rotary frequencies.
        max_position: longest context that serving may use; written into the exported files.
        norm_epsilon: RMSNorm epsilon.
    """

    vocabulary: int = 16_384
    width: int = 320
    layers: int = 8
    heads: int = 5
    kv_heads: int = 1
    head_width: int = 64
    feed_forward: int = 896
    rope_base: float = 10_000.0
    max_position: int = 8_192
    norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "head_width", "feed_forward"):
            if getattr(self, name) % 32:
                raise ValueError(f"{name}={getattr(self, name)} is no multiple of 32, which Q8_0 blocks need")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads={self.heads} is no multiple of kv_heads={self.kv_heads}")

    def as_json(self) -> dict[str, Any]:
        """The configuration as plain data."""
        return asdict(self)


def rotary_tables(config: ModelConfig, length: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine tables, each (length, head_width), fp32."""
    half = torch.arange(0, config.head_width, 2, dtype=torch.float32) / config.head_width
    angles = torch.outer(torch.arange(length, dtype=torch.float32), config.rope_base**-half)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Applies rotary positions to (batch, heads, length, head_width)."""
    left, right = x.chunk(2, dim=-1)
    return (x * cosine + torch.cat((-right, left), dim=-1) * sine).to(x.dtype)


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention of each position to those up to it.

    PyTorch's own kernel for processors reaches a seventh of a matrix product's speed, and was 40 % of a training step: rows
    of 512 tokens take 22 ms this way, forward and back, and 87 in `scaled_dot_product_attention` (one core, bfloat16,
    compiled). Queries come in sixteenths of a row, each beside the keys up to its end: what no query of it may see is
    not computed. Heads that share a key are one product with it.

    Args:
        query: (batch, heads, length, head_width).
        key, value: (batch, kv_heads, length, head_width), ``kv_heads`` a divisor of ``heads``.

    Returns:
        Shaped like ``query``.
    """
    batch, heads, length, width = query.shape
    repeat = heads // key.shape[1]
    if query.is_cuda:
        key, value = key.repeat_interleave(repeat, dim=1), value.repeat_interleave(repeat, dim=1)
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    query = query.reshape(-1, repeat, length, width)
    key, value = key.reshape(-1, length, width), value.reshape(-1, length, width)
    size = max(64, length // 16)
    pieces: list[Tensor] = []
    for start in range(0, length, size):
        end = min(start + size, length)
        scores = query[:, :, start:end].flatten(1, 2) @ key[:, :end].transpose(1, 2)
        scores = scores.unflatten(1, (repeat, end - start)).float() * width**-0.5
        later = torch.ones(end - start, end, dtype=torch.bool, device=query.device).triu(start + 1)
        shares = scores.masked_fill(later, -torch.inf).softmax(-1).to(value.dtype)
        pieces.append((shares.flatten(1, 2) @ value[:, :end]).unflatten(1, (repeat, end - start)))
    return torch.cat(pieces, dim=2).reshape(batch, heads, length, width)


class Attention(nn.Module):
    """Causal grouped-query attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_width = config.heads, config.kv_heads, config.head_width
        self.q_proj = nn.Linear(config.width, config.heads * config.head_width, bias=False)
        self.k_proj = nn.Linear(config.width, config.kv_heads * config.head_width, bias=False)
        self.v_proj = nn.Linear(config.width, config.kv_heads * config.head_width, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_width, config.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query = self.q_proj(x).view(batch, length, self.heads, self.head_width).transpose(1, 2)
        key = self.k_proj(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        value = self.v_proj(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        mixed = causal_attention(query, key, value)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.feed_forward, bias=False)
        self.up_proj = nn.Linear(config.width, config.feed_forward, bias=False)
        self.down_proj = nn.Linear(config.feed_forward, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One decoder layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.width, eps=config.norm_epsilon)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.width, eps=config.norm_epsilon)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers and the final norm; the ``model.`` of the checkpoint's names."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=config.norm_epsilon)

    def forward(self, ids: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return self.norm(x)


class LanguageModel(nn.Module):
    """The whole model; the output matrix is the embedding."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        cosine, sine = rotary_tables(config, config.max_position)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = 0.02
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    # The residual stream sums 2 x layers outputs: keep its variance at 1 at the start.
                    scale /= math.sqrt(2 * config.layers)
                nn.init.normal_(parameter, std=scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits.

        Args:
            ids: int64, (batch, length).

        Returns:
            (batch, length, vocabulary).
        """
        length = ids.shape[1]
        hidden = self.model(ids, self.cosine[:length], self.sine[:length])
        return functional.linear(hidden, self.model.embed_tokens.weight)
