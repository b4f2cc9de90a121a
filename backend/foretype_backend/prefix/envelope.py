"""A cached chunk as it lies in a shared store: versioned, checksummed, so that a wrong byte is a miss and never an answer."""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b
from typing import Final

__all__ = ["FORMAT", "HEADER_BYTES", "BadEnvelope", "pack", "unpack"]

FORMAT: Final = 1
_MAGIC: Final = b"FTKV"
_HEADER: Final = struct.Struct(">4sBBQ16s")  # magic, format, compressed, payload bytes, BLAKE2b-128 of key and payload
HEADER_BYTES: Final = _HEADER.size


class BadEnvelope(Exception):
    """Not an envelope of this format, of another key, truncated or damaged."""


def _digest(key: bytes, payload: bytes | memoryview) -> bytes:
    digest = blake2b(key, digest_size=16)
    digest.update(payload)
    return digest.digest()


def pack(key: bytes, payload: bytes | memoryview, *, compress: bool = False) -> bytes:
    """The payload with a header. The key is in the checksum: a value under a foreign key does not pass.

    Args:
        compress: with zlib at its fastest, kept only where it saves an eighth.
    """
    body = bytes(payload)
    small = zlib.compress(body, 1) if compress else body
    squeezed = compress and len(small) <= len(body) - len(body) // 8
    return _HEADER.pack(_MAGIC, FORMAT, squeezed, len(body), _digest(key, body)) + (small if squeezed else body)


def unpack(key: bytes, value: bytes, size: int) -> bytes:
    """The payload of `size` bytes.

    Raises:
        BadEnvelope: anything but the very payload that was packed under this key.
    """
    if len(value) < HEADER_BYTES:
        raise BadEnvelope(f"{len(value)} bytes are no chunk")
    magic, version, squeezed, length, digest = _HEADER.unpack_from(value)
    if magic != _MAGIC or version != FORMAT:
        raise BadEnvelope(f"format {version} of {magic!r}; this is format {FORMAT}")
    if length != size:
        raise BadEnvelope(f"a chunk of {length} bytes, {size} are expected: another model or another layout")
    body = value[HEADER_BYTES:]
    if squeezed:
        inflate = zlib.decompressobj()
        try:
            body = inflate.decompress(body, size + 1)
        except zlib.error as error:
            raise BadEnvelope("damaged") from error
    if len(body) != size or _digest(key, body) != digest:
        raise BadEnvelope("damaged")
    return body
