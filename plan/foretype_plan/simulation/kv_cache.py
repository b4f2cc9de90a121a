"""Blocks of keys and values in a replica's memory, and in its host's: what is found, pinned, evicted. Pure.

As vLLM does it: blocks are addressed by content and chained, so that a prompt is found from its beginning on; what a running request
uses is pinned; the rest is kept, least recently used first to go, a prompt's end before its beginning. One difference: a request gets all
blocks that it will ever need when it starts, so that none is preempted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple


class Found(NamedTuple):
    """Blocks of a prompt's beginning: on the GPU, and behind them in the host's memory."""

    near: int
    host: int


class KvCache:
    """See the module.

    Args:
        blocks: of the GPU's memory. host_blocks: of the host's; 0 where it has none.
    """

    def __init__(self, blocks: int, host_blocks: int = 0) -> None:
        self.blocks = blocks
        self.host_blocks = host_blocks
        self._pinned: dict[bytes, int] = {}
        self._idle: OrderedDict[bytes, None] = OrderedDict()
        self._host: OrderedDict[bytes, None] = OrderedDict()
        self._private = 0
        self.evicted = 0

    @property
    def pinned(self) -> int:
        """Blocks that running requests use."""
        return len(self._pinned) + self._private

    def find(self, keys: Sequence[bytes]) -> Found:
        near, count = 0, len(keys)
        while near < count and (keys[near] in self._pinned or keys[near] in self._idle):
            near += 1
        at = near
        while at < count and keys[at] in self._host:
            at += 1
        return Found(near, at - near)

    def take(self, keys: Sequence[bytes], more: int) -> bool:
        """Pin `keys`, which were found on the GPU, and `more` new blocks; False, and nothing changes, where they do not fit."""
        pins, idle = self._pinned, self._idle
        new = sum(key in idle for key in keys)
        if self.pinned + new + more > self.blocks:
            return False
        for key in keys:
            if key in idle:
                del idle[key]
                pins[key] = 1
            else:
                pins[key] += 1
        self._private += more
        self._evict()
        return True

    def publish(self, keys: Sequence[bytes]) -> None:
        """New blocks of a request are computed: others find them from now on."""
        pins = self._pinned
        for key in keys:
            if key in pins:
                pins[key] += 1
            else:
                self._idle.pop(key, None)
                pins[key] = 1
        self._private -= len(keys)

    def give(self, keys: Sequence[bytes], private: int) -> None:
        """A request is over: `keys` that it had pinned are kept as long as there is room, `private` blocks are free."""
        pins = self._pinned
        self._private -= private
        for key in reversed(keys):
            left = pins[key] - 1
            if left:
                pins[key] = left
            else:
                del pins[key]
                self._idle[key] = None

    def _evict(self) -> None:
        while self._idle and self.pinned + len(self._idle) > self.blocks:
            key, _ = self._idle.popitem(last=False)
            self.evicted += 1
            if self.host_blocks:
                self._host[key] = None
                self._host.move_to_end(key)
                if len(self._host) > self.host_blocks:
                    self._host.popitem(last=False)
