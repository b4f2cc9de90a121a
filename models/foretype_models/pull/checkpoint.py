"""A Hugging Face checkpoint on disk: which files it has, and its tensors one at a time.

safetensors files are read here and not by their library: numpy has no bfloat16, and a file whose header does not fit its
length has to be named.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from foretype_models.errors import PullError

Matrix = npt.NDArray[np.float32]

_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8}
_AGAIN = "delete the folder and fetch the model again"


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies: ``begin`` and ``end`` are offsets in its file."""

    file: Path
    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> Matrix:
        """Its values in fp32."""
        raw = np.memmap(self.file, dtype=np.uint8, mode="r", offset=self.begin, shape=(self.end - self.begin,))
        if self.kind == "BF16":
            wide = raw.view(np.uint16).astype(np.uint32) << np.uint32(16)
            return wide.view(np.float32).reshape(self.shape)
        dtype = {"F32": np.float32, "F16": np.float16, "F64": np.float64}[self.kind]
        return raw.view(dtype).astype(np.float32).reshape(self.shape)


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        PullError: not there, or no JSON object.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise PullError(f"{path} is missing, so this is no whole Hugging Face checkpoint; {_AGAIN}") from error
    except (OSError, ValueError) as error:
        raise PullError(f"{path} cannot be read ({error}); {_AGAIN}") from error
    if not isinstance(data, dict):
        raise PullError(f"{path} holds no JSON object; {_AGAIN}")
    return cast("dict[str, Any]", data)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint: one, or the shards that its index names.

    Raises:
        PullError: there is none, or a shard is missing.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        named = read_json(index).get("weight_map")
        if not isinstance(named, dict) or not named:
            raise PullError(f"{index} names no shards; {_AGAIN}")
        files = sorted({folder / Path(str(name)).name for name in cast("dict[str, Any]", named).values()})
    else:
        files = [folder / "model.safetensors"]
    for path in files:
        if not path.is_file():
            other = "" if not any(folder.glob("*.bin")) else " (pickled .bin files are not read: they can run code)"
            raise PullError(
                f"{path} is missing{other}; {_AGAIN}, or save it with `save_pretrained(safe_serialization)`"
            )
    return files


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        PullError: truncated, tampered with, or of a kind that is not read.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= size - 8:
            raise PullError(f"{path} is truncated ({size} bytes); {_AGAIN}")
        try:
            header = json.loads(stream.read(length))
            items = {str(name): item for name, item in header.items() if name != "__metadata__"}
            tensors = {name: _tensor(path, name, item, 8 + length) for name, item in items.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PullError(f"{path} has a header that cannot be read ({error}); {_AGAIN}") from error
    end = max((tensor.end for tensor in tensors.values()), default=8 + length)
    if end != size:
        kind = "truncated" if end > size else "longer than its header says"
        raise PullError(f"{path} is {kind}: {size} bytes, its tensors end at {end}; {_AGAIN}")
    return tensors


def _tensor(path: Path, name: str, item: dict[str, Any], base: int) -> Tensor:
    kind = str(item["dtype"])
    if kind not in _BYTES:
        raise PullError(f"{path}: {name} is of type {kind}; pull a checkpoint in BF16, F16 or F32")
    shape = tuple(int(side) for side in item["shape"])
    begin, end = (base + int(offset) for offset in item["data_offsets"])
    count = 1
    for side in shape:
        count *= side
    if end - begin != count * _BYTES[kind] or begin < base:
        raise ValueError(f"{name} has {end - begin} bytes for the shape {shape}")
    return Tensor(path, kind, shape, begin, end)
