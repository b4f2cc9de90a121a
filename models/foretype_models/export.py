"""A GGUF file of the shape `llama` for engines that do not read it: a Hugging Face folder, or the file itself elsewhere.

llama.cpp rotates neighbouring rows of query and key where Hugging Face rotates halves; that is undone. Values are the file's own in
fp32: an engine that computes in it says what every other engine of this file says.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from foretype_models.errors import ExportFileError, FetchError, GgufError
from foretype_models.fetch.gguf_file import GgufFile, Matrix, read_file
from foretype_models.gguf_tokenizer import tokenizer_of
from foretype_models.pull.place import swap, write_json
from foretype_models.pull.shapes import Shape

_WRITTEN: Final = frozenset({"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"})
"""All that a folder has that was written here, and may be replaced with it."""


def write_folder(source: Path, folder: Path, layout: str | None = None, *, layers: int | None = None) -> None:
    """Writes `model.safetensors` (fp32), `config.json` and the tokenizer, as vLLM and transformers load them; whole or not at all.

    Args:
        layout: that a gateway is to serve it in; what the file says where None.
        layers: the first so many alone: a second model with the right vocabulary.

    Raises:
        ExportFileError: no readable file of this shape, or its vocabulary is not known; or the folder is somebody's.
        OSError: the disk is full; what was there is unchanged.
    """
    from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType] - a path of bytes or text

    try:
        file = read_file(source)
        shape = _shape(file)
        tokenizer = tokenizer_of(source)
    except (FetchError, GgufError) as error:
        raise ExportFileError(str(error)) from error
    if layers is not None and not 0 < layers < shape.layers:
        raise ExportFileError(f"{source} has {shape.layers} layers; a draft takes at least 1 and fewer than those")
    names = _kept(shape, layers).names()
    if missing := [theirs for theirs in names.values() if theirs not in file.tensors]:
        raise ExportFileError(f"{source} lacks {missing[0]}; it is of another shape, or was damaged: fetch it again")
    if folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= _WRITTEN):
        raise ExportFileError(f"{folder} is there, with other files than an export has; name another folder with --out")
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        save_file(
            {ours: _values(file, ours, theirs, shape) for ours, theirs in names.items()}, part / "model.safetensors"
        )
        write_json(part / "config.json", _config(file, _kept(shape, layers), layout))
        (part / "tokenizer.json").write_bytes(tokenizer)
        write_json(part / "tokenizer_config.json", _tokenizer_config(file, shape))
        swap(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_copy(source: Path, target: Path) -> None:
    """The file itself at another place, whole or not at all. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(source, part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def unpermute(matrix: Matrix, heads: int) -> Matrix:
    """Reorders the rows of a query or key matrix from neighbouring pairs to halves (:func:`foretype_models.pull.write.permute`)."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _values(file: GgufFile, ours: str, theirs: str, shape: Shape) -> Matrix:
    values = file.values(theirs)
    if ours.endswith(("q_proj.weight", "k_proj.weight")):
        values = unpermute(values, shape.heads if ours.endswith("q_proj.weight") else shape.kv_heads)
    return np.ascontiguousarray(values)


def _shape(file: GgufFile) -> Shape:
    def number(key: str, default: float | None = None) -> float:
        value = file.says(f"llama.{key}")
        if value is None and default is not None:
            return default
        if not isinstance(value, int | float):
            raise ExportFileError(f"{file.path} lacks llama.{key} in its header; fetch or export it again")
        return value

    if (architecture := file.says("general.architecture")) != "llama":
        raise ExportFileError(f"{file.path} is a {architecture} model; only llama models can be exported")
    if "token_embd.weight" not in file.tensors:
        raise ExportFileError(f"{file.path} lacks token_embd.weight; it was damaged: fetch it again")
    width, heads = int(number("embedding_length")), int(number("attention.head_count"))
    return Shape(
        architecture="llama",
        vocabulary=file.tensors["token_embd.weight"].shape[0],
        width=width,
        layers=int(number("block_count")),
        heads=heads,
        kv_heads=int(number("attention.head_count_kv", heads)),
        head_width=int(number("attention.key_length", width // heads)),
        feed_forward=int(number("feed_forward_length")),
        rope_base=round(number("rope.freq_base", 10_000.0), 3),
        norm_epsilon=float(f"{number('attention.layer_norm_rms_epsilon'):.6g}"),
        context=int(number("context_length")),
        tied="output.weight" not in file.tensors,
    )


def _kept(shape: Shape, layers: int | None) -> Shape:
    return shape if layers is None else replace(shape, layers=layers)


def _config(file: GgufFile, shape: Shape, layout: str | None) -> dict[str, Any]:
    """`config.json`, with grammar and layout where the file or the caller says them: a gateway reads them there."""
    named = {"grammar": file.says("foretype.grammar"), "layout": layout or file.says("foretype.layout")}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "intermediate_size": shape.feed_forward,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.rope_base,
        "rms_norm_eps": shape.norm_epsilon,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
        **{f"{name}_token_id": number for name, number in _ends(file).items()},
        **{f"foretype_{name}": value for name, value in named.items() if value is not None},
    }


def _ends(file: GgufFile) -> dict[str, int]:
    keys = {"bos": "bos", "eos": "eos", "pad": "padding"}
    said = {name: file.says(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    return {name: int(number) for name, number in said.items() if number is not None}


def _tokenizer_config(file: GgufFile, shape: Shape) -> dict[str, Any]:
    tokens = file.says("tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{name}_token": tokens[number] for name, number in _ends(file).items() if name != "bos"},
        "model_max_length": shape.context,
        "clean_up_tokenization_spaces": False,
    }
