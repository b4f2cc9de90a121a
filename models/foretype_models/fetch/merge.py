"""Base and adapter become one GGUF file, Q8_0, tensor by tensor: memory holds one matrix at a time.

Of base and adapter it says before anything is written whether they fit. Products are summed in fp64: in whatever order a machine's
library adds, the file comes out the same, so that its digest names the model everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from foretype_models.errors import FetchError
from foretype_models.fetch.base import Progress
from foretype_models.fetch.gguf_file import GgufFile, read_file

_A, _B, _ROWS = ".lora_a", ".lora_b", ".rows"
_EMBEDDING: Final = "token_embd.weight"
_TOKENS: Final = "tokenizer.ggml.tokens"
_TYPES: Final = "tokenizer.ggml.token_type"
_END: Final = "<|end_of_middle|>"
_IDS: Final = {
    "<|fim_prefix|>": ("fim_pre",),
    "<|fim_suffix|>": ("fim_suf",),
    "<|fim_middle|>": ("fim_mid",),
    "<|repo_name|>": ("fim_rep",),
    "<|file_sep|>": ("fim_sep",),
    _END: ("eos", "eot"),
}
"""By which names of GGUF other engines find our control tokens."""
_NEEDED: Final = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", _END)
_READ: Final = frozenset({"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"})
_OURS: Final = ("foretype.grammar", "foretype.layout", "foretype.trained_tokens", "foretype.base_sha256")
_AGAIN: Final = "reinstall foretype, or name another adapter"
_Values = TypeVar("_Values", bound=npt.NDArray[np.floating[Any]])
_MOST: Final = 127 * 65_504.0
"""Of a value in Q8_0: its scale, a 127th of the largest, is a number of two bytes."""


@dataclass(frozen=True)
class Adapter:
    """What an adapter says of itself.

    Attributes:
        controls: id of the base's vocabulary to our text.
        scale: of the product of its two matrices.
        licence: SPDX expression.
    """

    file: GgufFile
    name: str
    version: str
    licence: str
    grammar: str
    layout: str
    base_sha256: str
    trained_tokens: int
    scale: float
    controls: Mapping[int, str]


def read_adapter(path: Path) -> Adapter:
    """Reads an adapter's header.

    Raises:
        FetchError: it is no whole adapter of ours.
    """
    file = read_file(path)
    if (file.says("general.type"), file.says("adapter.type")) != ("adapter", "lora"):
        raise FetchError(f"{path}: is no adapter (general.type is {file.says('general.type')!r}); {_AGAIN}")
    ids, tokens = (_said(file, f"foretype.control.{name}", list) for name in ("ids", "tokens"))
    if (
        len(ids) != len(tokens)
        or len(set(ids)) != len(ids)
        or len(set(tokens)) != len(tokens)
        or not all(isinstance(one, int) for one in ids)
        or not all(isinstance(one, str) for one in tokens)
    ):
        raise FetchError(f"{path}: foretype.control.ids and foretype.control.tokens do not go together; {_AGAIN}")
    if missing := [token for token in _NEEDED if token not in tokens]:
        raise FetchError(f"{path}: foretype.control.tokens lacks {missing[0]!r}; {_AGAIN}")
    ranks = {file.tensors[name].shape[0] for name in file.tensors if name.endswith(_A)}
    if len(ranks) > 1:
        raise FetchError(f"{path}: its matrices have the ranks {sorted(ranks)}, where one was expected; {_AGAIN}")
    alpha = _said(file, "adapter.lora.alpha", float)
    if not np.isfinite(alpha):
        raise FetchError(f"{path}: adapter.lora.alpha is {alpha}; {_AGAIN}")
    return Adapter(
        file=file,
        name=_said(file, "general.name", str),
        version=_said(file, "general.version", str),
        licence=_said(file, "general.license", str),
        grammar=_said(file, "foretype.grammar", str),
        layout=_said(file, "foretype.layout", str),
        base_sha256=_said(file, "foretype.base_sha256", str),
        trained_tokens=_said(file, "foretype.trained_tokens", int),
        scale=alpha / max(ranks, default=1),
        controls=dict(zip(ids, tokens, strict=True)),
    )


def _said(file: GgufFile, key: str, kind: type[Any]) -> Any:
    value = file.says(key)
    if not isinstance(value, kind):
        raise FetchError(f"{file.path}: {key} is {'missing' if value is None else 'of another type'}; {_AGAIN}")
    return value


def merge(
    base_path: Path, adapter: Adapter, adapter_sha256: str, target: Path, progress: Progress = lambda done, total: None
) -> int:
    """Writes the merged file and returns the number of weights.

    Raises:
        FetchError: base and adapter do not fit each other; nothing was written.
        OSError: the disk is full; what was written so far is left to the caller.
    """
    import gguf

    base = read_file(base_path)
    tokens, types = _vocabulary(base, adapter)
    _check(base, adapter)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(target, _said(base, "general.architecture", str))
    _header(writer, base, adapter, adapter_sha256, tokens, types)
    total = done = 0
    for name, entry in base.tensors.items():
        if len(entry.shape) == 1:
            size = entry.shape[0] * 4
            writer.add_tensor_info(name, entry.shape, np.dtype(np.float32), size)
        else:
            rows = gguf.quants.quant_shape_to_byte_shape(entry.shape, kind)
            size = int(np.prod(rows))
            writer.add_tensor_info(name, rows, np.dtype(np.uint8), size, raw_dtype=kind)
        total += size
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name in base.tensors:
            written = np.ascontiguousarray(_merged(base, adapter, name))
            writer.write_tensor_data(written)
            done += int(written.nbytes)
            progress(done, total)
    finally:
        writer.close()
    return sum(int(np.prod(entry.shape)) for entry in base.tensors.values())


def _vocabulary(base: GgufFile, adapter: Adapter) -> tuple[list[str], list[int]]:
    """The base's tokens and their types, with our control tokens in their places."""
    from gguf import TokenType

    tokens, types = list(_said(base, _TOKENS, list)), list(_said(base, _TYPES, list))
    path = adapter.file.path
    embedding = base.tensors.get(_EMBEDDING)
    if embedding is None or len(types) != len(tokens) or embedding.shape[0] != len(tokens):
        raise FetchError(f"{base.path}: carries no whole vocabulary with its embedding; fetch it again")
    if outside := [at for at in adapter.controls if not 0 <= at < len(tokens)]:
        raise FetchError(f"{path}: foretype.control.ids has {outside[0]}, the base has {len(tokens)} tokens; {_AGAIN}")
    for at, token in adapter.controls.items():
        tokens[at], types[at] = token, int(TokenType.CONTROL)
    ours = set(adapter.controls.values())
    if twice := [token for at, token in enumerate(tokens) if token in ours and at not in adapter.controls]:
        raise FetchError(f"{path}: {twice[0]!r} is a token of the base at another id, too; {_AGAIN}")
    return tokens, types


