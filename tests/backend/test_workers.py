"""Several workers tell one set of figures: sums that no death lets fall, one status, one scrape whoever is asked."""

import asyncio
import contextlib
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.replica import Replica
from backend.scrape import samples, total
from backend.test_chat import pool_of
from backend.test_fleet_gateway import fleet
from backend.test_gateway_process import SERVE, serving
from backend.world import gateway, scripted, until
from foretype_backend.config.settings import LimitsConfig
from foretype_backend.identity.directory import Denial
from foretype_backend.operations.merged_metrics import (
    LARGEST,
    SMALLEST,
    SUMMED,
    counters,
    merged,
    merged_reports,
    metrics_of,
    taken,
)
from foretype_backend.operations.worker_peers import WorkerAddress, WorkerPeers
from foretype_backend.operations.workers import run_workers
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.slow  # whole processes

BODY = {"prompt": "x = ", "max_tokens": 4}


class Process:
    """Metrics of one worker."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.asked = Counter("asked", "Asked.", ["class"], registry=self.registry)
        self.took = Histogram("took_seconds", "Took.", buckets=(1.0, 2.0), registry=self.registry)
        self.running = Gauge("foretype_running", "Running.", registry=self.registry)
        self.rung = Gauge("foretype_service_rung", "Rung.", registry=self.registry)

    def peers(self, place: WorkerAddress | None) -> WorkerPeers:
        return WorkerPeers(self.registry.collect, dict, place)


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=4), min_size=1, max_size=4))
def test_merging_adds_up_whatever_labels_each_has(workers: list[list[tuple[str, int]]]) -> None:
    processes = [Process() for _ in workers]
    for process, counted in zip(processes, workers, strict=True):
        for label, count in counted:
            process.asked.labels(label).inc(count)
            process.took.observe(count)
            process.running.inc()
            process.rung.set(count)
    families = {one.name: one for one in metrics_of(merged(taken(p.registry.collect()) for p in processes))}
    values = {(s.name, *s.labels.values()): s.value for one in families.values() for s in one.samples}
    flat = [pair for counted in workers for pair in counted]
    for label in {label for label, _ in flat}:
        assert values["asked_total", label] == sum(count for of, count in flat if of == label)
    assert values["took_seconds_count",] == values["took_seconds_bucket", "+Inf"] == len(flat)
    assert values["took_seconds_bucket", "1.0"] == sum(count <= 1 for _, count in flat)
    assert values["foretype_running",] == len(flat)
    assert values["foretype_service_rung",] == max((c[-1][1] for c in workers if c), default=0)
    assert [s.labels["le"] for s in families["took_seconds"].samples if "le" in s.labels] == ["1.0", "2.0", "+Inf"]


def test_reports_add_up_but_for_what_is_the_worst_ones() -> None:
    def report(**fast: Any) -> dict[str, Any]:
        pool = {"model": "m", "running": 2, "hit_rate": 0.5, "shedding_level": 0, "p99_ttft_ms": {"chat": 5.0}}
        pool |= {
            "engine": {"prompt_tokens": 0, "cached_tokens": 0},
            "decisions": {"chat": {"started": 1}},
            "replicas": 3,
        }
        base = {"version": "1", "uptime_s": 5.0, "draining": False, "connections": 4, "service": "full", "rungs": {}}
        return base | {"pools": {"fast": pool | fast}, "identity": {"version": 7, "age_s": 0.1}}

    other = report(
        engine={"prompt_tokens": 100, "cached_tokens": 25}, shedding_level=2, p99_ttft_ms={"chat": 3.0, "block": 9.0}
    )
    below = {"service": "cache_only", "rungs": {"flood": 3}}
    both = merged_reports([report() | {"rungs": {"flood": 1}}, other | {"draining": True} | below])
    fast = both["pools"]["fast"]
    assert (both["connections"], both["uptime_s"], both["draining"], both["workers"]) == (8, 5.0, True, 2)
    assert (fast["running"], fast["hit_rate"], fast["shedding_level"], fast["replicas"]) == (4, 0.25, 2, 3)
    assert fast["p99_ttft_ms"] == {"chat": 5.0, "block": 9.0}
    assert fast["decisions"] == {"chat": {"started": 2}}
    assert both["identity"] == {"version": 7, "age_s": 0.1}
    assert (both["service"], both["rungs"]) == ("cache_only", {"flood": 3})


async def test_a_scrape_outlives_a_worker_and_counts_nothing_twice(tmp_path: Path) -> None:
    first, second = Process(), Process()
    one, two = first.peers(WorkerAddress(tmp_path, 0, 2)), second.peers(WorkerAddress(tmp_path, 1, 2))
    await one.start()
    await two.start()
    first.asked.labels("a").inc(3)
    second.asked.labels("a").inc(4)
    second.running.set(5)
    for asked in (one, two):
        text = await asked.metrics()
        assert (total(text, "asked_total"), total(text, "foretype_running")) == (7, 5)
        assert total(text, "foretype_workers") == 2
    second.asked.labels("a").inc(100)  # nobody was told of these
    WorkerAddress(tmp_path, 1, 2).socket(1).unlink()  # as good as dead
    text = await one.metrics()
    assert (total(text, "asked_total"), total(text, "foretype_running"), total(text, "foretype_workers")) == (7, 0, 1)
    third = Process()
    three = third.peers(WorkerAddress(tmp_path, 1, 2))
    await three.start()
    third.asked.labels("a").inc(1)
    for asked in (one, three, one):
        assert total(await asked.metrics(), "asked_total") == 8
    for asked in (one, two, three):
        await asked.close()


async def test_a_worker_that_answers_nonsense_or_nothing_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretype_backend.operations.worker_peers._ANSWER_S", 0.05)

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\xc1\xc1")
        writer.close()

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    place = WorkerAddress(tmp_path, 0, 4)
    place.last(3).write_bytes(b"half of a fi")
    servers = [
        await asyncio.start_unix_server(answer, str(place.socket(n))) for n, answer in ((1, garbage), (2, silence))
    ]
    process = Process()
    process.asked.labels("a").inc(2)
    own = process.peers(place)
    assert total(await own.metrics(), "asked_total") == 2
    for server in servers:
        server.close()


def test_what_is_kept_of_the_dead_is_what_only_grows() -> None:
    assert [one.name for one in counters(taken(Process().registry.collect()))] == ["asked", "took_seconds"]


async def test_a_worker_that_is_being_made_when_all_are_told_to_end_is_told_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was in nobody's list then, and its parent waited for it for ever."""
    loop, make = asyncio.get_running_loop(), asyncio.create_subprocess_exec
    made: list[asyncio.subprocess.Process] = []
    tell: dict[int, Callable[[], object]] = {}
    monkeypatch.setattr(
        type(loop), "add_signal_handler", lambda _, number, call, *args: tell.update({number: partial(call, *args)})
    )

    async def told_meanwhile(*_: object, **options: Any) -> asyncio.subprocess.Process:
        made.append(await make(sys.executable, "-c", "import sys; sys.stdin.read()", **options))
        tell[signal.SIGTERM]()
        return made[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", told_meanwhile)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        try:
            async with asyncio.timeout(60):
                assert await run_workers(1, [], listener, lambda: None) == 0
        finally:
            for process in made:
                if process.returncode is None:
                    process.kill()
    assert [process.returncode for process in made] == [-signal.SIGTERM]


async def test_every_gauge_is_known_to_add_up_or_not(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (world, _), world.http() as http:
        world.service.metrics.denied(Denial.UNKNOWN)
        text = (await http.get("/metrics")).text
    gauges = {one.name for one in text_string_to_metric_families(text) if one.type == "gauge"}
    known = SUMMED | LARGEST | SMALLEST
    assert len(known) == len(SUMMED) + len(LARGEST) + len(SMALLEST)
    assert {name for name in gauges if not name.endswith("_created")} <= known
    assert "foretype_replica_standing" in gauges


def children(pid: int) -> Path:
    return Path(f"/proc/{pid}/task/{pid}/children")


async def fresh(url: str, path: str, **options: Any) -> httpx.Response:
    """Over a connection of its own, so that any worker may get it: again, where that one just died."""
    async with httpx.AsyncClient(verify=False, trust_env=False, base_url=url, timeout=60) as http:
        for _ in range(20):
            with contextlib.suppress(httpx.TransportError):
                return await (http.post(path, **options) if options else http.get(path))
        raise AssertionError("nobody answers")


async def scraped(url: str, workers: int = 2) -> str:
    """A scrape that all of them answered: again, where one was busy for longer than the others wait."""
    async with asyncio.timeout(60):
        while total(text := (await fresh(url, "/metrics")).text, "foretype_workers") != workers:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return text


async def test_one_scrape_tells_the_sum_over_all_workers_and_a_death_takes_nothing_back() -> None:
    async with serving("--port", "0", "--workers", "2") as (process, url):
        answers = await asyncio.gather(*(fresh(url, "/v1/completions", json=BODY) for _ in range(20)))
        assert {one.status_code for one in answers} == {200}
        for _ in range(6):
            assert total(await scraped(url), "foretype_requests_total") == 20
        async with asyncio.timeout(60):
            while (status := (await fresh(url, "/admin/status")).json())["workers"] != 2:  # noqa: ASYNC110 - as for a scrape
                await asyncio.sleep(0.05)
        assert status["pools"]["fast"]["slots"] == 128
        assert sum(status["pools"]["fast"]["decisions"]["interactive"].values()) == 20
        before = children(process.pid).read_text().split()
        for pid in before:
            os.kill(int(pid), signal.SIGKILL)
            seen = total((await fresh(url, "/metrics")).text, "foretype_requests_total")
            assert seen == 20
            await scraped(url)
        await fresh(url, "/v1/completions", json=BODY)
        assert total(await scraped(url), "foretype_requests_total") == 21
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_what_workers_tell_each_other_is_for_their_user_alone() -> None:
    async with serving("--port", "0", "--workers", "2") as (process, _):
        worker = children(process.pid).read_text().split()[0]
        arguments = Path(f"/proc/{worker}/cmdline").read_text().split("\0")  # noqa: ASYNC240
        place = WorkerAddress.of(arguments[arguments.index("--place") + 1])
        assert place.socket(place.slot).is_socket()
        assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert not place.folder.exists()


async def test_workers_import_nothing_from_the_folder_they_are_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "foretype_backend"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit(2)\n")
    monkeypatch.chdir(tmp_path)
    command = (sys.executable, "-P", *SERVE[1:])
    async with serving("--port", "0", "--workers", "2", command=command) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_the_signals_to_scale_on_are_true() -> None:
    """What waits is what was asked and is not computed: nothing before, everything while slots are taken, nothing after."""
    engine = scripted("x + 1\n" * 10, prefill_s_per_token=0.0, decode_s_per_token=0.02)
    limits = LimitsConfig(max_running=1, max_waiting=8, abort_grace_ms=200, retry_wait_ms=500)
    async with gateway(engine, limits=limits) as world, world.http() as http:

        async def queued() -> float:
            return total((await http.get("/metrics")).text, "foretype_queued_uncached_tokens")

        assert await queued() == 0
        tasks = [asyncio.create_task(http.post("/v1/completions", json=BODY | {"max_tokens": 60})) for _ in range(3)]
        await until(lambda: world.service.statistics().waiting == 2)
        prompt_tokens = len(engine.requests[0])
        assert 2 * prompt_tokens <= await queued() <= 3 * prompt_tokens
        await asyncio.gather(*tasks)
        await world.idle()
        assert await queued() == 0


async def test_each_pool_says_how_full_its_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As its servers say: of the fast pool the mean over replicas in service, of the quality pool its server's own."""
    for module in ("foretype_backend.fleet.pool", "foretype_backend.engines.openai.server"):
        monkeypatch.setattr(f"{module}.LOOK_EVERY_S", 0.05)
    instruct = Replica()
    instruct.kv_use = 0.9
    await instruct.start()
    quality = pool_of(f"{instruct.url}/v1")
    await quality.start()
    async with fleet(tmp_path, quality=quality) as (world, replicas), world.http() as http:

        async def shown(**labels: str) -> dict[str, float]:
            found = samples((await http.get("/metrics")).content)
            name = "foretype_replica_kv_use_ratio" if labels else "foretype_kv_use_ratio"
            return {
                dict(of).get("pool", dict(of).get("replica", "")): v for (one, of), v in found.items() if one == name
            }

        async def comes(wanted: dict[str, float]) -> None:
            async with asyncio.timeout(60):
                while (await shown()) != wanted:  # noqa: ASYNC110 - what is scraped
                    await asyncio.sleep(0.02)

        replicas[0].kv_use, replicas[1].kv_use = 0.25, 0.75
        await comes({"": 0.5, "quality": 0.9})
        assert await shown(of="replica") == {replicas[0].url: 0.25, replicas[1].url: 0.75}
        replicas[1].kv_use, instruct.kv_use = 0.5, 0.1
        await comes({"": 0.375, "quality": 0.1})
        await instruct.stop()
        await comes({"": 0.375})  # nobody is told an old figure of a server that is gone
        status = (await http.get("/admin/status")).json()
        assert (status["pools"]["fast"]["engine"]["kv_use"], status["pools"]["quality"]["engine"]["kv_use"]) == (
            0.375,
            None,
        )
    await quality.close()
