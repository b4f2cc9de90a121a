"""The base as a frozen decoder in bfloat16 with low-rank additions that learn, in GGUF's own layout.

Query and key rows stay in llama.cpp's order, with the rotation of neighbouring pairs that belongs to it, so nothing has to
be permuted between the base's file, the training and the adapter's file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretype_lab.adapter.base import CONTROL

MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@dataclass(frozen=True)
class Shape:
    """What a GGUF file's metadata says of a Llama-shaped network."""

    layers: int
    heads: int
    kv_heads: int
    head_width: int
    rope_base: float
    epsilon: float
    context: int


class LowRank(nn.Module):
    """``x W^T + x A^T B^T``: W frozen, A and B learn; B begins at zero, so the base's answers are the first answers."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        self.register_buffer("weight", weight.bfloat16(), persistent=False)
        self.a = nn.Parameter(torch.randn(rank, weight.shape[1]) / math.sqrt(weight.shape[1]))
        self.b = nn.Parameter(torch.zeros(weight.shape[0], rank))

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        low = functional.linear(x, self.a.to(x.dtype))
        return functional.linear(x, self.weight) + functional.linear(low, self.b.to(x.dtype))


def _norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype) * weight


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotates neighbouring pairs; ``x`` is (batch, heads, tokens, width)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2)


class Block(nn.Module):
    """One layer."""

    def __init__(self, tensors: dict[str, Tensor], number: int, shape: Shape, rank: int) -> None:
        super().__init__()
        self.shape = shape
        for name in MATRICES:
            self.add_module(name, LowRank(tensors[f"blk.{number}.{name}.weight"], rank))
        self.register_buffer("attn_norm", tensors[f"blk.{number}.attn_norm.weight"].bfloat16(), persistent=False)
        self.register_buffer("ffn_norm", tensors[f"blk.{number}.ffn_norm.weight"].bfloat16(), persistent=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(batch, tokens, width) → the same."""
        shape = self.shape
        batch, tokens, _ = x.shape
        held = _norm(x, self.attn_norm, shape.epsilon)
        q = self.attn_q(held).view(batch, tokens, shape.heads, shape.head_width).transpose(1, 2)
        k = self.attn_k(held).view(batch, tokens, shape.kv_heads, shape.head_width).transpose(1, 2)
        v = self.attn_v(held).view(batch, tokens, shape.kv_heads, shape.head_width).transpose(1, 2)
        groups = shape.heads // shape.kv_heads
        q, k = _rotate(q, cosine, sine), _rotate(k, cosine, sine).repeat_interleave(groups, 1)
        seen = functional.scaled_dot_product_attention(q, k, v.repeat_interleave(groups, 1), is_causal=True)
        x = x + self.attn_output(seen.transpose(1, 2).reshape(batch, tokens, -1))
        held = _norm(x, self.ffn_norm, shape.epsilon)
        return x + self.ffn_down(functional.silu(self.ffn_gate(held)) * self.ffn_up(held))


class Network(nn.Module):
    """Frozen base, low-rank additions in every matrix, and rows of the tied embedding for the control tokens."""

    def __init__(self, tensors: dict[str, Tensor], shape: Shape, rank: int) -> None:
        super().__init__()
        self.epsilon = shape.epsilon
        self.register_buffer("embedding", tensors["token_embd.weight"].bfloat16(), persistent=False)
        self.register_buffer("output_norm", tensors["output_norm.weight"].bfloat16(), persistent=False)
        self.register_buffer("control", torch.tensor(list(CONTROL.values())), persistent=False)
        self.rows = nn.Parameter(tensors["token_embd.weight"][list(CONTROL.values())].clone())
        self.blocks = nn.ModuleList(Block(tensors, number, shape, rank) for number in range(shape.layers))
        rates = shape.rope_base ** -(torch.arange(0, shape.head_width, 2) / shape.head_width)
        angles = torch.arange(shape.context)[:, None] * rates
        self.register_buffer("cosine", angles.cos().bfloat16(), persistent=False)
        self.register_buffer("sine", angles.sin().bfloat16(), persistent=False)

    def forward(self, ids: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Last states at wanted positions, and the table that turns them into logits.

        Args:
            ids: (batch, tokens).
            wanted: flat positions in ``ids``, (targets,): logits of a vocabulary of 49,152 are a fifth of a step's work.

        Returns:
            (targets, width) and (vocabulary, width), bfloat16.
        """
        table = self.embedding.index_copy(0, self.control, self.rows.bfloat16())
        x = functional.embedding(ids, table)
        cosine, sine = self.cosine[: ids.shape[1]], self.sine[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, cosine, sine)
        return _norm(x.flatten(0, 1)[wanted], self.output_norm, self.epsilon), table


def losses(states: Tensor, table: Tensor, targets: Tensor, answers: int) -> Tensor:
    """Cross-entropy of each target in nats, (targets,); the first ``answers`` of them are answers'.

    The end of an answer is a choice in answers alone. Told at each line of what stands before that no answer ends there, the
    network learned that one hardly ever does: 30 % of answers ended by themselves, where 74 % had before.
    """
    logits = functional.linear(states, table).float()
    before = torch.arange(len(targets), device=logits.device)[:, None] >= answers
    ends = torch.arange(logits.shape[-1], device=logits.device)[None] == CONTROL["<|end_of_middle|>"]
    return functional.cross_entropy(logits.masked_fill(before & ends, -1e9), targets, reduction="none")
