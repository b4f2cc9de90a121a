"""A shadow of the engine's prefix cache, from which the number of cached prompt tokens is predicted.

The embedded engine reports no cached-token count. Its cache is addressed by content in blocks of 32 tokens, looked up when a
request is added, and evicted least recently used first; so the longest common block-aligned prefix with what was put in
before *is* the figure, as long as the shadow forgets earlier than the engine does. It therefore holds fewer blocks than the
real cache and its answer is a lower bound (measured: equal in every calibration case, `tests/backend/test_prefix_engine.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from foretype_backend.prefix.block_keys import BlockKeys, block_keys


class ShadowPrefixCache:
    """Least-recently-used set of prompt blocks, addressed by content.

    Args:
        capacity_blocks: blocks held, at least 1; smaller than the engine's own.
        block_tokens: tokens in a block (32 on CPU with a u8 cache).
    """

    def __init__(self, capacity_blocks: int, block_tokens: int = 32) -> None:
        if capacity_blocks < 1:
            raise ValueError(f"capacity_blocks must be at least 1, not {capacity_blocks}")
        if block_tokens < 1:
            raise ValueError(f"block_tokens must be at least 1, not {block_tokens}")
        self.capacity_blocks = capacity_blocks
        self.block_tokens = block_tokens
        self._blocks: OrderedDict[bytes, None] = OrderedDict()
        self._anonymous = 0

    def keys(self, token_ids: Sequence[int], *, salt: str = "") -> BlockKeys:
        return block_keys(token_ids, self.block_tokens, salt=salt)

    def cached_tokens(self, keys: BlockKeys, prompt_tokens: int) -> int:
        """Tokens of a prompt that need no computing. At least one is always computed, to have something to sample from."""
        blocks = 0
        for key in keys:
            if key not in self._blocks:
                break
            blocks += 1
        return max(min(blocks * self.block_tokens, prompt_tokens - 1), 0)

    def insert(self, keys: BlockKeys, prompt_tokens: int, *, computed_tokens: int | None = None) -> int:
        """Note that a prompt was computed, up to `computed_tokens` of it (all of it by default).

        Returns:
            the cached tokens that it found.
        """
        found = self.cached_tokens(keys, prompt_tokens)
        self.touch(keys, computed_tokens)
        return found

    def touch(self, keys: BlockKeys, computed_tokens: int | None = None) -> None:
        """Make the blocks of a prompt the most recent ones, its head last: a head that is gone makes its tail useless."""
        whole = len(keys) if computed_tokens is None else min(len(keys), computed_tokens // self.block_tokens)
        for key in reversed(keys[:whole]):
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        self._evict()

    def occupy(self, blocks: int) -> None:
        """Note blocks that take up room and can never be found: generated tokens, a prompt's unfinished last block."""
        for _ in range(blocks):
            self._anonymous += 1
            self._blocks[b"%d" % self._anonymous] = None
        self._evict()

    def _evict(self) -> None:
        while len(self._blocks) > self.capacity_blocks:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        self._blocks.clear()

    def __len__(self) -> int:
        return len(self._blocks)
