"""A cached chunk as it lies in a shared store: versioned and authenticated, so that a wrong byte is a miss and never an answer.

Who can write to the store, and has not the deployment's secret, can take chunks away and make none.
"""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from foretype_backend.errors import ChunkFormatError

FORMAT: Final = 2
_MAGIC: Final = b"FTKV"
_HEADER: Final = struct.Struct(
    ">4sBBQ16s"
)  # magic, format, compressed, payload bytes, keyed BLAKE2b-128 of where and what
HEADER_BYTES: Final = _HEADER.size


def _digest(secret: bytes, name: bytes, payload: bytes | memoryview) -> bytes:
    digest = blake2b(len(name).to_bytes(4, "big") + name, digest_size=16, key=secret)
    digest.update(payload)
    return digest.digest()


def pack(secret: bytes, name: bytes, payload: bytes | memoryview, *, compress: bool = False) -> bytes:
    """The payload with a header. The name is in the digest: a value under a foreign one does not pass.

    Args:
        secret: 32 bytes, see :func:`foretype_backend.prefix.salt.tier_secret`.
        name: what it is stored under, with its namespace.
        compress: with zlib at its fastest, kept only where it saves an eighth.
    """
    body = bytes(payload)
    small = zlib.compress(body, 1) if compress else body
    squeezed = compress and len(small) <= len(body) - len(body) // 8
    return _HEADER.pack(_MAGIC, FORMAT, squeezed, len(body), _digest(secret, name, body)) + (
        small if squeezed else body
    )


def unpack(secret: bytes, name: bytes, value: bytes, size: int) -> bytes:
    """The payload of `size` bytes.

    Raises:
        ChunkFormatError: anything but the very payload that was packed under this name, with this secret.
    """
    if len(value) < HEADER_BYTES:
        raise ChunkFormatError(f"{len(value)} bytes are no chunk")
    magic, version, squeezed, length, digest = _HEADER.unpack_from(value)
    if magic != _MAGIC or version != FORMAT:
        raise ChunkFormatError(f"format {version} of {magic!r}; this is format {FORMAT}")
    if length != size:
        raise ChunkFormatError(f"a chunk of {length} bytes, {size} are expected: another model or another layout")
    body = value[HEADER_BYTES:]
    if squeezed:
        inflate = zlib.decompressobj()
        try:
            body = inflate.decompress(body, size + 1)
        except zlib.error as error:
            raise ChunkFormatError("damaged") from error
    if len(body) != size or not compare_digest(_digest(secret, name, body), digest):
        raise ChunkFormatError("damaged")
    return body
