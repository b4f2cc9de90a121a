"""Reads the header of a GGUF file, and refuses a file that the embedded engine cannot run, with the reason and the remedy.

The engine's own reader says "Unsupported quantization type" or crashes on a truncated file; this one costs a few
milliseconds and names the tensor. What opens was tried: architectures llama, qwen2 and qwen3; tensors of types that are read exactly
or converted before (:mod:`foretype_models.exact_weights`). One of another type refuses the whole file, and so does what the engine
would ignore in silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from foretype_models.errors import GgufError
from foretype_models.exact_weights import CONVERTED, READ_EXACTLY, bytes_of, type_name_of
from foretype_models.gguf_metadata import GgufReader, open_gguf, read_pairs

from foretype_backend.errors import ModelFileError

ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHeader:
    """What the engine needs to know before it opens a model.

    Attributes:
        kv_heads, head_size: of one layer's key-value cache.
        notes: what the engine silently ignores in this file.
    """

    architecture: str
    name: str
    context_limit_tokens: int
    vocabulary_tokens: int
    layers: int
    kv_heads: int
    head_size: int
    notes: tuple[str, ...] = ()


def kv_block_bytes(header: ModelHeader, block_tokens: int = 32) -> int:
    """Bytes of one block of the key-value cache on CPU: u8, keys quantised by channel and values by token.

    Each group carries a 4-byte scale and a 4-byte zero point. Equal to `kv_cache_size_in_bytes / num_kv_blocks` as the
    engine reports it (`tests/backend/test_engine_embedded_traps.py`).
    """
    keys = header.head_size * (block_tokens + 8)
    values = block_tokens * (header.head_size + 8)
    return header.layers * header.kv_heads * (keys + values)


def f16_kv_block_bytes(header: ModelHeader, block_tokens: int) -> int:
    """The same where keys and values are f16: of OpenVINO on a GPU, and of llama.cpp."""
    return header.layers * header.kv_heads * header.head_size * block_tokens * 2 * 2


def read_header(path: Path) -> ModelHeader:
    """Read and check the header of a GGUF file.

    Raises:
        ModelFileError: it is missing, not a GGUF file, truncated, or of a kind that does not open.
    """
    return _opened(path, lambda reader: _parse(path, reader))


def read_metadata(path: Path, keys: Collection[str]) -> dict[str, Any]:
    """The values of `keys`, arrays whole; absent keys are left out. Raises ModelFileError."""
    return _opened(path, lambda reader: read_pairs(path, reader, keys)[0])


def _opened(path: Path, read: Callable[[GgufReader], _T]) -> _T:
    try:
        return open_gguf(path, read)
    except GgufError as error:
        raise ModelFileError(str(error)) from error


def _parse(path: Path, reader: GgufReader) -> ModelHeader:
    meta, tensor_count = read_pairs(path, reader)
    architecture = str(meta.get("general.architecture", ""))
    if architecture not in ARCHITECTURES:
        raise ModelFileError(
            f"{path}: architecture {architecture!r} does not open here, but of {', '.join(ARCHITECTURES)} shape; {ELSEWHERE}"
        )
    vocabulary = _tensors(path, reader, tensor_count, int(meta.get("general.alignment", 32)), architecture)
    return _header(path, architecture, meta, vocabulary)


def _tensors(path: Path, reader: GgufReader, count: int, alignment: int, architecture: str) -> int:
    """Check the names, the types and the extent of all tensors; returns the rows of the embedding (0 if there is none)."""
    vocabulary, end = 0, 0
    for _ in range(count):
        one = reader.tensor()
        if ignored := ignored_tensor(architecture, one.name):
            raise ModelFileError(f"{path}: has {ignored} ({one.name}), which the engine would ignore; {ELSEWHERE}")
        type_name = type_name_of(one)
        if len(one.shape) > 1 and type_name not in READ_EXACTLY | CONVERTED:
            raise ModelFileError(
                f"{path}: tensor {one.name} is {type_name}, which does not open; use a file quantised as Q8_0, Q6_K or Q4_0"
            )
        end = max(end, one.offset + bytes_of(one))
        if one.name == "token_embd.weight":
            vocabulary = next(iter(one.shape), 0)
    start = -(-reader.offset // alignment) * alignment
    if start + end > len(reader.data):
        raise ModelFileError(
            f"{path}: is truncated ({len(reader.data)} bytes, its tensors need {start + end}); download or copy it again"
        )
    return vocabulary


def _header(path: Path, architecture: str, meta: dict[str, Any], vocabulary: int) -> ModelHeader:
    def number(key: str, default: int | None = None) -> int:
        value = meta.get(f"{architecture}.{key}", default)
        if not isinstance(value, int) or value <= 0:
            raise ModelFileError(f"{path}: {architecture}.{key} is missing or wrong ({value!r}); export it again")
        return value

    heads = number("attention.head_count")
    notes: list[str] = []
    context_limit_tokens = number("context_length")
    scaling = meta.get(f"{architecture}.rope.scaling.type", "none")
    layers, head_size = number("block_count"), number("attention.key_length", number("embedding_length") // heads)
    if ignored := ignored_setting(
        meta, architecture, context_tokens=context_limit_tokens, head_size=head_size, layers=layers
    ):
        raise ModelFileError(f"{path}: has {ignored}, which the engine would ignore; {ELSEWHERE}")
    if scaling not in ("none", ""):
        original = number("rope.scaling.original_context_length", context_limit_tokens)
        context_limit_tokens = min(context_limit_tokens, original)
        notes.append(
            f"rope scaling ({scaling}) is ignored by the engine; context limited to {context_limit_tokens} tokens"
        )
    if vocabulary <= 0:
        raise ModelFileError(f"{path}: has no tensor token_embd.weight; export it again")
    return ModelHeader(
        architecture=architecture,
        name=str(meta.get("general.name") or path.stem),
        context_limit_tokens=context_limit_tokens,
        vocabulary_tokens=vocabulary,
        layers=layers,
        kv_heads=number("attention.head_count_kv", heads),
        head_size=head_size,
        notes=tuple(notes),
    )


ELSEWHERE: Final = (
    "llama-server opens it: `llama-server -m FILE --port 8080`, then `foretype serve --engine openai --model "
    "http://127.0.0.1:8080/v1`"
)
"""The remedy."""

_USED: Final = re.compile(
    r"(?:token_embd|output|output_norm)\.weight"
    r"|blk\.\d+\.(?:attn_norm|attn_q|attn_k|attn_v|attn_output|ffn_norm|ffn_gate|ffn_up|ffn_down)\.weight"
)
_USED_BY: Final = {
    "qwen2": re.compile(r"blk\.\d+\.attn_[qkv]\.bias"),
    "qwen3": re.compile(r"blk\.\d+\.attn_[qk]_norm\.weight"),
}


def ignored_tensor(architecture: str, name: str) -> str:
    """What a tensor is for that the engine would not use; empty where it uses it."""
    own = _USED_BY.get(architecture)
    if _USED.fullmatch(name) or (own is not None and own.fullmatch(name)):
        return ""
    if name.startswith("rope"):
        return "a rope scaling"
    if name.endswith(".bias"):
        return "biases in the attention" if "attn" in name else "biases in the feed-forward part"
    return "experts" if "_exps" in name or "gate_inp" in name else "a part"


def ignored_setting(
    meta: Mapping[str, Any], architecture: str, *, context_tokens: int, head_size: int, layers: int
) -> str:
    """What of the metadata the engine would ignore in silence and then write nonsense, whatever the length of a text; empty where there is nothing."""

    def of(key: str, default: Any) -> Any:
        return meta.get(f"{architecture}.{key}", default)

    scaling, window = of("rope.scaling.type", "none"), of("attention.sliding_window", 0)
    if scaling not in ("none", "", "yarn"):
        return f"a rope scaling ({scaling})"
    if of("rope.scale_linear", 1.0) != 1.0:
        return "a rope scaling (linear)"
    if isinstance(window, int) and 0 < window < context_tokens:
        return f"a sliding window of {window} tokens"
    if of("rope.dimension_count", head_size) != head_size:
        return "a partial rotary embedding"
    if of("expert_count", 0):
        return "experts"
    if layers > 1 and isinstance(of("attention.head_count_kv", 0), list):
        return "layers of different shapes"
    return ""
