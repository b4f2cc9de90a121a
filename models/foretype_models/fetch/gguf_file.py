"""A GGUF file, mapped: its metadata with their types, and its tensors as they lie there, checked against its length."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretype_models.errors import FetchError, GgufError
from foretype_models.gguf_metadata import Field, GgufReader, TensorEntry, open_gguf, read_fields

Matrix = npt.NDArray[np.float32]
Raw = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class GgufFile:
    """A file that was read.

    Attributes:
        start: bytes in front of all tensors.
    """

    path: Path
    fields: dict[str, Field]
    tensors: dict[str, TensorEntry]
    start: int

    def says(self, key: str) -> Any:
        """A value of the metadata; None where it says nothing."""
        field = self.fields.get(key)
        return None if field is None else field.value

    def raw(self, name: str) -> Raw:
        """A tensor as it lies in the file: (rows, bytes of a row), or (bytes,) of a vector."""
        from gguf import quants

        entry = self.tensors[name]
        shape = quants.quant_shape_to_byte_shape(entry.shape, _kind(entry))
        return np.memmap(self.path, dtype=np.uint8, mode="r", offset=self.start + entry.offset, shape=shape)

    def values(self, name: str) -> Matrix:
        """A tensor's values in fp32; of a damaged file they need not be finite."""
        from gguf import quants

        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(quants.dequantize(self.raw(name), _kind(self.tensors[name])), dtype=np.float32)


def read_file(path: Path) -> GgufFile:
    """Reads what stands before the tensors.

    Raises:
        FetchError: it is missing, no GGUF file, cut off, or has tensors of a type that is not read.
    """
    try:
        return open_gguf(path, lambda reader: _read(path, reader))
    except GgufError as error:
        raise FetchError(str(error)) from error


def _kind(entry: TensorEntry) -> Any:
    from gguf import GGMLQuantizationType

    return GGMLQuantizationType(entry.kind)


def _read(path: Path, reader: GgufReader) -> GgufFile:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    fields, count = read_fields(path, reader)
    tensors: dict[str, TensorEntry] = {}
    end = 0
    for _ in range(count):
        entry = reader.tensor()
        try:
            values, size = GGML_QUANT_SIZES[GGMLQuantizationType(entry.kind)]
        except ValueError:
            raise FetchError(f"{path}: tensor {entry.name!r} is of type {entry.kind}, which is not known") from None
        if not entry.shape or entry.shape[-1] % values or 0 in entry.shape:
            raise FetchError(f"{path}: tensor {entry.name!r} has the shape {entry.shape}, which its type cannot have")
        tensors[entry.name] = entry
        end = max(end, entry.offset + prod(entry.shape) // values * size)
    alignment = fields["general.alignment"].value if "general.alignment" in fields else 32
    if not isinstance(alignment, int) or alignment <= 0:
        raise FetchError(f"{path}: general.alignment is {alignment!r}, which is no number of bytes; fetch it again")
    start = -(-reader.offset // alignment) * alignment
    if start + end > len(reader.data):
        raise FetchError(
            f"{path}: is truncated ({len(reader.data):,} bytes, its tensors end at {start + end:,}); fetch it again"
        )
    return GgufFile(path, fields, tensors, start)
