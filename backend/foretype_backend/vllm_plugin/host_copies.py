"""vLLM's tiers on a machine without a GPU, so that they can be tried where no GPU is: the same manager, by plain copies.

vLLM's own spec copies between GPU and host with CUDA streams and refuses to run without them. Here the "GPU" is the CPU backend's
cache, and a copy is done when `submit` returns. Everything above it (scheduler, manager, policy, tiers) is vLLM's and ours as it
runs on GPUs.
"""

from __future__ import annotations

import time
from typing import cast

import torch
from vllm.v1.kv_offload.base import (
    BlockIDsLoadStoreSpec,
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    OffloadingWorker,
    TransferResult,
)
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class HostCopyTieringSpec(TieringOffloadingSpec):
    """`TieringOffloadingSpec` with :class:`_HostCopies` for a worker. One cache group, one block a chunk."""

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        if self._worker is None:
            if self.blocks_per_chunk != 1 or len(kv_caches.group_data_refs) != 1:
                raise ValueError(
                    "host_copies: one cache group and one block a chunk are expected; leave block_size out"
                )
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._worker = _HostCopies(kv_caches, region)  # pyright: ignore[reportAttributeAccessIssue]
        return cast("OffloadingWorker", self._worker)


class _HostCopies(OffloadingWorker):
    def __init__(self, kv_caches: CanonicalKVCaches, region: SharedOffloadRegion) -> None:
        self._region = region
        self._pairs = [
            (one.tensor.view(torch.int8), region.create_next_worker_view(one.page_size_bytes))
            for one in kv_caches.tensors
        ]
        self._finished: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        blocks, chunks = _ids(src_spec), _ids(dst_spec)
        began = time.monotonic()
        for cache, host in self._pairs:
            host[chunks] = cache[blocks, : host.shape[1]]
        return self._done(job_id, len(blocks), began)

    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        chunks, blocks = _ids(src_spec), _ids(dst_spec)
        began = time.monotonic()
        for cache, host in self._pairs:
            cache[blocks, : host.shape[1]] = host[chunks]
        return self._done(job_id, len(blocks), began)

    def get_finished(self) -> list[TransferResult]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Nothing to wait for: a job is done when its submit returns."""

    def shutdown(self) -> None:
        self._pairs.clear()
        self._region.cleanup()

    def _done(self, job_id: int, blocks: int, began: float) -> bool:
        size = blocks * sum(host.shape[1] for _, host in self._pairs)
        self._finished.append(TransferResult(job_id, True, size, time.monotonic() - began))
        return True


def _ids(spec: LoadStoreSpec) -> torch.Tensor:
    return torch.from_numpy(cast("BlockIDsLoadStoreSpec", spec).block_ids).long()
