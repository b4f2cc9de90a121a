"""The metadata of a GGUF file, read by name: what a model says of itself and the vocabulary that it carries.

Not the library `gguf`: its reader makes an array of every token. On a header of 152,000 tokens and as many merges it took 6.1 s
and 540 MiB, this one 0.02 s and 40 MiB.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from foretype_models.errors import GgufError

_SCALARS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING: Final = 8
_ARRAY: Final = 9
_DIMENSIONS: Final = 4
"""Of a tensor, at most."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Field:
    """A value with its type as the file has it: `kind`, and of an array `item`, by GGUF's numbers."""

    kind: int
    item: int | None
    value: Any


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies.

    Attributes:
        shape: rows first, as numpy has it; the file has the row's length first.
        kind: GGUF's number of its type.
        offset: bytes behind the start of all tensors.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def read_metadata(path: Path, keys: Collection[str]) -> dict[str, Any]:
    """The values of `keys`, arrays whole; absent keys are left out. Raises GgufError."""
    return open_gguf(path, lambda reader: read_pairs(path, reader, keys)[0])


def open_gguf(path: Path, read: Callable[[GgufReader], _T]) -> _T:
    """What `read` makes of the file. Raises GgufError; one that `read` raises comes through."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read(GgufReader(data))
    except FileNotFoundError:
        raise GgufError(f"{path}: no such file; give --model the path of a .gguf file") from None
    except IsADirectoryError:
        raise GgufError(f"{path}: is a folder; give --model the path of a .gguf file") from None
    except OSError as error:
        raise GgufError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    except (struct.error, IndexError, UnicodeDecodeError):
        raise GgufError(f"{path}: its header is cut off or damaged; download or export it again") from None
    except ValueError as error:
        if path.stat().st_size:
            raise
        raise GgufError(f"{path}: is empty; download or export it again") from error  # mmap of an empty file


class GgufReader:
    """A cursor in a mapped file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.offset = 0

    def scalar(self, form: str) -> Any:
        value = struct.unpack_from(form, self.data, self.offset)[0]
        self.offset += struct.calcsize(form)
        return value

    def string(self) -> str:
        length = self.scalar("<Q")
        end = self.offset + length
        if end > len(self.data):
            raise IndexError
        raw = self.data[self.offset : end]
        self.offset = end
        return raw.decode()

    def tensor(self) -> TensorEntry:
        """The next entry of the list of tensors, which follows the metadata."""
        name, dimensions = self.string(), self.scalar("<I")
        if dimensions > _DIMENSIONS:
            raise IndexError
        shape = tuple(self.scalar("<Q") for _ in range(dimensions))[::-1]
        return TensorEntry(name, shape, self.scalar("<I"), self.scalar("<Q"))

    def field(self) -> Field:
        """The next value, whole, behind its type."""
        kind = self.scalar("<I")
        item = struct.unpack_from("<I", self.data, self.offset)[0] if kind == _ARRAY else None
        return Field(kind, item, self.value(kind, whole=True))

    def value(self, kind: int, *, whole: bool = False) -> Any:
        """A scalar or string; of an array its length alone unless it is wanted `whole`."""
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        item, count = self.scalar("<I"), self.scalar("<Q")
        if whole and item == _STRING:
            return [self.string() for _ in range(count)]
        if item == _STRING:
            for _ in range(count):
                self.offset += 8 + struct.unpack_from("<Q", self.data, self.offset)[0]
            return cast("int", count)
        form = _SCALARS[item]
        start, self.offset = self.offset, self.offset + count * struct.calcsize(form)
        if not whole:
            return cast("int", count)
        if self.offset > len(self.data):
            raise IndexError
        return list(struct.unpack_from(f"<{count}{form[1]}", self.data, start))


def read_pairs(path: Path, reader: GgufReader, whole: Collection[str] = ()) -> tuple[dict[str, Any], int]:
    """All key-value pairs, or those of `whole` alone with their arrays; and the number of tensors that follow."""
    tensor_count, key_count = _counts(path, reader)
    meta: dict[str, Any] = {}
    try:
        for _ in range(key_count):
            key = reader.string()
            value = reader.value(reader.scalar("<I"), whole=key in whole)
            if not whole or key in whole:
                meta[key] = value
    except KeyError:
        raise struct.error from None
    return meta, tensor_count


def read_fields(path: Path, reader: GgufReader) -> tuple[dict[str, Field], int]:
    """All key-value pairs with their types, arrays whole, to be written again; and the number of tensors that follow."""
    tensor_count, key_count = _counts(path, reader)
    try:
        return {reader.string(): reader.field() for _ in range(key_count)}, tensor_count
    except KeyError:
        raise struct.error from None


def _counts(path: Path, reader: GgufReader) -> tuple[int, int]:
    if reader.data[:4] != b"GGUF":
        raise GgufError(f"{path}: is not a GGUF file (it starts with {bytes(reader.data[:4])!r}); give a .gguf file")
    reader.offset = 4
    version = reader.scalar("<I")
    if version not in (2, 3):
        raise GgufError(f"{path}: GGUF version {version} is not known (2 and 3 are); export it again")
    return reader.scalar("<Q"), reader.scalar("<Q")
