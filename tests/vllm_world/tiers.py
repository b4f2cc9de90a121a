"""vLLM's own tiering manager with our policy and Redis tier, driven as its scheduler drives it.

What a chunk holds follows from its key, so that a wrong byte is seen.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from foretype_backend.prefix.salt import tier_secret
from foretype_backend.prefix.spans import Placed, Placement, to_parameters
from foretype_backend.vllm_plugin.host_copies import HostCopyTieringSpec
from foretype_backend.vllm_plugin.redis_tier import RedisTier
from vllm.v1.kv_offload.base import LookupResult, OffloadKey, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)

CHUNK_BYTES = 4096
CHUNK_TOKENS = 32
PATIENCE_S = 120.0
_SALT = b"s" * 32
SECRET = tier_secret(_SALT)


def key_of(number: int, salt: str = "") -> OffloadKey:
    return make_offload_key(blake2b(f"{salt}/{number}".encode(), digest_size=32).digest(), 0)


def content_of(key: bytes) -> bytes:
    """What a chunk of this key holds: nothing that another key's could be mistaken for."""
    return blake2b(key, digest_size=64).digest() * (CHUNK_BYTES // 64)


class Tiers:
    """The manager and its memory. A request is a context; positions are those of its keys, in order."""

    def __init__(self, url: str | None, *, chunks: int = 8, policy: str = "RetiringCachePolicy", **tier: Any) -> None:
        secondary = []
        if url is not None:
            secondary = [
                {
                    "type": "RedisTier",
                    "module_path": "foretype_backend.vllm_plugin.redis_tier",
                    "url": url,
                    "secret_file": str(self._secret_file()),
                    "chunk_tokens": CHUNK_TOKENS,
                    "timeout_s": 60.0,  # a busy machine is no Redis that is away
                }
                | tier
            ]
        extra = {
            "cpu_bytes_to_use": chunks * CHUNK_BYTES,
            "eviction_policy": policy,
            "cache_policy_module_path": "foretype_backend.vllm_plugin.policy",
            "secondary_tiers": secondary,
        }
        self.spec = HostCopyTieringSpec(_config(extra))
        self.manager: Any = self.spec.get_manager()
        self.memory: memoryview = self.manager.primary_tier.get_kv_memoryview()
        self._numbers = itertools.count()

    @staticmethod
    def _secret_file() -> Path:
        path = Path(tempfile.mkdtemp(prefix="ftsecret")) / "salt"
        path.write_bytes(_SALT)
        return path

    @property
    def redis(self) -> RedisTier:
        [tier] = self.manager.secondary_tiers
        return tier

    def request(
        self,
        keys: Sequence[OffloadKey],
        namespace: str = "ns",
        document: str = "a.py",
        *,
        shared: bool = True,
        version: int = 1,
    ) -> ReqContext:
        """A request whose prompt is these keys' chunks, a hundred characters of one document each."""
        placed = tuple(
            Placed(at * CHUNK_TOKENS, (at + 1) * CHUNK_TOKENS, document, version, at * 100, (at + 1) * 100)
            for at in range(len(keys))
        )
        context = ReqContext(
            req_id=str(next(self._numbers)), kv_transfer_params=to_parameters(Placement(namespace, placed, shared))
        )
        for at, key in enumerate(keys):
            context.set_offload_key_position(key, (at + 1) * CHUNK_TOKENS)
        self.manager.on_new_request(context)
        return context

    def step(self) -> None:
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def store(self, context: ReqContext, keys: Sequence[OffloadKey]) -> bool:
        """What the engine computed goes to the host, and from there to Redis; false where the host has no room."""
        output = self.manager.prepare_store(keys, context)
        if output is None:
            return False
        for key, slot in zip(output.keys_to_store, output.store_spec.block_ids, strict=True):
            self._slot(int(slot))[:] = content_of(key)
        if output.keys_to_store:
            self.manager.complete_store(output.keys_to_store, context)
        return True

    def find(self, context: ReqContext, key: OffloadKey) -> bytes | None:
        """The chunk's bytes as the engine would load them, or None; steps go on while an answer is pending."""
        until = time.monotonic() + PATIENCE_S
        while (result := self.manager.lookup(key, context)) in (LookupResult.RETRY, LookupResult.HIT_PENDING):
            assert time.monotonic() < until, f"{result} for {PATIENCE_S} s"
            self.step()
            time.sleep(0.0005)
        if result is LookupResult.MISS:
            self.step()
            return None
        spec = self.manager.prepare_load([key], context)
        [slot] = spec.block_ids
        found = bytes(self._slot(int(slot)))
        self.manager.complete_load([key], context)
        self.step()
        return found

    def on_host(self, key: OffloadKey) -> bool:
        context = ReqContext(req_id="look")
        return self.manager.primary_tier.lookup(key, context) is LookupResult.HIT

    def finish(self, context: ReqContext) -> None:
        self.manager.on_request_finished(context)

    def settle(self) -> None:
        """Until nothing is under way between host and Redis."""
        until = time.monotonic() + PATIENCE_S
        while self.manager.has_pending_work():
            assert time.monotonic() < until, "work that does not end"
            self.step()
            time.sleep(0.0005)

    def forget_host(self) -> None:
        """The host tier is emptied, as by a restart of the engine; Redis keeps what it has."""
        self.settle()
        self.manager.reset_cache()

    def _slot(self, number: int) -> memoryview:
        flat = self.memory.cast("B")
        return flat[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES]


@contextlib.contextmanager
def tiers(url: str | None, **options: Any) -> Iterator[Tiers]:
    made = Tiers(url, **options)
    try:
        yield made
    finally:
        made.memory.release()
        made.manager.shutdown()


def _config(extra: dict[str, Any]) -> OffloadingConfig:
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=CHUNK_TOKENS, layer_names=("layer",), group_id=0),),
        worker_kv_bytes_per_block=CHUNK_BYTES,
        enable_kv_cache_events=False,
        extra_config=extra,
        engine_id=uuid.uuid4().hex,
        model=OffloadingModelConfig(name="model", dtype="float32"),
        cache=OffloadingCacheConfig(tokens_per_hash=CHUNK_TOKENS, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=0,
            world_size=1,
            tp_size=1,
            pp_size=1,
            pcp_size=1,
            dcp_size=1,
            data_parallel_index=0,
            data_parallel_size=1,
            data_parallel_rank_local=None,
            is_parallelism_agnostic=True,
        ),
    )
