"""The segment cache that both ends of a connection run by the same rule, so that text travels once.

The rule, for every `complete` in the order of the wire and for every segment of it in order:

1. a kind outside `STABLE_KINDS` does not touch the cache: it always travels as text;
2. a text that the cache holds becomes the most recent one;
3. a text that it does not hold is inserted as the most recent one, unless it alone is larger than the cache;
4. after an insertion the least recent texts leave until the sum of UTF-8 bytes fits the capacity, and their number
   :data:`CAPACITY_ENTRIES`: many tiny texts would take a hundred times the memory that their bytes say.

Sender and receiver see the same segments in the same order, so a digest is sent exactly when the receiver can resolve
it. Where the two ends differ all the same (a gateway that dropped its cache), the receiver answers `need`; the sender
then *clears* its cache and sends that completion again as text alone. From there on the sender's cache is the most
recent part of the receiver's, whatever the receiver still held: nothing that the sender holds can have left the
receiver, because everything older there leaves first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from foretype_context.prompt.segments import STABLE_KINDS, Kind, digest_of

from foretype_wire.messages import SEGMENT_CACHE_BYTES

CAPACITY_ENTRIES: Final = 4096
"""Texts of one cache. An end that bounds bytes alone is asked with `need` for what has left the other."""


class SegmentCache:
    """LRU of segment texts by BLAKE2b-128 digest, bounded in UTF-8 bytes. One per connection and end; not thread-safe."""

    def __init__(self, capacity_bytes: int = SEGMENT_CACHE_BYTES) -> None:
        if capacity_bytes < 0:
            raise ValueError(f"capacity_bytes must not be negative, got {capacity_bytes}")
        self.capacity_bytes = capacity_bytes
        self._texts: OrderedDict[bytes, tuple[str, int]] = OrderedDict()
        self._size_bytes = 0
        self._latest: Sequence[bytes] = ()
        """What :meth:`receive_digests` touched, while nothing has moved since."""

    def __repr__(self) -> str:
        return f"<SegmentCache: {len(self)} texts, {self._size_bytes} of {self.capacity_bytes} bytes>"

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._texts

    def digests(self) -> list[bytes]:
        """Everything held, least recent first; equal lists at both ends mean equal caches."""
        return list(self._texts)

    def send(self, kind: Kind, text: str, digest: bytes | None = None) -> bytes | None:
        """Sender's half of the rule: the digest to send in place of `text`, or None when the text itself must travel.

        Args:
            digest: of `text`, where the caller has it.
        """
        if kind not in STABLE_KINDS:
            return None
        digest = digest or digest_of(text)
        self._latest = ()
        if digest in self._texts:
            self._texts.move_to_end(digest)
            return digest
        self._insert(digest, text)
        return None

    def receive_text(self, kind: Kind, text: str) -> None:
        """Receiver's half for a segment that came as text."""
        if kind not in STABLE_KINDS:
            return
        digest = digest_of(text)
        self._latest = ()
        if digest in self._texts:
            self._texts.move_to_end(digest)
        else:
            self._insert(digest, text)

    def receive_digest(self, kind: Kind, digest: bytes) -> str | None:
        """Receiver's half for a segment that came as digest: its text, or None when it must be asked for with `need`."""
        if kind not in STABLE_KINDS:
            return None
        held = self._texts.get(digest)
        if held is None:
            return None
        self._latest = ()
        self._texts.move_to_end(digest)
        return held[0]

    def receive_digests(self, digests: Sequence[bytes]) -> list[bytes]:
        """:meth:`receive_digest` for several of a kind that may travel so, one after the other; those that are not held.

        The same ones again, with nothing in between, are the most recent texts in this order already.
        """
        if digests == self._latest:
            return []
        missing = [digest for digest in digests if digest not in self._texts]
        for digest in digests:
            if digest in self._texts:
                self._texts.move_to_end(digest)
        self._latest = () if missing else digests
        return missing

    def clear(self) -> None:
        """Forget everything: the sender's answer to `need`, and both ends' state at the start of a connection."""
        self._latest = ()
        self._texts.clear()
        self._size_bytes = 0

    def shrink(self, entries: int) -> None:
        """Keep the most recent so many: a receiver's own choice, which costs its sender a `need`."""
        while len(self._texts) > max(0, entries):
            self._evict()

    @property
    def size_bytes(self) -> int:
        """UTF-8 bytes of all texts."""
        return self._size_bytes

    def _insert(self, digest: bytes, text: str) -> None:
        size_bytes = len(text.encode("utf-8", "surrogatepass"))
        if size_bytes > self.capacity_bytes:
            return
        self._texts[digest] = (text, size_bytes)
        self._size_bytes += size_bytes
        while self._size_bytes > self.capacity_bytes or len(self._texts) > CAPACITY_ENTRIES:
            self._evict()

    def _evict(self) -> None:
        self._latest = ()
        _, (_, evicted_bytes) = self._texts.popitem(last=False)
        self._size_bytes -= evicted_bytes
