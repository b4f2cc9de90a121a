"""Free and paid tenants inline, and a quality pool of several replicas: who is told what, and who is asked."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from backend.identity_world import NOW_MS, identity_of, minted, record, salts
from backend.replica import Replica
from backend.replica_directory import ReplicaDirectory
from backend.running_replicas import replicas
from backend.test_chat import ASK
from backend.test_stream_with_client import SOURCE, session_of
from backend.world import TOKENIZER, TOKENIZER_PATH, World, closing, complete, gateway, profile, segments, until
from foretype_backend.chat.pool import QualityPool, open_quality
from foretype_backend.config.config import Config
from foretype_backend.config.fleet import DiscoveryConfig
from foretype_backend.config.rules import check_values
from foretype_backend.config.settings import LimitsConfig, ModelConfig, PoolsConfig, QualityConfig
from foretype_backend.errors import ConfigError
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.fleet.served_revisions import ServedRevisions
from foretype_backend.identity.accounts import Accounts
from foretype_backend.identity.directory import Tenant, Tier
from foretype_backend.identity.keys import ApiKey
from foretype_backend.serving.served_revision import ServedRevision
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.plan import PlanState
from foretype_context.prompt.profile import Budgets, Profile
from foretype_context.syntax.document import Document
from foretype_wire.messages import Done, RequestClass

FREE = Budgets(prompt_tokens=600, context_tokens=100, block_tokens=48)


# Inline


async def test_a_free_tenant_is_told_its_budgets_and_a_paid_one_is_not(tmp_path: Path) -> None:
    accounts = Accounts(lambda: "2026-09-22")
    async with identity_of(tmp_path / "i.db") as (identity, store):
        keys = dict[Tier, ApiKey]()
        for tier in Tier:
            await store.add_tenant(Tenant(name=tier.value, tier=tier), NOW_MS)
            keys[tier] = minted()
            await store.add_key(keys[tier], record(keys[tier], tenant=tier.value), NOW_MS)
        await identity.watch.look()
        sections = {"model": ModelConfig(free_budgets=FREE)}
        async with gateway(identity=identity, salts=salts(), accounts=accounts, sections=sections) as world:
            told = dict[Tier, Profile]()
            for tier, key in keys.items():
                async with session_of(world, token=key.text, cache_dir=tmp_path) as session:
                    assert session.profile is not None
                    told[tier] = session.profile
            assert told[Tier.FREE].budgets == FREE
            assert told[Tier.PAID].budgets == profile().budgets
            assert told[Tier.FREE].model == told[Tier.PAID].model


async def test_requests_of_a_free_tenant_are_admitted_and_weighed_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[bool]()
    async with identity_of(tmp_path / "i.db") as (identity, store):
        keys = {tier: minted() for tier in Tier}
        for tier, key in keys.items():
            await store.add_tenant(Tenant(name=tier.value, tier=tier), NOW_MS)
            await store.add_key(key, record(key, tenant=tier.value), NOW_MS)
        await identity.watch.look()
        async with gateway(identity=identity, salts=salts()) as world:
            scheduler = world.service.scheduler
            arrive = scheduler.arrive
            monkeypatch.setattr(
                scheduler, "arrive", lambda ticket, now: seen.append(ticket.free) or arrive(ticket, now)
            )
            monkeypatch.setattr(world.service.ladder, "decided", lambda _, **asked: seen.append(asked["free"]))
            for tier in (Tier.FREE, Tier.PAID):
                async with world.http(headers={"Authorization": f"Bearer {keys[tier].text}"}) as http:
                    answer = await http.post("/v1/completions", json={"prompt": "x = ", "max_tokens": 2})
                    assert answer.status_code == 200, answer.text
    assert seen == [True, True, False, False]


async def test_the_free_tier_is_answered_by_its_own_revision_while_that_serves() -> None:
    class Pool:
        def __init__(self, *revisions: str) -> None:
            self.up, self.rollout = set(revisions), None

        def in_service(self) -> list[str]:
            return sorted(self.up)

        def revisions_in_service(self) -> frozenset[str]:
            return frozenset(self.up)

    main, small = Pool("r1"), Pool("small")
    served = ServedRevision("small", service=_any(), renderer=_any())
    told = list[str]()
    chooser = ServedRevisions(
        _any(main),
        {"small": _any(small)},
        served={"small": served},
        profile_of=lambda _: profile(model="small", context_limit_tokens=1024),
        tell=lambda: told.append("all"),
        free="small",
    )
    chooser.turn()
    assert chooser.of("t/ann", free=True) is served and chooser.of("t/ann", free=False) is None
    assert served.profile is not None and served.profile.model == "small"
    small.up.clear()
    chooser.turn()
    assert chooser.of("t/ann", free=True) is None  # better by the large model than not at all
    chooser.turn()
    assert told == ["all", "all"]  # once for each change


class _Anything:
    context_limit_tokens = 0


def _any(found: Any = None) -> Any:
    return found or _Anything()


# The quality pool


class Quality:
    def __init__(self, world: World, pool: QualityPool, directory: ReplicaDirectory, replicas: list[Replica]) -> None:
        self.world, self.pool, self.directory, self.replicas = world, pool, directory, replicas

    @property
    def chat(self) -> ReplicaPool:
        assert isinstance(self.pool.chat.engine, ReplicaPool)
        return self.pool.chat.engine

    @property
    def blocks(self) -> ReplicaPool:
        assert self.pool.block is not None and isinstance(self.pool.block.service.engine, ReplicaPool)
        return self.pool.block.service.engine

    def asked(self, key: str) -> list[tuple[int, dict[str, Any]]]:
        """What clients asked, of chat (`messages`) or blocks (`prompt` alone), with who was."""
        return [
            (at, body)
            for at, one in enumerate(self.replicas)
            for body in one.bodies
            if (("messages" in body) is (key == "messages")) and body.get("cache_salt") not in (None, "foretype")
        ]


@contextlib.asynccontextmanager
async def quality(count: int = 2, *, announced: bool = True) -> AsyncGenerator[Quality]:
    async with replicas(count, context=8192) as made, ReplicaDirectory().running() as directory:
        for at, one in enumerate(made):
            directory.announce(f"q{at}", one, pool="quality")
        ways: dict[str, Any] = {"replicas": tuple(f"{one.url}/v1" for one in made)}
        if announced:
            ways = {"discovery": DiscoveryConfig(source="http", url=directory.url, poll_s=0.05, shrink_interval_s=0.2)}
        own = QualityConfig(**ways, tokenizer=str(TOKENIZER_PATH), grammar="foretype-1")
        config = Config(pool=PoolsConfig(quality=own), limits=LimitsConfig(retry_wait_ms=100))
        check_values(config)
        pool = open_quality(config, TOKENIZER, salts=salts())
        assert pool is not None
        await pool.start()
        async with closing(pool), gateway(quality=pool, salts=salts()) as world:
            ours = Quality(world, pool, directory, made)
            await until(lambda: len(ours.chat.in_service()) == len(ours.blocks.in_service()) == count)
            yield ours


@pytest.mark.parametrize("announced", [True, False])
async def test_a_conversation_stays_on_its_replica_others_spread_and_one_that_dies_costs_no_answer(
    announced: bool,
) -> None:
    async with quality(announced=announced) as ours, ours.world.http() as http:
        long = "Why is the sky as blue as it is on a clear day in the autumn? " * 12
        for number in range(4):
            turn = [{"role": "user", "content": f"{number}: {long}"}]
            for _ in range(3):
                answer = await http.post("/v1/chat/completions", json={"messages": turn, "max_tokens": 8})
                assert answer.status_code == 200, answer.text
                said = answer.json()["choices"][0]["message"]
                assert said["content"] == "t" * 8  # read as text, whatever it is made of
                turn += [said, {"role": "user", "content": "And then?"}]
        asked = ours.asked("messages")
        by_conversation = [{at for at, body in asked if body["messages"][0]["content"][0] == str(n)} for n in range(4)]
        assert [len(one) for one in by_conversation] == [1] * 4, by_conversation  # its history is there
        assert {at for at, _ in asked} == {0, 1}
        assert len({body["cache_salt"] for _, body in asked}) == 1 and len(asked[0][1]["cache_salt"]) == 43
        await ours.replicas[0].stop()
        for number in range(4):
            answer = await http.post(
                "/v1/chat/completions", json={"messages": [{"role": "user", "content": f"{number}: {long}"}]}
            )
            assert answer.status_code == 200, answer.text
        assert [one.name for one in ours.chat.in_service()] == [ours.chat.in_service()[0].name]


async def test_replicas_of_the_quality_pool_come_and_go_and_scaling_sees_both_kinds_of_work() -> None:
    async with quality() as ours, ours.world.http() as http:
        ours.directory.state("q0", "draining")
        await until(lambda: [one.name for one in ours.chat.in_service()] == ["q1"])
        await until(lambda: [one.name for one in ours.blocks.in_service()] == ["q1"])
        before = len(ours.replicas[0].bodies)
        assert (await http.post("/v1/chat/completions", json=ASK)).status_code == 200
        assert len(ours.replicas[0].bodies) == before
        ours.replicas[1].behaviour = "slow"
        async with ours.world.peer() as peer:
            await peer.send(complete("b", class_=RequestClass.BLOCK, segments=segments(), max_tokens=30))
            await until(lambda: ours.blocks.statistics().running == 1)
            signals = (await http.get("/v1/fleet/signals")).json()
            assert (signals["quality"]["running"], signals["block"]["running"]) == (1, 1)
            assert signals["quality"]["replicas"] == 1
            ours.replicas[1].behaviour = "ok"
            _, end, _ = await peer.until_end("b")
            assert isinstance(end, Done), end
        assert len(ours.asked("prompt")) == 1


async def test_nobody_is_waited_for_and_chat_says_so_until_a_replica_comes() -> None:
    async with ReplicaDirectory().running() as directory:
        directory.announce("late", "127.0.0.1:9", pool="quality", state="starting")
        own = QualityConfig(discovery=DiscoveryConfig(source="http", url=directory.url, poll_s=0.05))
        config = Config(pool=PoolsConfig(quality=own), limits=LimitsConfig(retry_wait_ms=100))
        pool = open_quality(config, TOKENIZER)
        assert pool is not None
        await pool.start()
        async with closing(pool), gateway(quality=pool) as world, world.http() as http:
            assert (await http.post("/v1/chat/completions", json=ASK)).status_code == 503
            async with replicas(1) as (replica,):
                directory.announce("late", replica, pool="quality")
                engine = pool.chat.engine
                assert isinstance(engine, ReplicaPool)
                await until(lambda: bool(engine.in_service()))
                assert (await http.post("/v1/chat/completions", json=ASK)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "field", "told"),
    [
        ({}, "pool.quality.url", "names no server"),
        ({"url": "http://a/v1", "replicas": ("http://b/v1",)}, "pool.quality.replicas", "beside each other"),
        ({"replicas": ("b",)}, "pool.quality.replicas[0]", "no base URL"),
        ({"discovery": DiscoveryConfig(source="http")}, "pool.quality.discovery.url", "list of targets"),
        ({"url": "http://a/v1", "block_prompt_tokens": 8}, "pool.quality.block_prompt_tokens", "at least 64"),
    ],
)
def test_what_a_quality_pool_cannot_be_is_named(fields: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        check_values(Config(pool=PoolsConfig(quality=QualityConfig(**fields))))
    assert error.value.field == field


def test_a_free_revision_that_nobody_describes_and_free_budgets_of_nothing_are_named() -> None:
    with pytest.raises(ConfigError, match="describe it there") as error:
        check_values(Config(pool=PoolsConfig(free_revision="small")))
    assert error.value.field == "pool.free_revision"
    with pytest.raises(ConfigError) as error:
        check_values(Config(model=ModelConfig(free_budgets=Budgets(prompt_tokens=0))))
    assert error.value.field == "model.free_budgets.prompt_tokens"


# Whole blocks


def test_a_block_is_asked_with_four_thousand_tokens_and_a_suggestion_with_two() -> None:
    its = profile(context_limit_tokens=8192, block_budgets=Budgets(prompt_tokens=4000, suffix_tokens=500))
    document = Document("file:///a.py", SOURCE * 6, language="python", path="a.py")
    small = Assembler(TOKENIZER, its)
    at = len(document.snapshot().text) // 2
    plans = [one.plan(PlanState.empty(), document.snapshot(), at, now=0.0)[0] for one in (small, small.for_blocks())]
    assert 1200 < plans[0].prompt_tokens <= 2000
    assert 2500 < plans[1].prompt_tokens <= 4000
    assert Assembler(TOKENIZER, profile()).for_blocks().budget_tokens == Assembler(TOKENIZER, profile()).budget_tokens
