"""Reads our GGUF files back: shape of the model from the header, weights de-quantised under their Hugging Face names."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from foretype_lab.errors import ExportError
from foretype_lab.model_files.export import Matrix, gguf_names

__all__ = ["read_config", "read_grammar", "read_weights", "unpermute"]

_HEADER = {
    "layers": "block_count",
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "head_width": "attention.key_length",
    "feed_forward": "feed_forward_length",
    "width": "embedding_length",
    "max_position": "context_length",
}


def _open(path: Path) -> Any:
    try:
        seen = path.stat()
        return _read(path, seen.st_mtime_ns, seen.st_size)
    except FileNotFoundError as error:
        raise ExportError(f"{path} does not exist; `foretype models list` names the shipped files") from error
    except (ValueError, IndexError, OSError) as error:
        raise ExportError(f"{path} is no readable GGUF file ({error}); fetch or export it again") from error


@lru_cache(maxsize=1)
def _read(path: Path, *_: int) -> Any:
    """Header, grammar and weights are asked for one after the other, and the names of 16,000 tokens take 0.3 s."""
    import gguf

    return gguf.GGUFReader(path)


def _value(reader: Any, path: Path, key: str) -> Any:
    found = reader.get_field(key)
    if found is None:
        raise ExportError(f"{path} lacks {key} in its header; export it again")
    return found.contents()


def read_grammar(path: Path) -> str:
    """Id of the prompt grammar that the weights were trained with, such as ``foretype-1``.

    Raises:
        ExportError: not a readable GGUF file of ours.
    """
    return str(_value(_open(path), path, "foretype.grammar"))


def read_config(path: Path) -> dict[str, Any]:
    """Fields of :class:`foretype_lab.training.model.ModelConfig`, from the header.

    Raises:
        ExportError: not a readable GGUF file of a `llama` model with tied embeddings.
    """
    reader = _open(path)
    value = partial(_value, reader, path)

    if (architecture := value("general.architecture")) != "llama":
        raise ExportError(f"{path} is a {architecture} model; only llama models can be read back")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if "output.weight" in tensors:
        raise ExportError(f"{path} has an output matrix of its own; only tied embeddings can be read back")
    config: dict[str, Any] = {ours: int(value(f"llama.{theirs}")) for ours, theirs in _HEADER.items()}
    config["vocabulary"] = int(tensors["token_embd.weight"].shape[-1])
    config["rope_base"] = round(float(value("llama.rope.freq_base")), 3)
    config["norm_epsilon"] = float(f"{float(value('llama.attention.layer_norm_rms_epsilon')):.6g}")
    return config


def read_weights(path: Path, config: dict[str, Any]) -> dict[str, Matrix]:
    """Reads the weights back, de-quantised, under their Hugging Face names.

    Args:
        config: as :func:`read_config` returns it.
    """
    import gguf

    names = {theirs: ours for ours, theirs in gguf_names(int(config["layers"])).items()}
    weights: dict[str, Matrix] = {}
    for tensor in _open(path).tensors:
        value = np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        ours = names[tensor.name]
        if ours.endswith(("q_proj.weight", "k_proj.weight")):
            value = unpermute(value, int(config["heads" if ours.endswith("q_proj.weight") else "kv_heads"]))
        weights[ours] = value
    return weights


def unpermute(matrix: Matrix, heads: int) -> Matrix:
    """Inverse of :func:`foretype_lab.model_files.export.permute`."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
