"""Chunks of KV cache in a Redis or Valkey that a fleet shares: batched, expiring, and never a wrong byte.

KV cache *is* source code, in another notation: the store must keep nothing on a disk, and every key begins with a namespace that
nobody can guess and that a purge abandons. Synchronous and used from worker threads; every call is one round trip.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final, NamedTuple

import redis

from foretype_backend.errors import ChunkFormatError, TierRefusedError, TierUnavailableError

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
    """A chunk as it lies in the store: who can write to it, and has not the secret, can take chunks away and make none. The name is in the digest: a value under a foreign one does not pass.

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


_FORMAT_KEY: Final = "ftk:format"
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_PURGE_BATCH: Final = 1_000


class ChunkStatistics(NamedTuple):
    stored: int
    found: int
    missed: int
    damaged: int


class RedisChunks:
    """See the module.

    Args:
        url: `redis://host:port/db` or `unix:///path`; `rediss://` for TLS.
        secret: what chunks are authenticated with; the same for the whole fleet.
        ttl_s: after this long without a store or a load a chunk is gone.
        timeout_s: for a connection and for every answer.
        unverified: accept a server that does not let its configuration be read. Managed ones often do not; that it keeps
            nothing on disk is then the operator's word.

    Raises:
        ValueError: the URL cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: bytes,
        ttl_s: int = 3600,
        timeout_s: float = 0.25,
        compress: bool = False,
        unverified: bool = False,
    ) -> None:
        self._secret = secret
        if ttl_s < 1:
            raise ValueError(f"ttl_s must be at least 1, not {ttl_s}")
        # No retries of its own: a completion that waits for one is late already.
        self._redis: Any = redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - open options
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=None, protocol=2
        )
        self._ttl_s = ttl_s
        self._compress = compress
        self._unverified = unverified
        self._stored = self._found = self._missed = self._damaged = 0

    def check(self) -> None:
        """Whether the server may be used; before the first call, and after every time it was away.

        Raises:
            TierRefusedError: it writes to disk, does not say whether it does, or holds another format.
            TierUnavailableError: it does not answer.
        """
        try:
            settings: dict[str, str] = {}
            try:
                for name in ("save", "appendonly"):
                    settings |= self._redis.config_get(name)
            except redis.ResponseError as error:
                if not self._unverified:
                    raise TierRefusedError(
                        "the server does not let CONFIG be read, so nobody knows whether it writes to disk; allow CONFIG GET, "
                        "or set unverified if you are sure"
                    ) from error
            text = {_text(key): _text(value) for key, value in settings.items()}
            if text.get("save", "") or text.get("appendonly", "no") != "no":
                raise TierRefusedError(
                    "the server writes to disk, and KV cache is source code; start it with `--save '' --appendonly no`"
                )
            self._redis.set(_FORMAT_KEY, FORMAT, nx=True)
            found = _text(self._redis.get(_FORMAT_KEY))
        except redis.RedisError as error:
            raise TierUnavailableError(type(error).__name__) from error
        if found != str(FORMAT):
            raise TierRefusedError(
                f"the server holds chunks of format {found}, this is format {FORMAT}; name another database, or delete {_FORMAT_KEY} "
                "and the chunks"
            )

    def exist(self, namespace: str, keys: Sequence[bytes]) -> list[bool]:
        """Which of the keys are there. Raises TierUnavailableError."""
        answers = self._pipelined([("EXISTS", _name(namespace, key)) for key in keys])
        return [bool(answer) for answer in answers]

    def store(self, namespace: str, chunks: Sequence[tuple[bytes, bytes | memoryview]]) -> int:
        """Puts chunks in, unless they are there; returns the bytes sent. Raises TierUnavailableError."""
        commands: list[tuple[Any, ...]] = []
        sent = 0
        for key, payload in chunks:
            value = pack(self._secret, _name(namespace, key), payload, compress=self._compress)
            sent += len(value)
            commands.append(("SET", _name(namespace, key), value, "EX", self._ttl_s, "NX"))
        self._pipelined(commands)
        self._stored += len(commands)
        return sent

    def load(self, namespace: str, keys: Sequence[bytes], size: int) -> list[bytes | None]:
        """Payloads of `size` bytes; None for what is not there or is damaged. Raises TierUnavailableError."""
        answers = self._pipelined([("GETEX", _name(namespace, key), "EX", self._ttl_s) for key in keys])
        found: list[bytes | None] = []
        for key, value in zip(keys, answers, strict=True):
            if value is None:
                self._missed += 1
                found.append(None)
                continue
            try:
                found.append(unpack(self._secret, _name(namespace, key), value, size))
                self._found += 1
            except ChunkFormatError:
                self._damaged += 1
                found.append(None)
        return found

    def shorten(self, namespace: str, keys: Sequence[bytes], ttl_s: int) -> None:
        """Retired chunks leave soon, unless somebody uses them again. Raises TierUnavailableError."""
        self._pipelined([("EXPIRE", _name(namespace, key), ttl_s, "LT") for key in keys])

    def purge(self, namespace: str) -> int:
        """Deletes everything of a namespace; returns how many chunks. Raises TierUnavailableError."""
        deleted = 0
        try:
            batch: list[Any] = []
            for key in self._redis.scan_iter(match=_prefix(namespace) + b"*", count=_PURGE_BATCH):
                batch.append(key)
                if len(batch) == _PURGE_BATCH:
                    deleted += int(self._redis.unlink(*batch))
                    batch.clear()
            return deleted + (int(self._redis.unlink(*batch)) if batch else 0)
        except redis.RedisError as error:
            raise TierUnavailableError(type(error).__name__) from error

    def wire_bytes(self, size: int) -> int:
        """Bytes that an uncompressed chunk of `size` takes on the wire."""
        return size + HEADER_BYTES

    def statistics(self) -> ChunkStatistics:
        return ChunkStatistics(self._stored, self._found, self._missed, self._damaged)

    def close(self) -> None:
        self._redis.close()

    def _pipelined(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if not commands:
            return []
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                return pipe.execute()
        except redis.RedisError as error:
            # The message may hold a key or an address; its kind is enough.
            raise TierUnavailableError(type(error).__name__) from error


def _prefix(namespace: str) -> bytes:
    if not _NAMESPACE.fullmatch(namespace):
        raise ValueError("namespace: 1 to 128 letters, digits, - and _ are expected")
    return f"ftk{FORMAT}:{namespace}:".encode()


def _name(namespace: str, key: bytes) -> bytes:
    return _prefix(namespace) + key


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
