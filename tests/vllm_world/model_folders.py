"""The shipped model as vLLM loads it, and a second one with its tokenizer."""

from __future__ import annotations

from pathlib import Path

from foretype_lab.engine_bench.first_layers import write_first_layers
from foretype_lab.model_files.export import write_safetensors
from foretype_lab.model_files.gguf_file import read_config, read_grammar, read_weights
from foretype_models.artifacts import locate

__all__ = ["write_first_two_layers", "write_shipped"]


def write_shipped(folder: Path) -> Path:
    """The shipped GGUF file's weights, de-quantised."""
    shipped = locate()
    config = read_config(shipped.path)
    weights, grammar_id = read_weights(shipped.path, config), read_grammar(shipped.path)
    write_safetensors(weights, config, shipped.tokenizer_path, folder, grammar_id=grammar_id)
    return folder


def write_first_two_layers(folder: Path) -> Path:
    """Another model with the right vocabulary: the shipped one's own first two layers."""
    shipped = locate()
    write_first_layers(shipped.path, 2, shipped.tokenizer_path, folder)
    return folder