def _check(base: GgufFile, adapter: Adapter) -> None:
    """Every tensor of both has its place, its shape and a type that is read."""
    from gguf import GGMLQuantizationType

    path = adapter.file.path
    for file in (base, adapter.file):
        for entry in file.tensors.values():
            if (type_name := GGMLQuantizationType(entry.kind).name) not in _READ:
                raise FetchError(f"{file.path}: {entry.name!r} is {type_name}, which cannot be merged; {_AGAIN}")
    for entry in base.tensors.values():
        if len(entry.shape) > 2 or (len(entry.shape) == 2 and entry.shape[1] % 32):
            raise FetchError(f"{base.path}: {entry.name!r} has the shape {entry.shape}, which Q8_0 cannot have")
    for name, entry in adapter.file.tensors.items():
        of, part = next(((name.removesuffix(end), end) for end in (_A, _B, _ROWS) if name.endswith(end)), (name, ""))
        if of not in base.tensors:
            raise FetchError(f"{path}: {name!r} changes a tensor that the base does not have; {_AGAIN}")
        shape = base.tensors[of].shape
        if part in (_A, _B):
            other = adapter.file.tensors.get(of + (_B if part == _A else _A))
            if other is None:
                raise FetchError(f"{path}: {name!r} has no second half; {_AGAIN}")
            rank = entry.shape[0] if part == _A else entry.shape[-1]
            expected = (rank, *shape[1:]) if part == _A else (shape[0], rank)
            if len(shape) != 2 or (other.shape[-1] if part == _A else other.shape[0]) != rank:
                raise FetchError(f"{path}: {name!r} and {other.name!r} do not go together; {_AGAIN}")
        elif part == _ROWS:
            expected = (len(adapter.controls), *shape[1:]) if of == _EMBEDDING else ()
        else:
            expected = shape
        if entry.shape != expected:
            raise FetchError(f"{path}: {name!r} has the shape {entry.shape}, the base asks for {expected}; {_AGAIN}")


