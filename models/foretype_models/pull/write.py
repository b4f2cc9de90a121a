"""Writes what a pulled model becomes: GGUF Q8_0, tensor by tensor, so that memory holds one tensor at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from foretype_models.errors import PullError
from foretype_models.pull.checkpoint import Matrix, Tensor
from foretype_models.pull.shapes import Shape
from foretype_models.pull.tokens import Vocabulary

BLOCK_VALUES, BLOCK_BYTES = 32, 34
"""Q8_0: 32 values in 34 bytes."""


def q8_bytes(shape: tuple[int, ...]) -> int:
    """Bytes of a matrix in Q8_0."""
    return shape[0] * shape[1] // BLOCK_VALUES * BLOCK_BYTES


def check_tensors(tensors: dict[str, Tensor], shape: Shape, where: Path) -> None:
    """Every weight is there and has its shape.

    Raises:
        PullError: naming the first that is not.
    """
    for name in shape.names():
        if name not in tensors:
            raise PullError(f"{where} lacks {name}; config.json is not the one of these weights, fetch both again")
        if tensors[name].shape != shape.expected(name):
            raise PullError(
                f"{where}: {name} has the shape {tensors[name].shape}, config.json asks for {shape.expected(name)}; "
                "fetch both again, of one model"
            )


def write_gguf(target: Path, name: str, shape: Shape, vocabulary: Vocabulary, tensors: dict[str, Tensor]) -> int:
    """Writes the file and returns the number of parameters.

    Raises:
        PullError: a weight is not finite.
        OSError: the disk is full.
    """
    import gguf

    kind = gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(target, shape.architecture)
    _header(writer, name, shape, vocabulary)
    names = shape.names()
    for theirs, ours in names.items():
        size = shape.expected(theirs)
        if len(size) == 1:
            writer.add_tensor_info(ours, size, np.dtype(np.float32), size[0] * 4)
        else:
            byte_shape = (size[0], size[1] // BLOCK_VALUES * BLOCK_BYTES)
            writer.add_tensor_info(ours, byte_shape, np.dtype(np.uint8), q8_bytes(size), raw_dtype=kind)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for theirs in names:
            values = _permuted(theirs, tensors[theirs].read(), shape)
            if not np.isfinite(values).all():
                raise PullError(f"{tensors[theirs].file}: {theirs} holds values that are not finite; fetch it again")
            writer.write_tensor_data(values if values.ndim == 1 else gguf.quants.quantize(values, kind))
    finally:
        writer.close()
    return sum(int(np.prod(shape.expected(theirs))) for theirs in names)


def permute(matrix: Matrix, heads: int) -> Matrix:
    """Reorders the rows of a query or key matrix from halves to neighbouring pairs.

    Args:
        matrix: (heads * head_width, width).
        heads: number of heads the rows belong to.
    """
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _permuted(name: str, values: Matrix, shape: Shape) -> Matrix:
    """llama.cpp's ``llama`` rotates neighbours where Hugging Face rotates halves; the other shapes keep halves."""
    if shape.architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
        values = permute(values, shape.heads if name.endswith("q_proj.weight") else shape.kv_heads)
    return np.ascontiguousarray(values)


def _header(writer: Any, name: str, shape: Shape, vocabulary: Vocabulary) -> None:
    import gguf

    writer.add_name(name)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    if vocabulary.pieces:
        writer.add_bool("foretype.ids_only", True)
    if vocabulary.merges:
        writer.add_token_merges(vocabulary.merges)
    end = next(
        (
            at
            for at, token in enumerate(vocabulary.tokens)
            if token in ("<|endoftext|>", "</s>", "<｜end▁of▁sentence｜>")
        ),
        0,
    )
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
