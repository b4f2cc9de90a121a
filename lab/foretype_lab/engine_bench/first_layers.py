"""A draft where none was trained: the first layers of the model itself."""

from __future__ import annotations

from pathlib import Path

from foretype_lab.errors import ExportError
from foretype_lab.model_files.export import write_safetensors
from foretype_lab.model_files.gguf_file import read_config, read_grammar, read_weights

__all__ = ["write_first_layers"]

_PREFIX = "model.layers."


def write_first_layers(model: Path, layers: int, tokenizer: Path, folder: Path) -> None:
    """Write a folder as vLLM loads it with embeddings, norm and the first `layers` layers of a GGUF file.

    It guesses badly, and is a second model with the right vocabulary: enough to try `draft_model` and to see that it is lossless.

    Raises:
        ExportError: the file cannot be read, or has no more than `layers` layers.
    """
    config = read_config(model)
    if not 0 < layers < int(config["layers"]):
        raise ExportError(f"{model} has {config['layers']} layers; a draft takes at least 1 and fewer than those")
    kept = {
        name: matrix
        for name, matrix in read_weights(model, config).items()
        if not name.startswith(_PREFIX) or int(name.removeprefix(_PREFIX).partition(".")[0]) < layers
    }
    write_safetensors(kept, {**config, "layers": layers}, tokenizer, folder, grammar_id=read_grammar(model))
