"""Budgets of gateways in two regions: one Redis for both over a long way, and a Redis each with a share of every budget."""

import asyncio
import contextlib
from pathlib import Path

import httpx
import pytest
from backend.identity_world import NOW_MS, minted, record
from backend.patient_gateway import SERVE
from backend.redis_server import redis_server
from backend.test_gateway_process import serving
from foretype_backend.admission.limits import Budget
from foretype_backend.identity.directory import Tenant
from foretype_backend.identity.store import IdentityStore


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
