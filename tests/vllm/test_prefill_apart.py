"""A prompt is computed by one `vllm serve` and answered by another: through the pool, our tier, and vLLM's own tier of files."""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from backend.replica_directory import ReplicaDirectory
from backend.world import until
from foretype_backend.config.fleet import DiscoveryConfig, FastConfig
from foretype_backend.engines.port import Chunk, GenerationParams, GenerationRequest
from foretype_backend.fleet.build import make_pool
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.prefix.origin import Origin
from vllm_world.model_folders import IDS
from vllm_world.serving import BLOCK, VllmServe

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCS = Path(__file__).parents[2] / "docs" / "deploy.md"
TOKENS = 1000
HAND_OVERS = 4


def documented(kind: str) -> dict[str, Any]:
    """The `--kv-transfer-config` that docs/deploy.md gives for a hand-over."""
    found = re.search(rf"```json {kind}\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture(scope="module")
def servers(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, VllmServe]]:
    shared = tmp_path_factory.mktemp("blocks")
    transfer = documented("tier")
    extra = transfer["kv_connector_extra_config"]
    extra |= {"cpu_bytes_to_use": 256 << 20, "spec_name": "HostCopyTieringSpec"}  # without a GPU
    extra |= {"spec_module_path": "foretype_backend.vllm_plugin.host_copies"}
    extra["secondary_tiers"][0]["root_dir"] = str(shared)
    made = {
        role: VllmServe(model_folder, tmp_path_factory.mktemp(role), transfer=transfer)
        for role in ("prefill", "decode")
    }
    try:
        for one in made.values():
            one.start()
        yield made
    finally:
        for one in made.values():
            one.clear(gently=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(servers: dict[str, VllmServe]) -> AsyncIterator[ReplicaPool]:
    async with ReplicaDirectory().running() as directory:
        for role, server in servers.items():
            directory.announce(role, server.url.removeprefix("http://"), role=role)
        fast = FastConfig(
            discovery=DiscoveryConfig(source="http", url=directory.url, poll_s=0.1),
            prefill_from_tokens=256,
            tiers=True,
        )
        pool = make_pool(fast)
        await pool.start()
        await until(lambda: len(pool.pool_statistics().replicas) == 2)
        await until(lambda: all(one.standing == "in_service" for one in pool.pool_statistics().replicas.values()))
        yield pool
        await pool.close()


async def ask(pool: ReplicaPool, id: str, ids: list[int], salt: str) -> list[Chunk]:
    request = GenerationRequest(id, ids, GenerationParams(max_tokens=8), salt=salt, origin=Origin(session=id))
    return [chunk async for chunk in pool.generate(request)]


def tokens_of(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


async def test_what_one_computed_the_other_loads_and_writes_the_same(pool: ReplicaPool) -> None:
    """Nobody says when a file of blocks is whole: on a machine that others use it may come later than the question, which is then
    computed. So more than one prompt is handed over; all are answered alike, and one is loaded at least."""
    loaded = []
    for seed in range(HAND_OVERS):
        ids = [random.Random(seed).randrange(*IDS) for _ in range(TOKENS)]
        chunks = await ask(pool, f"handed-{seed}", ids, "one")
        loaded.append(max(chunk.cached_tokens or 0 for chunk in chunks))
        [engine] = pool.in_service()
        alone = GenerationRequest(f"alone-{seed}", ids, GenerationParams(max_tokens=8), salt="another", origin=Origin())
        cold = [chunk async for chunk in engine.generate(alone)]
        assert max(chunk.cached_tokens or 0 for chunk in cold) == 0  # another tenant's salt: it computed all of it
        assert tokens_of(chunks) == tokens_of(cold)
    found = pool.pool_statistics().apart
    assert found is not None and (found.handed, found.failed) == (HAND_OVERS, 0)
    assert max(loaded) >= (TOKENS - 1) // BLOCK * BLOCK - BLOCK, loaded


async def test_the_documented_hand_overs_are_what_vllm_takes() -> None:
    from vllm.config import KVTransferConfig

    for kind, connector in (("tier", "OffloadingConnector"), ("nixl", "NixlConnector")):
        taken = KVTransferConfig(**documented(kind))
        assert (taken.kv_connector, taken.kv_load_failure_policy) == (connector, "recompute")
