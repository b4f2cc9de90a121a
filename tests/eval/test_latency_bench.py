"""The bench through a real gateway process (scripted engine) and a real language server. No figure is judged here."""

import json
from pathlib import Path
from typing import Any

import pytest
from foretype_context.prompt.profile import Profile
from foretype_eval.cli import bench
from foretype_eval.errors import EvalError
from foretype_eval.gateway import GatewayOptions
from foretype_eval.latency.cli import run_latency
from foretype_eval.latency.lsp_client import LspClient
from foretype_eval.latency.options import Counts, LatencyFigures, LatencyOptions
from foretype_eval.latency.report import report
from typer.testing import CliRunner

TINY = Counts(
    cold=2,
    warm=5,
    cold_6000=1,
    warm_6000=2,
    cancel_decode=20,  # where it is busy, most of these answers are whole before their cancel
    cancel_prefill=1,
    typethrough=4,
    shown=2,
    didchange=3,
    next_edit=4,
    first_sights=1,
    starts=0,
)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_every_row_is_measured_through_real_processes(tmp_path: Path) -> None:
    steps: set[str] = set()
    profile = tmp_path / "asked.toml"  # as of the model that ships: what it says is shown to nobody who does not ask
    profile.write_text("[model]\nmin_mean_logprob = { mid_line = 0.0, line = 0.0, block = 0.0 }\n")
    options = LatencyOptions(counts=TINY, gateway=GatewayOptions(engine="scripted", profile=profile))
    result = await run_latency(options, progress=lambda step, _done, _total: steps.add(step))
    for name, least in {
        "typethrough": 4,
        "warm_ttft": 5,
        "cold_ttft": 2,
        "didchange": 3,
        "next_edit": 4,
        "overhead": 5,
        "shown": 2,
        "first_sight": 1,
        "first_sight_without": 1,
        "first_sight_indexed": 1,
        "first_sight_indexed_without": 1,
    }.items():
        row = result[f"{name}_ms"]
        assert row["n"] >= least, name
        assert 0 <= row["p50"] <= row["p95"] <= row["p99"]
    for name in ("warm_ttft_6000_ms", "cold_ttft_6000_ms"):
        assert result[name]["n"] >= 1
    assert result["cancel_ms"]["decode"]["n"] >= 1
    assert isinstance(result["tokens_after_cancel"], int)
    assert 1_500 <= result["facts"]["prompt_tokens"]["min"] <= result["facts"]["prompt_tokens"]["max"] <= 2_000
    assert 5_400 <= result["facts"]["prompt_tokens_6000"]["min"]
    assert result["cached_share"]["warm"] > 0.9 > result["cached_share"]["cold"]
    assert result["facts"]["engine_running_after"] == 0
    assert result["facts"]["first_sight_files"] == 200
    assert {"prompts", "prompts_6000", "type-through", "changes", "next edits"} <= steps
    json.dumps(result)


def test_an_empty_bench_still_has_every_key_of_the_contract() -> None:
    profile = Profile(model="m", grammar="foretype-1", tokenizer_digest="0")
    result = report(LatencyFigures(), LatencyOptions(), profile)
    empty = {"n": 0, "p50": None, "p95": None, "p99": None}
    for name in (
        "typethrough",
        "warm_ttft",
        "cold_ttft",
        "shown",
        "overhead",
        "didchange",
        "next_edit",
        "start_to_any_suggestion",
        "start_to_first_suggestion",
    ):
        assert result[f"{name}_ms"] == empty
    assert result["cancel_ms"] == {phase: {**empty, "tokens_after_cancel": 0} for phase in ("decode", "prefill")}
    assert result["machine"]["cores"] >= 1


def test_a_gateway_that_is_not_there_is_said_in_one_line_with_status_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench, ["latency", "--json", "--gateway", "ws://127.0.0.1:9/v1/stream"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "error:" in result.stderr


async def test_requests_of_the_server_are_answered() -> None:
    script = (
        "import sys, json\n"
        "def send(m):\n    b = json.dumps(m).encode()\n"
        "    sys.stdout.buffer.write(b'Content-Length: %d\\r\\n\\r\\n' % len(b) + b); sys.stdout.buffer.flush()\n"
        "def read():\n    n = int(sys.stdin.buffer.readline().split(b':')[1]); sys.stdin.buffer.readline()\n"
        "    return json.loads(sys.stdin.buffer.read(n))\n"
        "asked = read()\n"
        "send({'jsonrpc': '2.0', 'id': 'x', 'method': 'workspace/configuration', 'params': {'items': [{}, {}]}})\n"
        "answer = read()\n"
        "send({'jsonrpc': '2.0', 'id': asked['id'], 'result': answer['result']})\n"
        "read()\n"
    )
    import sys

    server = await LspClient.start([sys.executable, "-c", script])
    result: Any = await server.request("anything", {})
    assert result == [None, None]
    await server.stop()


async def test_a_request_to_a_server_that_has_ended_fails_with_its_last_words() -> None:
    server = await LspClient.start(["sh", "-c", "echo out of cheese >&2; exit 3"])
    with pytest.raises(EvalError, match="cheese"):
        await server.request("initialize", {})
    with pytest.raises(EvalError, match="cheese"):
        await server.request("shutdown", None)
    await server.stop()
