"""Load: the plan of arrivals, the books, the thin WebSocket, and a whole run against a real gateway process."""

import asyncio
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from foretype_client.ports import Endpoint
from foretype_eval.cli import bench
from foretype_eval.load.aborts import AbortLog, relayed_s
from foretype_eval.load.connection import LoadConnection, open_connection
from foretype_eval.load.drive import schedule
from foretype_eval.load.fairness import fairness
from foretype_eval.load.gateway import team_target
from foretype_eval.load.hostile import quantile
from foretype_eval.load.recorder import Recorder, percentiles_ms
from foretype_eval.load.run import LoadOptions, run_load
from foretype_eval.load.scenarios import SCENARIOS, ScenarioOptions, run_scenario
from foretype_wire.errors import GatewayGoneError
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner
from websockets.asyncio.server import ServerConnection, serve


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 30), st.sampled_from([5.0, 60.0, 400.0]), st.sampled_from([0.5, 3.0]))
def test_arrivals_come_at_exactly_the_rate_that_was_asked_for(developers: int, rate: float, seconds: float) -> None:
    plan = schedule(developers, rate, seconds, Random(1))
    assert len(plan) == max(1, round(rate * seconds))
    assert plan == sorted(plan) and 0 <= plan[0][0] and plan[-1][0] <= seconds
    assert {number for _, number in plan} <= set(range(developers))


