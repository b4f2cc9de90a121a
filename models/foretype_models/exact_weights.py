"""GGUF files that OpenVINO would read as another model, or not at all: a copy in which it reads every weight as it is.

Of types with a minimum per group (Q4_1, Q4_K) OpenVINO GenAI 2026.4 rounds the minimum to whole steps, 8 % of the weights' size;
several others it refuses. Such matrices become Q8_0, whose rounding is a twentieth of that. The copy is made once, by one process at a
time, and kept; the header stays as it was, byte for byte, but for types, places and the file's type.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final

from foretype_models.errors import GgufError
from foretype_models.gguf_metadata import GgufReader, TensorEntry, open_gguf, read_pairs
from foretype_models.kept import keep, name_of

TYPES: Final = {  # id: (name, values in a block, bytes of a block)
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2),
}
READ_EXACTLY: Final = frozenset({"F16", "Q8_0", "Q6_K", "Q4_0"})
"""Types of matrices with which OpenVINO's logits are those of the dequantised weights (`tests/backend/test_exact_weights.py`)."""

CONVERTED: Final = frozenset(
    {"Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "BF16", "F32"}
)
"""Types of matrices that become Q8_0: of Q4_1 and Q4_K OpenVINO makes other weights, the rest it refuses."""

EXACT: Final = "exact"
"""Folder of the copies, beside the models as the engine's library has prepared them."""

_FORMAT: Final = "1"
_Q8_0, _Q8_0_FILE = 8, 7
_FILE_TYPE: Final = b"general.file_type"
_UINT32: Final = struct.pack("<I", 4)
_CHUNK_VALUES: Final = 1 << 22
_VALUES_S: Final = 12e6
"""Converted in a second by one slow core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsPlan:
    """What is to be done with a file before OpenVINO reads it.

    Attributes:
        types: of the matrices that are converted, sorted; empty where it is read as it is.
        bytes: of the copy.
        seconds: that making it takes, about.
    """

    types: tuple[str, ...]
    bytes: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{', '.join(self.types)} would be read as another model or not at all, so it is kept as Q8_0 too: "
            f"{self.bytes / 1e6:,.0f} MB, about {max(self.seconds, 1):,.0f} s, once"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where the parts of a file are: `head` is all before the descriptions of the tensors, `start` where their values begin."""

    head: bytes
    start: int
    alignment: int
    tensors: list[TensorEntry]


def default_prepared_dir() -> Path:
    """Where the embedded engine keeps what it makes of models."""
    import platformdirs

    return platformdirs.user_cache_path("foretype") / "engine"


def type_name_of(entry: TensorEntry) -> str:
    """As llama.cpp calls it, or its number."""
    return TYPES.get(entry.kind, (f"type {entry.kind}", 1, 0))[0]


def bytes_of(entry: TensorEntry) -> int:
    """Of a tensor; 0 where its type is not known."""
    _, values, size = TYPES.get(entry.kind, ("", 1, 0))
    return prod(entry.shape) // values * size


def _is_converted(entry: TensorEntry) -> bool:
    return len(entry.shape) > 1 and type_name_of(entry) in CONVERTED


def plan_weights(path: Path) -> WeightsPlan:
    """What a file needs. Raises GgufError: it cannot be read as GGUF."""
    tensors = _layout(path).tensors
    mine = [one for one in tensors if _is_converted(one)]
    size = sum(bytes_of(_as_q8(one)) for one in mine) + sum(bytes_of(one) for one in tensors if not _is_converted(one))
    types = tuple(sorted({type_name_of(one) for one in mine}))
    return WeightsPlan(types=types, bytes=size, seconds=sum(prod(one.shape) for one in mine) / _VALUES_S)


def exact_copy(path: Path, folder: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> Path:
    """A file with the same weights that OpenVINO reads exactly: `path` itself, or the copy of it in `folder`, made if there is none.

    Args:
        progress: is told how many values are converted, of how many.

    Raises:
        GgufError: the file cannot be read, or its copy not be written.
    """
    layout = _layout(path)
    if not any(_is_converted(one) for one in layout.tensors):
        return path

    def make(target: Path) -> None:
        with target.open("wb") as out, path.open("rb") as source:
            _write(source, layout, out, path, progress)

    try:
        return keep(
            folder / f"{name_of(path, _FORMAT)}-q8_0.gguf", sum(bytes_of(_as_q8(one)) for one in layout.tensors), make
        )
    except OSError as error:
        raise GgufError(
            f"{path}: its copy in Q8_0 cannot be kept in {folder} ({error.strerror or error}); make room or the folder writable, name "
            "another with engine.options.prepared_dir, or take a file quantised as Q8_0"
        ) from error


def _layout(path: Path) -> _Layout:
    def read(reader: GgufReader) -> _Layout:
        meta, count = read_pairs(path, reader)
        head, alignment = bytes(reader.data[: reader.offset]), int(meta.get("general.alignment", 32))
        tensors = [reader.tensor() for _ in range(count)]
        return _Layout(
            head=head, start=-(-reader.offset // alignment) * alignment, alignment=alignment, tensors=tensors
        )

    return open_gguf(path, read)


def _as_q8(one: TensorEntry) -> TensorEntry:
    return replace(one, kind=_Q8_0) if _is_converted(one) else one


def _write(source: BinaryIO, layout: _Layout, out: BinaryIO, path: Path, progress: Callable[[int, int], None]) -> None:
    out.write(_with_file_type(layout.head))
    offset = 0
    for one in map(_as_q8, layout.tensors):
        encoded = one.name.encode()
        out.write(struct.pack("<Q", len(encoded)) + encoded + struct.pack("<I", len(one.shape)))
        out.write(struct.pack(f"<{len(one.shape)}QIQ", *reversed(one.shape), one.kind, offset))
        offset += _padded(bytes_of(one), layout.alignment)
    out.write(b"\0" * (_padded(out.tell(), layout.alignment) - out.tell()))
    total, done = sum(prod(one.shape) for one in layout.tensors if _is_converted(one)), 0
    for one in layout.tensors:
        source.seek(layout.start + one.offset)
        written = 0
        for part, values in _parts(source, one, path):
            out.write(part)
            written += len(part)
            done += values
            progress(done, total)
        out.write(b"\0" * (_padded(written, layout.alignment) - written))


def _parts(source: BinaryIO, one: TensorEntry, path: Path) -> Iterator[tuple[bytes, int]]:
    """A tensor's bytes as the copy has them, in pieces, and how many values were converted for each."""
    if not _is_converted(one):
        yield _exactly(source, bytes_of(one), path), 0
        return
    import gguf

    to_q8 = gguf.GGMLQuantizationType.Q8_0
    columns = one.shape[-1]
    if columns % TYPES[_Q8_0][1]:
        raise GgufError(f"{path}: tensor {one.name} has rows of {columns} values, no multiple of 32; use a file as F16")
    rows = prod(one.shape) // columns
    row_bytes, step = bytes_of(one) // rows, max(_CHUNK_VALUES // columns, 1)
    kind = gguf.GGMLQuantizationType(one.kind)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        raw = _array(_exactly(source, count * row_bytes, path), count)
        values = gguf.quants.dequantize(raw, kind)
        yield gguf.quants.quantize(values, to_q8).tobytes(), count * columns


def _array(data: bytes, rows: int) -> Any:
    import numpy as np

    return np.frombuffer(data, np.uint8).reshape(rows, -1)


def _exactly(source: BinaryIO, size: int, path: Path) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise GgufError(f"{path}: is truncated; download or copy it again")
    return data


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _with_file_type(head: bytes) -> bytes:
    """The header with `general.file_type` set to Q8_0, where it has one."""
    at = head.find(_FILE_TYPE) + len(_FILE_TYPE)
    if at < len(_FILE_TYPE) or head[at : at + 4] != _UINT32:
        return head
    return head[: at + 4] + struct.pack("<I", _Q8_0_FILE) + head[at + 8 :]
