"""A pool of two roles: long prompts are computed by one kind of replica and answered by the other, and no answer depends on it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from backend.replica import Replica
from backend.replica_directory import ReplicaDirectory
from backend.running_replicas import replicas
from backend.world import TOKENIZER, closing, until
from foretype_backend.config.fleet import DiscoveryConfig, FastConfig
from foretype_backend.engines.port import Chunk, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.errors import ConfigError
from foretype_backend.fleet.build import make_pool
from foretype_backend.fleet.members.announced import RefusalReason
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.prefix.origin import Origin

LONG = list(range(1, 801))


class Apart:
    def __init__(self, pool: ReplicaPool, directory: ReplicaDirectory, replicas: dict[str, Replica]) -> None:
        self.pool, self.directory, self.replicas = pool, directory, replicas

    def asked(self, name: str) -> list[dict[str, Any]]:
        return [one for one in self.replicas[name].bodies if one.get("cache_salt") == "s"]

    async def ask(self, ids: list[int], id: str = "r") -> list[Chunk]:
        request = GenerationRequest(id, ids, GenerationParams(max_tokens=3), salt="s", origin=Origin(session="one"))
        return [chunk async for chunk in self.pool.generate(request)]

    @property
    def counts(self) -> tuple[int, int]:
        found = self.pool.pool_statistics().apart
        assert found is not None
        return found.handed, found.failed


@contextlib.asynccontextmanager
async def apart(**roles: str) -> AsyncGenerator[Apart]:
    options: dict[str, Any] = {"poll_s": 0.05, "shrink_interval_s": 0.2, "first_wait_s": 60.0}
    async with ReplicaDirectory().running() as directory, replicas(len(roles)) as made:
        named = dict(zip(roles, made, strict=True))
        for name, role in roles.items():
            directory.announce(name, named[name], role=role)
        fast = FastConfig(
            discovery=DiscoveryConfig(source="http", url=directory.url, **options),
            prefill_from_tokens=256,
            tiers=True,
            check_every_s=0.2,
            idle_timeout_s=60.0,
        )
        fast.check()
        pool = make_pool(fast, vocabulary_tokens=TOKENIZER.vocabulary_tokens)
        await pool.start()
        async with closing(pool):
            await until(lambda: len(pool.pool_statistics().replicas) == len(roles))
            await until(lambda: all(one.standing == "in_service" for one in pool.pool_statistics().replicas.values()))
            yield Apart(pool, directory, named)


async def test_a_long_prompt_is_computed_by_one_and_answered_by_the_other_a_short_or_cached_one_is_not() -> None:
    async with apart(p="prefill", d="decode") as world:
        assert {one.name for one in world.pool.in_service()} == {"d"}
        chunks = await world.ask(LONG)
        assert chunks[-1].finish is EngineFinish.LENGTH
        [computed], [answered] = world.asked("p"), world.asked("d")
        assert computed["prompt"] == answered["prompt"] == LONG
        assert computed["max_tokens"] == 4 and not computed.get("stream")
        assert computed["kv_transfer_params"]["max_offload_tokens"] == len(LONG)  # all of it goes to the tier
        assert answered["kv_transfer_params"]["max_offload_tokens"] == 0  # what this server has it need not store again
        await world.ask([*LONG, 7, 8, 9])  # the next key: the answering replica has it
        await world.ask(LONG[:100][::-1])
        assert len(world.asked("p")) == 1 and len(world.asked("d")) == 3
        assert world.counts == (1, 0)


@pytest.mark.parametrize("behaviour", ["error", "busy", "silent"])
async def test_a_prefill_replica_that_fails_costs_no_answer(behaviour: str) -> None:
    async with apart(p="prefill", d="both") as world:
        world.replicas["p"].behaviour = behaviour
        if behaviour == "silent":
            await world.replicas["p"].stop()
        assert (await world.ask(LONG))[-1].finish is EngineFinish.LENGTH
        assert world.counts == (0, 1)
        await until(lambda: world.pool.statistics().running == 0)  # whoever failed is checked meanwhile


async def test_it_comes_and_goes_and_the_one_that_answers_is_never_let_go_for_it() -> None:
    async with apart(p="prefill", d="decode") as world:
        world.directory.state("d", "draining")
        await world.directory.answered(4)
        assert {one.name for one in world.pool.in_service()} == {"d"}  # the last that answers, whoever else serves
        world.directory.state("d", "ready")
        world.directory.state("p", "draining")
        await until(lambda: "p" not in world.pool.pool_statistics().replicas)
        await world.ask(LONG)
        assert not world.asked("p") and world.counts == (0, 0)


async def test_an_abort_while_the_prompt_is_computed_ends_it_there() -> None:
    async with apart(p="prefill", d="decode") as world:
        world.replicas["p"].behaviour = "silent"
        asking = asyncio.create_task(world.ask(LONG, "gone"))
        await until(lambda: world.pool.pool_statistics().replicas["p"].in_flight == 1)
        world.pool.abort("gone")
        assert [one.finish for one in await asking] == [EngineFinish.ABORTED]
        assert not world.asked("d")
        leaving = asyncio.create_task(world.ask(LONG, "left"))
        await until(lambda: world.pool.pool_statistics().replicas["p"].in_flight == 1)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert world.pool.pool_statistics().replicas["p"].in_flight == 0


async def test_without_the_setting_a_prefill_replica_is_not_asked() -> None:
    async with ReplicaDirectory().running() as directory, replicas(2) as made:
        for one, role in zip(made, ("prefill", "both"), strict=True):
            directory.announce(role, one, role=role)
        pool = make_pool(FastConfig(discovery=DiscoveryConfig(source="http", url=directory.url, poll_s=0.05)))
        await pool.start()
        await directory.answered(2)
        membership = pool.pool_statistics().membership
        assert membership is not None
        assert [(one.name, one.why) for one in membership.refused] == [("prefill", RefusalReason.ROLE)]
        assert "prefill_from_tokens" in membership.refused[0].reason
        await pool.close()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"prefill_from_tokens": 0}, "at least 1"),
        ({"prefill_from_tokens": 500}, "roles are announced"),
        ({"prefill_from_tokens": 500, "discovery": True}, "tiers = true"),
    ],
)
def test_what_cannot_work_is_named(changes: dict[str, Any], told: str) -> None:
    if changes.get("discovery"):
        changes = changes | {"discovery": DiscoveryConfig(source="http", url="http://127.0.0.1:9/replicas")}
    with pytest.raises(ConfigError, match=told) as error:
        FastConfig(**changes).check()
    assert error.value.field == "pool.fast.prefill_from_tokens"