def test_arrivals_are_bursts_and_pauses_and_the_same_for_the_same_seed() -> None:
    plan = schedule(4, 40.0, 50.0, Random(3))
    assert plan == schedule(4, 40.0, 50.0, Random(3))
    own = [moment for moment, number in plan if number == 0]
    gaps = sorted(b - a for a, b in pairwise(own))
    assert gaps[len(gaps) // 2] < 0.6 * sum(gaps) / len(gaps), "the median gap is far below the mean, as measured"


def test_percentiles_are_milliseconds_and_have_the_largest() -> None:
    found = percentiles_ms([n / 1000 for n in range(1, 1001)])
    assert found["n"] == 1000
    assert found["p50"] == pytest.approx(500, rel=2e-3)
    assert found["p99"] == pytest.approx(990, rel=2e-3)
    assert found["max"] == pytest.approx(1000, rel=2e-3)
    assert percentiles_ms([])["p99"] is None
    assert percentiles_ms([-1.0])["max"] == 0.0


def test_shares_are_of_what_they_say() -> None:
    books = Recorder(
        requests=4, answered_in_time=3, prompt_tokens=10, cached_tokens=5, generated_tokens=8, wasted_tokens=2
    )
    books.outcomes.update(["end_of_middle", "cancelled", "refused"])
    books.refused["overloaded"] = 1
    books.ttft_s["interactive"] += [0.010, 0.020]
    report = books.report(seconds=2.0, engine_first_s=0.005)
    assert report["achieved_rate"] == 2.0 and report["availability"] == 0.75
    assert report["refused"] == 1 and report["unanswered"] == 1
    assert report["cached_share"] == 0.5 and report["wasted_token_share"] == 0.25
    assert report["added_ms"]["max"] == pytest.approx(15, rel=2e-3)


def test_a_cancel_counts_from_its_send_to_the_engines_abort_where_it_caused_one(tmp_path: Path) -> None:
    path = tmp_path / "aborts"
    log = AbortLog(path)
    assert log.news() == {}
    path.write_bytes(b"1500000000 c1:0-1\n2000000000 c2:1-1~2\n2500000000 c1:0-1\n30")
    aborted_s = log.news()
    assert aborted_s == {"0-1": 1.5, "1-1": 2.0}, "the first of several, and no line that is not whole yet"
    sent_s = {"0-1": 1.25, "1-1": 2.25, "never-aborted": 1.0}
    assert relayed_s(sent_s, aborted_s) == [0.25], "an abort before the cancel had another reason"
    with path.open("ab") as more:
        more.write(b"00000000 c9:4-4\n")
    assert log.news() == {"4-4": 3.0}


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
async def test_the_thin_websocket_speaks_with_a_real_server(size: int) -> None:
    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)
            await connection.ping()

    async with serve(echo, "127.0.0.1", 0, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        connection = await open_connection(Endpoint(f"ws://127.0.0.1:{port}/v1/stream"))
        got: asyncio.Queue[bytes] = asyncio.Queue()
        connection.on_message = got.put_nowait
        payloads = [bytes([n]) * size for n in (1, 2)]
        for payload in payloads:
            connection.send(payload)
        assert [await asyncio.wait_for(got.get(), 60) for _ in payloads] == payloads
        connection.close()


async def test_frames_that_come_in_pieces_are_put_together() -> None:
    connection = LoadConnection()
    got: list[bytes] = []
    connection.on_message = got.append
    frames = b"HTTP/1.1 101 Switching\r\nA: b\r\n\r\n" + b"\x82\x03abc" + b"\x82\x7e\x00\x80" + b"x" * 128
    for byte in frames:
        connection.data_received(bytes([byte]))
    assert got == [b"abc", b"x" * 128]


async def test_what_is_no_gateway_is_told() -> None:
    with pytest.raises(GatewayGoneError, match=r"wss://host/v1/stream: .*ws://"):
        await open_connection(Endpoint("wss://host/v1/stream"))
    async with await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(GatewayGoneError, match=r"hung up|answered"):
            await open_connection(Endpoint(f"ws://127.0.0.1:{port}/v1/stream"))


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_gateway_under_a_little_load_answers_everything_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foretype_eval.load.crowd._DRAIN_S", 60.0)
    options = LoadOptions(rate=60, seconds=1.5, warm_up_s=0.3, developers=6, idle=2, scripts=3, frame_ms=15, pin=False)
    found = await run_load(options, progress=lambda *_: None)
    assert found["requests"] == 90 and found["unanswered"] == 0 and found["refused"] == 0
    assert found["leaked_slots"] == 0 and found["lost_connections"] == 0
    assert found["cancel_ms"]["n"] > 0 and found["cancel_done_ms"]["n"] > 0 and found["outcomes"]["cancelled"] > 0
    assert 0 < found["cached_share"] < 1
    # It may be less than a tick of the kernel's, and on a busy machine comes after the seconds that are measured.
    assert found["gateway_cpu_ms_per_request"] >= 0 and found["of_it_engine_cpu_ms"] >= 0
    assert found["added_ms"]["p50"] <= found["added_ms"]["p99"]


def test_the_command_says_what_is_wrong() -> None:
    done = CliRunner().invoke(bench, ["load", "--gateway", "ws://127.0.0.1:9/v1/stream", "--json"])
    assert done.exit_code == 2 and not done.stdout


def _overload(found: dict[str, Any]) -> None:
    assert found["capacity_rate"] > 0 and found["goodput_rate"] > 0 and found["leaked_slots"] == 0
    assert set(found["classes"]) == {"interactive", "block", "speculative"}


def _fairness(found: dict[str, Any]) -> None:
    assert found["alone"][0]["queued_ms"]["n"] == found["alone"][0]["total_ms"]["n"] > 0
    assert found["flood"]["offered_rate"] > 0


def _sessions(found: dict[str, Any]) -> None:
    assert found["sessions"] == 12 and found["bytes_per_idle_session"] is not None


def _churn(found: dict[str, Any]) -> None:
    assert sum(found["events"].values()) >= 60 and not any(found["left"].values())


def _rolling(found: dict[str, Any]) -> None:
    assert found["restarts"] == 2 and found["lost_acknowledged"] == 0
    assert found["outcomes"]["answered"] > 0


def _hostile(found: dict[str, Any]) -> None:
    assert found["leaked"] == 0 and found["refused"] > 0 and found["loop_lag_p99_ms"] > 0
    assert len(found["attack"]) > 10 and all(count > 0 for count in found["attack"].values())
    assert found["beside"][0]["first_texts"] > 0 and set(found["resident_mib"]) == {"before", "most", "after"}


def _workers(found: dict[str, Any]) -> None:
    costs = found["cpu_ms_per_request"]
    assert found["workers"] == 2 and len(costs["one"]) == len(costs["several"]) == 1
    assert costs["several"][0] > 0 and found["by_one"] > 0.2, "the workers are the parent's children, and are counted"


REPORTS = {
    "overload": _overload,
    "fairness": _fairness,
    "sessions": _sessions,
    "churn": _churn,
    "rolling": _rolling,
    "hostile": _hostile,
    "workers": _workers,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
async def test_every_scenario_runs_and_reports_what_it_is_for(name: str) -> None:
    """Sizes are far too small to judge by: what is looked at is that something was asked, and that nothing was left or lost."""
    load = LoadOptions(rate=40, seconds=1, developers=8, idle=4, scripts=2, frame_ms=2, pin=False, warm_up_s=0.2)
    options = ScenarioOptions(load=load, capacity=100, times=2, pairs=1, idle_s=1, events=60, calibrate_s=0.5, calm_s=1)
    REPORTS[name](await run_scenario(name, options, progress=lambda *_: None))


class Silent:
    """A crowd of `fairness` that a busy machine leaves no time: what it asks shows no text, but in the runs named."""

    def __init__(self, *shows_ms: float | None) -> None:
        self.shows_ms = iter(shows_ms)

    def book(self) -> Recorder:
        books = Recorder()
        if (shown_ms := next(self.shows_ms, None)) is not None:
            books.ttft_s["interactive"] = [shown_ms / 1000]
        return books

    async def steady(self, *_: Any) -> None: ...

    async def drain(self) -> None: ...


async def test_fairness_where_a_run_shows_no_text_says_so_and_counts_the_others() -> None:
    quiet: Any = Silent(1.0, None, 3.0, 2.0, None, 5.0)  # by turns alone, beside; beside, alone; alone, beside
    flood: Any = Silent()
    near = partial(pytest.approx, abs=0.01)
    found = await fairness(quiet, flood, capacity=100, pairs=3, seconds=1, progress=lambda *_: None)
    assert found["moved_ms"] == [None, near(1.0), None] and found["moved_p99_ms"] == near(1.0)
    assert found["noise_ms"] == near(1.0)
    none: Any = Silent()
    found = await fairness(none, flood, capacity=100, pairs=1, seconds=1, progress=lambda *_: None)
    assert found["moved_p99_ms"] is None and found["noise_ms"] is None


def test_a_quantile_of_a_histogram_is_that_of_its_bucket() -> None:
    inf = float("inf")
    assert quantile({0.01: 98.0, 0.02: 100.0, inf: 100.0}, 0.99) == pytest.approx(0.015)
    assert quantile({0.01: 10.0, inf: 100.0}, 0.99) == 0.01, "no less is known than the last bound"
    assert quantile({}, 0.99) is None and quantile({inf: 0.0}, 0.5) is None


@pytest.mark.parametrize(
    "arguments", [["--scenario", "storm"], ["--scenario", "churn", "--gateway", "ws://127.0.0.1:1/v1/stream"]]
)
def test_a_scenario_that_is_none_or_has_no_gateway_of_its_own_is_refused(arguments: list[str]) -> None:
    answer = CliRunner().invoke(bench, ["load", *arguments])
    assert answer.exit_code == 2 and "--scenario" in answer.output


DEAF = """
import signal, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print("ready http://127.0.0.1:9", flush=True)
time.sleep(600)
"""


async def test_a_gateway_that_does_not_end_does_not_hold_up_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    make = asyncio.create_subprocess_exec

    async def deaf(*_: object, **options: Any) -> asyncio.subprocess.Process:
        return await make(sys.executable, "-c", DEAF, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", deaf)
    monkeypatch.setattr("foretype_eval.gateway._STOP_TIMEOUT_S", 0.1)
    async with asyncio.timeout(60):
        async with team_target(frame_ms=1.0, slots=1, core=None, waiting=1) as found:
            assert found.process is not None
        assert not found.process.is_running()
