"""A cache in virtual time that evicts as the host tier of a replica does: retired blocks first, then the least recently used.

The tier itself is vLLM's (:mod:`foretype_backend.vllm_plugin.policy`); a simulation of a fleet runs without vLLM.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["RetiringLru", "RetiringStatistics"]


class RetiringStatistics(NamedTuple):
    held: int
    retired: int
    evicted: int
    evicted_retired: int


class RetiringLru:
    """Keys of a tier in the order in which they leave it.

    Retiring changes what goes first and nothing else: a retired block is still found, and using it again makes it an ordinary
    one. Among the retired the longest retired goes first; the tail of a chain is retired, and goes, before its head.

    Args:
        capacity: blocks held, at least 1.
        heeds: False ignores retirement, which is plain LRU: the comparison in `foretype bench prefix-cache`.
    """

    def __init__(self, capacity: int, *, heeds: bool = True) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 block, not {capacity}")
        self.capacity = capacity
        self._heeds = heeds
        self._live: OrderedDict[bytes, None] = OrderedDict()
        self._retired: OrderedDict[bytes, None] = OrderedDict()
        self._evicted = self._evicted_retired = 0

    def __contains__(self, key: bytes) -> bool:
        return key in self._live or key in self._retired

    def __len__(self) -> int:
        return len(self._live) + len(self._retired)

    def use(self, chain: Sequence[bytes]) -> list[bytes]:
        """The blocks of a prompt are used, or put in; returns the keys evicted to make room.

        The head becomes the most recent: a head that is gone makes its tail useless. Of a chain longer than the tier, the
        head stays.
        """
        kept = chain[: self.capacity]
        for key in reversed(kept):
            self._retired.pop(key, None)
            self._live[key] = None
            self._live.move_to_end(key)
        return self._evict()

    def retire(self, keys: Iterable[bytes]) -> None:
        """These leave first from now on. Keys that are not held are ignored. In prompt order: the last goes first."""
        if not self._heeds:
            return
        for key in reversed(tuple(keys)):
            if key in self._live:
                del self._live[key]
                self._retired[key] = None

    def statistics(self) -> RetiringStatistics:
        return RetiringStatistics(len(self), len(self._retired), self._evicted, self._evicted_retired)

    def _evict(self) -> list[bytes]:
        evicted: list[bytes] = []
        while len(self) > self.capacity:
            order = self._retired or self._live
            self._evicted_retired += order is self._retired
            key, _ = order.popitem(last=False)
            evicted.append(key)
        self._evicted += len(evicted)
        return evicted
