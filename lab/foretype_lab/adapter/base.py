"""The public network that the adapter is for, read from its GGUF file: weights as they lie there, and the tokenizer."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import tokenizers
import torch
from foretype_models.gguf_tokenizer import tokenizer_of
from torch import Tensor

CONTROL: dict[str, int] = {
    "<|repo_name|>": 3,
    "<|file_sep|>": 5,
    "<|fim_prefix|>": 8,
    "<|fim_suffix|>": 9,
    "<|fim_middle|>": 10,
    "<|fim_tail|>": 11,
    "<|end_of_middle|>": 16,
}
"""Ids of the base's vocabulary that its makers hardly used, and what they mean in the grammar ``foretype-3``."""

PAD = 0
"""``<|endoftext|>``: fills rows, is never a target."""


def weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a GGUF file by name, dequantised to float32; matrices are (out, in), in llama.cpp's order of rows."""
    return {
        item.name: torch.from_numpy(np.array(gguf.dequantize(item.data, item.tensor_type), dtype=np.float32))
        for item in gguf.GGUFReader(path).tensors
    }


def tokenizer(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer that a GGUF file carries; control tokens are ids here, and text that looks like one stays text."""
    made = tokenizers.Tokenizer.from_buffer(tokenizer_of(path))
    made.encode_special_tokens = True
    return made
