"""Budgets of gateways in two regions: one Redis for both over a long way, and a Redis each with a share of every budget."""

import asyncio
import contextlib
import time
from pathlib import Path

import httpx
import pytest
from backend.identity_world import NOW_MS, minted, record
from backend.patient_gateway import SERVE
from backend.redis_server import redis_server
from backend.test_gateway_process import serving
from e2e.way import Way
from fleet.support import free_ports
from foretype_backend.admission.leases import Leases
from foretype_backend.admission.limits import Budget, Budgets, Denied
from foretype_backend.admission.redis_leases import RedisLeases
from foretype_backend.identity.directory import Tenant
from foretype_backend.identity.store import IdentityStore

FAR_S = 0.06
"""What the way to the Redis of the other region takes, each way."""
NAME = "tenant:acme"


class Region:
    """The budgets of a gateway, leased from a Redis; it spends all that it gets."""

    def __init__(self, url: str, budget: Budget, slice_s: float) -> None:
        self.budgets = Budgets({NAME: budget})
        clock = time.monotonic
        self.leases = RedisLeases(url, Leases(self.budgets, slice_s=slice_s, now=clock()), slice_s=slice_s, clock=clock)
        self.spent = 0

    async def spend(self) -> None:
        while True:
            now = time.monotonic()
            while not isinstance(claim := self.budgets.reserve([NAME], 5, now), Denied):
                self.budgets.settle(claim, 5, now)
                self.spent += 5
            await asyncio.sleep(0.005)


class Port:
    def __init__(self, port: int) -> None:
        self.port = port


@pytest.mark.slow
async def test_regions_that_share_a_redis_spend_what_one_may_however_far_it_is_and_go_on_while_it_is_away() -> None:
    budget, slice_s = Budget(tokens_per_s=1000, burst_tokens=500), 0.4
    [port] = free_ports(1)
    with redis_server("--port", str(port)) as server:
        async with Way(Port(port), FAR_S).open() as way:
            near = Region(server.url, budget, slice_s)
            far = Region(f"redis://127.0.0.1:{way.port}/0", budget, slice_s)
            regions = (near, far)
            for one in regions:
                one.budgets.set(NAME, budget, time.monotonic())
                one.leases.leases.asks(time.monotonic())  # from here on both are leased
            began_s = time.monotonic()
            spending = [asyncio.create_task(one.spend()) for one in regions]
            for one in regions:
                one.leases.start()

            def over(since_s: float, before: int = 0) -> float:
                """Tokens beyond the rate."""
                passed_s = time.monotonic() - since_s
                return sum(one.spent for one in regions) - before - budget.tokens_per_s * passed_s

            # What each is given in advance is half a slice, which is owed; and a busy machine may be late with an answer.
            error = len(regions) * budget.tokens_per_s * slice_s / 2 + 0.5 * budget.tokens_per_s
            await asyncio.sleep(8 * slice_s)
            print(f"for {8 * slice_s:.1f} s: {over(began_s):.0f} tokens beyond the rate, of them a burst of 500")
            assert over(began_s) <= budget.burst_tokens + error
            assert near.spent > 0 and far.spent > 0
            way.frozen = True
            cut_s, before, far_before = time.monotonic(), near.spent + far.spent, far.spent
            await asyncio.sleep(6 * slice_s)
            # The far one goes on with what it had on average: it is never shut out, and never has more than the whole rate.
            assert over(cut_s, before) <= budget.tokens_per_s * (time.monotonic() - cut_s) + error
            assert far.spent > far_before
            print(f"cut off for {6 * slice_s:.1f} s: {over(cut_s, before):.0f} tokens beyond the rate")
            for task in spending:
                task.cancel()
            await asyncio.gather(*spending, return_exceptions=True)
        for one in regions:
            with contextlib.suppress(Exception):
                await one.leases.close()


@pytest.mark.slow
async def test_regions_with_a_redis_each_never_spend_more_than_the_budget(tmp_path: Path) -> None:
    burst = 600
    key = minted()
    store = await IdentityStore.open(str(tmp_path / "i.db"))
    # So slow that nothing comes back while the test runs.
    budgets = {"tenant": Budget(tokens_per_s=0.001, burst_tokens=burst)}
    await store.add_tenant(Tenant(name="acme", budgets=budgets), NOW_MS)
    await store.add_key(key, record(key), NOW_MS)
    await store.close()

    async def spends(url: str) -> int:
        """All that it may have."""
        used, refused = 0, 0
        headers = {"Authorization": f"Bearer {key.text}"}
        async with httpx.AsyncClient(trust_env=False, timeout=60, base_url=url, headers=headers) as http:
            while refused < 20 or used < burst / 2 - 40:
                answer = await http.post("/v1/completions", json={"prompt": "x = ", "max_tokens": 16})
                assert answer.status_code in (200, 429)
                used += answer.json()["usage"]["total_tokens"] if answer.status_code == 200 else 0
                refused = 0 if answer.status_code == 200 else refused + 1
                if refused:
                    await asyncio.sleep(0.05)  # the next slice
        return used

    with redis_server() as one, redis_server() as two:
        async with contextlib.AsyncExitStack() as stack:
            urls: list[str] = []
            for at, ledger in enumerate((one, two)):
                profile = tmp_path / f"{at}.toml"
                leases = f'[leases]\nredis_url = "{ledger.url}"\nslice_s = 0.2\nshare = 0.5\n'
                profile.write_text(f'[identity]\nurl = "{tmp_path / "i.db"}"\n{leases}')
                state = str(tmp_path / f"state{at}")
                started = await stack.enter_async_context(
                    serving(
                        *("--engine", "scripted", "--profile", str(profile), "--no-telemetry"),
                        *("--port", "0", "--state-dir", state),
                        command=SERVE,
                    )
                )
                urls.append(started[1])
            async with asyncio.timeout(60):
                used = await asyncio.gather(*(spends(url) for url in urls))
    print(f"{used[0]} and {used[1]} of {burst} tokens, half of it each")
    assert all(burst / 2 - 40 <= each <= burst / 2 for each in used)