def _merged(base: GgufFile, adapter: Adapter, name: str) -> Any:
    """A tensor as it is written: fp32 of a vector, the bytes of Q8_0 of a matrix."""
    from gguf import GGMLQuantizationType, quants

    kind, ours = GGMLQuantizationType.Q8_0, adapter.file
    entry = base.tensors[name]
    source = ours if name in ours.tensors else base
    if len(entry.shape) == 1:
        return _finite(ours, name, source.values(name))
    if name + _A in ours.tensors:
        left, right = (_finite(ours, name, ours.values(name + half)).astype(np.float64) for half in (_B, _A))
        values = _finite(ours, name, source.values(name)) + adapter.scale * (left @ right)
        written = quants.quantize(_scaled(ours, name, values).astype(np.float32), kind)
    elif source.tensors[name].kind == kind:
        written = source.raw(name)
    else:
        written = quants.quantize(_scaled(ours, name, source.values(name)), kind)
    if name + _ROWS in ours.tensors:
        written = np.array(written)
        written[list(adapter.controls)] = quants.quantize(_scaled(ours, name, ours.values(name + _ROWS)), kind)
    return written


def _finite(file: GgufFile, name: str, values: _Values) -> _Values:
    if not np.isfinite(values).all():
        raise FetchError(f"{file.path}: {name!r} gets values that are not finite; {_AGAIN}")
    return values


def _scaled(file: GgufFile, name: str, values: _Values) -> _Values:
    """Of a matrix: Q8_0 has no scale for more, and would write infinity."""
    if np.abs(_finite(file, name, values)).max(initial=0.0) > _MOST:
        raise FetchError(f"{file.path}: {name!r} gets values that Q8_0 cannot hold; {_AGAIN}")
    return values


def _header(
    writer: Any, base: GgufFile, adapter: Adapter, adapter_sha256: str, tokens: list[str], types: list[int]
) -> None:
    import gguf

    kinds, ours = gguf.GGUFValueType, adapter.file
    number = {token: at for at, token in adapter.controls.items()}
    changed: dict[str, tuple[Any, Any, Any]] = {
        "general.name": (adapter.name, kinds.STRING, None),
        "general.version": (adapter.version, kinds.STRING, None),
        "general.license": (adapter.licence, kinds.STRING, None),
        "general.file_type": (int(gguf.LlamaFileType.MOSTLY_Q8_0), kinds.UINT32, None),
        "general.base_model.count": (1, kinds.UINT32, None),
        "general.base_model.0.name": (str(base.says("general.name")), kinds.STRING, None),
        _TOKENS: (tokens, kinds.ARRAY, kinds.STRING),
        _TYPES: (types, kinds.ARRAY, kinds.INT32),
        "foretype.adapter_sha256": (adapter_sha256, kinds.STRING, None),
    }
    for token, names in _IDS.items():
        if token in number:
            changed |= {f"tokenizer.ggml.{name}_token_id": (number[token], kinds.UINT32, None) for name in names}
    copied = {
        key: (field.value, kinds(field.kind), None if field.item is None else kinds(field.item))
        for file, keys in ((base, list(base.fields)), (ours, list(_OURS)))
        for key in keys
        if key != "general.architecture" and not key.startswith("tokenizer.chat_template")
        for field in [file.fields[key]]
        if field.item is None or field.value
    }
    for key, (value, kind, item) in (copied | changed).items():
        writer.add_key_value(key, value, kind, sub_type=item)
