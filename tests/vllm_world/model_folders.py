"""A random network as vLLM loads it, and a second one with its tokenizer."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from foretype_models.export import write_folder
from models.networks import Form
from stand_in import make_network

__all__ = ["IDS", "hush", "write_first_two_layers", "write_served"]

SERVED = Form(width=576, forward=1536, heads=9, kv_heads=3, layers=3, context=8192)
"""Three layers of the size that ships: vLLM's bfloat16 on processors knows it, and does not know some smaller ones."""

IDS = (20, 270)
"""From the first to before the second: ids of its vocabulary that are no controls."""

_HUSHED = {"self_attn.o_proj": (0.01, 0.003, 0.001), "mlp.down_proj": (0.02, 0.008, 0.004)}
"""By layer, so that some tokens are followed by themselves, and some of those that two layers choose are not the third's."""


def write_served(folder: Path, layers: int | None = None) -> Path:
    """Its weights, de-quantised."""
    with tempfile.TemporaryDirectory() as scratch:
        write_folder(make_network(Path(scratch) / "models", SERVED).path, folder, layers=layers)
    return folder


def write_first_two_layers(folder: Path) -> Path:
    """Another model with the right vocabulary: the first one's own first two layers."""
    return write_served(folder, layers=2)


def hush(folder: Path) -> Path:
    """Makes each layer say less than the one before, beside the token itself: such a text repeats itself, and the first layers guess most of it."""
    from safetensors.numpy import load_file, save_file  # pyright: ignore[reportUnknownVariableType] - a path of bytes or text

    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if found := re.fullmatch(r"model\.layers\.(\d)\.(\w+\.\w+)\.weight", name):
            weights[name] *= _HUSHED.get(found[2], (1.0,) * 3)[int(found[1])]
    save_file(weights, folder / "model.safetensors")
    return folder
