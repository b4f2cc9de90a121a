"""Eviction for vLLM's host tier: least recently used, but retired ranges first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vllm.v1.kv_offload.base import OffloadKey, ReqContext
from vllm.v1.kv_offload.cpu.policies.base import ChunkStatus
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from foretype_backend.prefix.retire_feed import PurgeNotice
from foretype_backend.prefix.spans import SpanIndex
from foretype_backend.vllm_plugin import FEED
from foretype_backend.vllm_plugin.requests import placement_in, positions_of


class RetiringCachePolicy(LRUCachePolicy):
    """vLLM's own LRU, in which a retired chunk ranks below everything that was ever used.

    A retired chunk is still found; a use makes it an ordinary one again, since every use gives a new rank.
    """

    def __init__(self, cache_capacity: int) -> None:
        super().__init__(cache_capacity)
        self._spans = SpanIndex(keys_max=max(2 * cache_capacity, 1))
        self._lowest = 0
        self._take_messages = FEED.subscribe()

    def touch(self, keys: Iterable[OffloadKey], req_context: ReqContext) -> None:
        keys = list(keys)
        self._note(keys, req_context)
        super().touch(keys, req_context)

    def on_request_finished(
        self,
        key_groups: Sequence[Sequence[OffloadKey]],
        insertion_only_keys: set[OffloadKey],
        reused_keys: set[OffloadKey],
        req_context: ReqContext,
    ) -> None:
        self._note([key for group in key_groups for key in group], req_context)
        super().on_request_finished(key_groups, insertion_only_keys, reused_keys, req_context)

    def evict(self, n: int, protected: set[OffloadKey]) -> list[tuple[OffloadKey, ChunkStatus]] | None:
        self._retire()
        evicted = super().evict(n, protected)
        if evicted:
            self._spans.forget([key for key, _ in evicted])
        return evicted

    def clear(self) -> None:
        super().clear()
        self._spans = SpanIndex(keys_max=max(2 * self.cache_capacity, 1))

    def _note(self, keys: Sequence[OffloadKey], req_context: ReqContext) -> None:
        placement = placement_in(req_context)
        if placement.placed:
            ends, chunk_tokens = positions_of(keys, req_context)
            self._spans.note(placement, ends, chunk_tokens)

    def _retire(self) -> None:
        for message in self._take_messages():
            if isinstance(message, PurgeNotice):
                keys = self._spans.forget_namespace(message.namespace)
            else:
                keys = self._spans.at(message.namespace, message.document, message.first)
            for key in keys:
                if key in self.chunks:
                    self._lowest -= 1
                    self._ranks[OffloadKey(key)] = self._lowest
                    if key in self._evictable:
                        self._push_evictable(OffloadKey(key))
        self._maybe_compact_heap()
