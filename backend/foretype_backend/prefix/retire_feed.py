"""From the gateway to the tiers: what was retired and what was purged. A queue inside one process, a Redis stream between them.

Nothing here is needed for a right answer: a message that is lost costs room until the chunk is evicted in the ordinary way. In the stream
each is authenticated: who can write to that Redis cannot empty the tiers of others through it.
"""

from __future__ import annotations

import hmac
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

STREAM: Final = "ftk:retire"
STREAM_LENGTH: Final = 10_000
_FIELD: Final = b"m"
_SIGNED: Final = b"s"


class RetireNotice(NamedTuple):
    """Characters of a document from `first` on are wanted by nobody any more."""

    namespace: str
    document: str
    first: int


class PurgeNotice(NamedTuple):
    namespace: str


Message = RetireNotice | PurgeNotice


def encode(message: Message, secret: bytes) -> dict[bytes, bytes]:
    """Fields of a stream entry, authenticated with the fleet's secret (see :func:`foretype_backend.prefix.salt.tier_secret`)."""
    kind = "purge" if isinstance(message, PurgeNotice) else "retire"
    said = msgspec.json.encode([kind, *message])
    return {_FIELD: said, _SIGNED: hmac.digest(secret, said, "sha256")}


def decode(fields: dict[bytes, bytes], secret: bytes) -> Message | None:
    """None for an entry of another version, or of somebody else: it only costs room."""
    try:
        said = fields[_FIELD]
        if not hmac.compare_digest(fields[_SIGNED], hmac.digest(secret, said, "sha256")):
            return None
        kind, *rest = msgspec.json.decode(said, type=list[Any])
        if kind == "purge" and len(rest) == 1 and isinstance(rest[0], str):
            return PurgeNotice(rest[0])
        namespace, document, first = rest
    except (KeyError, ValueError, msgspec.MsgspecError):
        return None
    fits = kind == "retire" and isinstance(namespace, str) and isinstance(document, str) and type(first) is int
    return RetireNotice(namespace, document, first) if fits else None


class RetireFeed:
    """Hands every message to every subscriber; each has a bounded queue and drops its oldest when it does not read."""

    def __init__(self, *, capacity: int = STREAM_LENGTH) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._queues: list[deque[Message]] = []

    def subscribe(self) -> Callable[[], list[Message]]:
        """A function that takes what has come since it was called last."""
        queue: deque[Message] = deque(maxlen=self._capacity)
        with self._lock:
            self._queues.append(queue)

        def taken() -> list[Message]:
            messages: list[Message] = []
            while queue:
                messages.append(queue.popleft())
            return messages

        return taken

    def publish(self, messages: Iterable[Message]) -> None:
        with self._lock:
            for message in messages:
                for queue in self._queues:
                    queue.append(message)


def read_stream(client: Any, after: str, secret: bytes, *, block_ms: int = 1_000) -> tuple[list[Message], str]:
    """What stands in the stream after an entry, and the id of the last one read; waits at most so long for a first.

    Args:
        client: a `redis.Redis`; its timeout must be longer than `block_ms`.
        after: id of an entry; `0` for all. Not `$`, which is another place in each question: what comes between two is in neither.
    """
    answer = client.xread({STREAM: after}, count=1_000, block=block_ms)
    messages: list[Message] = []
    for _, entries in answer or ():
        for entry, fields in entries:
            after = entry.decode() if isinstance(entry, bytes) else str(entry)
            message = decode(fields, secret)
            if message is not None:
                messages.append(message)
    return messages, after


def follow_stream(
    client: Any,
    secret: bytes,
    publish: Callable[[list[Message]], object],
    closing: threading.Event,
    *,
    block_ms: int = 1_000,
    pause_s: float = 1.0,
) -> None:
    """Hands on what comes into the stream from now on, until `closing` is set; nothing is left out where Redis is away for a while.

    A server that is restarted or made a replica ends the question that waits, and its connection; what the gateways say before the
    next question stands behind the last entry that was seen.

    Args:
        client: as in :func:`read_stream`.
        pause_s: after a failure.
    """
    import redis

    after = ""
    while not closing.is_set():
        try:
            if not after:
                newest = client.xrevrange(STREAM, count=1)
                after = newest[0][0].decode() if newest else "0"
            messages, after = read_stream(client, after, secret, block_ms=block_ms)
            publish(messages)
        except redis.RedisError:
            closing.wait(pause_s)
