"""Limits on the wire, and what was used: refused with the time to wait, nothing leaked, exact to the token."""

import asyncio
from pathlib import Path

from backend.identity_world import NOW_MS, added_key, identity_of, salts
from backend.world import complete, gateway, scripted, segments
from foretype_backend.admission.limits import Budget
from foretype_backend.admission.metering import Meter, UsageKey, UsageRow
from foretype_backend.config.settings import PricesConfig
from foretype_backend.identity.accounts import Accounts
from foretype_backend.identity.directory import Tenant
from foretype_backend.identity.listing import usage_report
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.usage import UsageWriter
from foretype_wire.messages import Cancel, Done, Error, ErrorCode, Usage

DAY = "2026-09-22"
KEY = UsageKey("acme", "", "ann", "interactive", DAY)


async def test_a_tenant_over_its_budget_is_told_when_to_come_back(tmp_path: Path) -> None:
    accounts = Accounts(lambda: DAY)
    async with identity_of(tmp_path / "i.db") as (identity, store):
        key = await added_key(store, user="ann")
        budgets = {"user": Budget(tokens_per_s=0.5, burst_tokens=120), "chat": Budget(tokens_per_s=1, burst_tokens=1)}
        await store.set_tenant(Tenant(name="acme", budgets=budgets))
        await identity.watch.look()
        headers = {"Authorization": f"Bearer {key.text}"}
        async with gateway(identity=identity, salts=salts(), accounts=accounts) as world:
            async with world.peer(additional_headers=headers) as peer:
                refusals = 0
                for number in range(20):
                    _, end, _ = await peer.ask(f"r{number}")
                    if isinstance(end, Error):
                        refusals += 1
                        assert end.code is ErrorCode.RATE_LIMITED
                        assert end.retry_after_ms
                        assert "user" in end.message
                assert 0 < refusals < 20
            async with world.http(headers=headers) as http:
                answer = await http.post("/v1/completions", json={"prompt": "x = ", "max_tokens": 500})
                assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limited")
                whole = await http.get("/metrics", headers=headers)
                assert whole.status_code == 403
            metrics = world.service.metrics.render().decode()
            assert 'foretype_admission_total{class="interactive",decision="rate_limited"}' in metrics
        (statistics,) = accounts.quotas.budgets.statistics(asyncio.get_running_loop().time()).values()
        assert statistics.reserved == 0


async def test_what_is_metered_is_what_the_engine_counted(tmp_path: Path) -> None:
    accounts = Accounts(lambda: DAY)
    engine = scripted("x + 1\n" * 30, decode_s_per_token=0.001)
    async with identity_of(tmp_path / "i.db") as (identity, store):
        key = await added_key(store, user="ann")
        await store.set_tenant(Tenant(name="acme", budgets={"tenant": Budget(tokens_per_s=1e6, burst_tokens=1e6)}))
        await identity.watch.look()
        writer = UsageWriter(
            accounts.meter,
            await IdentityStore.open(str(tmp_path / "i.db")),
            gateway="g",
            wall_ms=lambda: NOW_MS,
        )
        headers = {"Authorization": f"Bearer {key.text}"}
        async with gateway(engine, identity=identity, salts=salts(), accounts=accounts) as world:
            async with world.peer(additional_headers=headers) as peer:
                for number in range(10):
                    await peer.send(complete(f"r{number}", segments=segments(prefix="def f(x):\n" * 20)))
                    if number % 3 == 0:
                        await peer.receive()
                        await peer.send(Cancel(id=f"r{number}"))
                    while not isinstance(await peer.receive(), Done):
                        pass
            async with world.peer(additional_headers=headers) as peer:
                await peer.send(complete("cut-off"))
                await peer.receive()
            await world.idle()
        await writer.close()
        rows = await store.usage_of("2026-09")
        assert [of for of, _ in rows] == [("acme", "", "ann", "interactive")]
        used, counted = rows[0][1], engine.statistics()
        assert used.requests == 11
        assert (used.prompt_tokens, used.cached_tokens) == (counted.prompt_tokens, counted.cached_tokens)
        assert used.cached_tokens > 0
        assert used.generated_tokens == counted.generated_tokens
        assert used.engine_us > 0
        (statistics,) = accounts.quotas.budgets.statistics(asyncio.get_running_loop().time()).values()
        assert statistics.reserved == 0
        assert statistics.used == used.prompt_tokens + used.generated_tokens


def test_a_meter_hands_over_the_same_batch_until_it_is_stored() -> None:
    meter = Meter()
    assert meter.batch() is None
    meter.add(KEY, Usage(prompt_tokens=5), 0.1)
    first = meter.batch()
    meter.add(KEY, Usage(prompt_tokens=7), 0.1)
    assert meter.batch() == first
    assert first is not None
    meter.stored(first.seq)
    second = meter.batch()
    assert second is not None
    assert (second.seq, second.rows[KEY].prompt_tokens) == (2, 7)


def test_a_report_adds_up_by_tenant_team_and_user_and_says_the_cost() -> None:
    row = UsageRow(requests=2, prompt_tokens=3_000_000, cached_tokens=1_000_000, generated_tokens=500_000, engine_us=18)
    rows = [
        (("acme", "web", "ann", "interactive"), row),
        (("acme", "web", "ann", "chat"), row),
        (("acme", "web", "bob", "chat"), row),
        (("zoo", "", "eve", "chat"), row._replace(engine_us=3_600_000_000)),
    ]
    prices = PricesConfig(prompt_per_million=1, cached_per_million=0.1, generated_per_million=4, engine_hour=2)
    report = usage_report("2026-09", rows, prices)
    assert [(one["tenant"], one["requests"]) for one in report["tenants"]] == [("acme", 6), ("zoo", 2)]
    assert [one["user"] for one in report["users"]] == ["ann", "bob", "eve"]
    assert [one["class"] for one in report["classes"]] == ["interactive", "chat", "chat"]
    assert report["users"][2]["cost"] == 2 + 0.1 + 2 + 2
    assert report["total"]["prompt_tokens"] == 12_000_000
