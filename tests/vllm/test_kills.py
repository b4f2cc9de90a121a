"""`kill -9` of `vllm serve` under load: every request has an outcome, nothing leaks, the replica comes back, the metrics tell it.

Five times (`FORETYPE_SOAK_VLLM_ROUNDS`), by turns the process that answers and the engine behind it. `make soak` runs it, with its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from backend.identity_world import added_key, identity_of, salts
from backend.loads import Load, load
from backend.scrape import total
from backend.world import TOKENIZER, World, complete, gateway, segments, until
from foretype_backend.admission.limits import Budget
from foretype_backend.config.fleet import FastConfig
from foretype_backend.engines.vllm.metrics import read_metrics
from foretype_backend.fleet.build import make_pool
from foretype_backend.fleet.doors import attach_pool
from foretype_backend.identity.accounts import Accounts
from foretype_backend.identity.directory import Tenant
from foretype_wire.messages import Cancel, Done, Error, ErrorCode
from vllm_world.serving import VllmServe

ROUNDS = int(os.environ.get("FORETYPE_SOAK_VLLM_ROUNDS", "5"))
CHANCE = random.Random(int(os.environ.get("FORETYPE_SOAK_SEED", "1")))
REFUSED = {ErrorCode.OVERLOADED, ErrorCode.RATE_LIMITED, ErrorCode.EXPIRED}

pytestmark = [pytest.mark.soak, pytest.mark.asyncio(loop_scope="module")]


def outcome(end: Done | Error) -> str:
    """`answered`, `cancelled` (as asked), `refused` (deliberately), `unavailable` (a clear error): anything else is none."""
    if isinstance(end, Done):
        return "cancelled" if end.finish == "cancelled" else "answered"
    if end.code in REFUSED:
        return "refused"
    assert (end.code, bool(end.message)) == (ErrorCode.ENGINE_UNAVAILABLE, True), end
    return "unavailable"


def answered(end: Done | Error) -> bool:
    return outcome(end) == "answered"


def told(world: World, name: str, **labels: str) -> float:
    return total(world.service.metrics.render(), name, **labels)


async def reaches(world: World, name: str, least: float, **labels: str) -> None:
    async with asyncio.timeout(300):
        while told(world, name, **labels) < least:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)


def developers(world: World, headers: dict[str, str]) -> contextlib.AbstractAsyncContextManager[Load[Done | Error]]:
    async def developer(made: Load[Done | Error], number: int) -> None:
        """Types in a file of their own, thinks for a moment, and cancels every tenth request."""
        chance = random.Random(number)
        lines = "".join(f"value_{number}_{at} = compute({at})\n" for at in range(60))
        async with world.peer(additional_headers=headers) as peer:
            for at in range(1_000_000):
                await asyncio.sleep(0.1)
                given = segments(lines, middle=f"value_{at % 7} = ")
                await peer.send(complete(f"r{at}", segments=given, max_tokens=12))
                if chance.random() < 0.1:
                    await peer.send(Cancel(id=f"r{at}"))
                async with asyncio.timeout(300):  # else it hangs
                    while not isinstance(message := await peer.receive(), Done | Error):
                        pass
                made.ended(message)

    return load(developer)


@pytest.mark.timeout(180 + 150 * ROUNDS)
async def test_a_killed_vllm_costs_only_what_was_asked_while_it_was_away(model_folder: Path, tmp_path: Path) -> None:
    accounts = Accounts(lambda: "2026-09-22")
    server = VllmServe(model_folder, tmp_path)
    rows: list[str] = []
    try:
        await asyncio.to_thread(server.start)
        pool = make_pool(FastConfig(replicas=(f"{server.url}/v1",)), vocabulary_tokens=TOKENIZER.vocabulary_tokens)
        async with identity_of(tmp_path / "i.db") as (identity, store):
            key = await added_key(store)
            budgets = {"tenant": Budget(tokens_per_s=1e6, burst_tokens=1e6)}
            await store.set_tenant(Tenant(name="acme", budgets=budgets))
            await identity.watch.look()
            headers = {"Authorization": f"Bearer {key.text}"}
            async with gateway(pool, identity=identity, salts=salts(), accounts=accounts) as world:
                attach_pool(world.app, world.gateway.stream, pool)
                async with developers(world, headers) as load:
                    for number in range(1, ROUNDS + 1):
                        await load.more(20, good=answered)
                        await asyncio.sleep(CHANCE.random())
                        outages = told(world, "foretype_replica_outages_total")
                        before, killed_s = len(load.ends), time.monotonic()
                        what = ("server", "engine")[number % 2]
                        (server.kill_server if what == "server" else server.kill_engine)()
                        await reaches(world, "foretype_replica_outages_total", outages + 1)
                        out_s = time.monotonic()
                        assert told(world, "foretype_replica_standing", standing="out") == 1
                        await load.more(4, good=lambda end: outcome(end) == "unavailable")
                        await asyncio.to_thread(server.clear)
                        await asyncio.to_thread(server.start)
                        up_s = time.monotonic()
                        await reaches(world, "foretype_replica_standing", 1, standing="in_service")
                        back_s = time.monotonic()
                        await load.more(20, good=answered)
                        ends = Counter(outcome(end) for end in load.ends[before:])
                        rows.append(
                            f"{number} kill -9 of the {what}: out of service after {out_s - killed_s:.1f} s, started again in "
                            f"{up_s - out_s:.1f} s, in service {back_s - up_s:.1f} s later; {dict(sorted(ends.items()))}"
                        )
                        print(rows[-1], flush=True)
                await world.idle()
                assert told(world, "foretype_replica_in_flight") == 0
                assert told(world, "foretype_engine_restarts_total") >= ROUNDS
                lost = told(world, "foretype_requests_total", reason="engine_lost")
                assert lost >= sum(outcome(end) == "unavailable" for end in load.ends) > 0
                async with httpx.AsyncClient(trust_env=False, timeout=60) as http:

                    async def running() -> int:
                        return read_metrics((await http.get(f"{server.url}/metrics")).text).running

                    async with asyncio.timeout(300):
                        while await running():  # noqa: ASYNC110 - of another process
                            await asyncio.sleep(0.1)
                now = asyncio.get_running_loop().time()
                (statistics,) = accounts.quotas.budgets.statistics(now).values()
                assert statistics.reserved == 0
                await until(lambda: not pool.warming)
    finally:
        await asyncio.to_thread(server.clear)
    assert len(rows) == ROUNDS
