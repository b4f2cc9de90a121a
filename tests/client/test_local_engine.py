"""The private gateway with the real backend and the shipped model."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import foretype_client
import pytest
from foretype_client.private_gateway.finding import find_gateway
from foretype_wire.announcement import Announcement

pytestmark = pytest.mark.engine

SHARE = (
    "import asyncio, sys, time; from pathlib import Path; from foretype_client.private_gateway.starting import ensure_gateway\n"
    "endpoint = asyncio.run(ensure_gateway(Path(sys.argv[1]), clock=time.monotonic, linger_s=30))\n"
    "print(endpoint.url, endpoint.token, flush=True)\n"
    "time.sleep(float(sys.argv[2]))"
)


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    record = asyncio.run(find_gateway(tmp_path))
    if record is not None:
        os.kill(record.pid, signal.SIGTERM)
        assert gone(record.pid)


def gone(pid: int, within_s: float = 60.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def the_gateway(state_dir: Path) -> Announcement:
    record = asyncio.run(find_gateway(state_dir))
    assert record is not None
    return record


def run(state_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from foretype_client.commands.cli import main; main()", *arguments]
    environment = {**os.environ, "XDG_CACHE_HOME": str(state_dir / "cache")}
    return subprocess.run(
        [*command, "--state-dir", str(state_dir)],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        check=False,
    )


def test_two_language_servers_that_start_together_share_one_that_outlives_a_killed_starter(state_dir: Path) -> None:
    command = [sys.executable, "-c", SHARE, str(state_dir), "60"]
    servers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) for _ in range(2)]
    answers: set[str] = set()
    for server in servers:
        assert server.stdout is not None
        answers.add(server.stdout.readline())
    for server in servers:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate()
    assert len(answers) == 1
    record = the_gateway(state_dir)
    assert answers == {f"{record.stream_url} {record.token}\n"}
    assert (state_dir / "gateway.json").stat().st_mode & 0o777 == 0o600


def test_a_model_that_does_not_open_says_so_in_one_message(tmp_path: Path) -> None:
    model = tmp_path / "not-a-model.gguf"
    model.write_bytes(b"GGUF but not really")
    source = tmp_path / "a.py"
    source.write_text("x = 1\n")
    result = run(tmp_path, "complete", f"{source}:1:6", "--model", str(model))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: engine.model: {model}: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_complete_explain_and_doctor_start_a_gateway_and_share_it(state_dir: Path, tmp_path: Path) -> None:
    # In no repository: each command would wait another time for an index, and show what of it was ready by then.
    source = tmp_path / "ports.py"
    source.write_text(Path(foretype_client.__file__).with_name("ports.py").read_text())
    lines = source.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.startswith("class CompletionStream("))
    place = f"{source}:{line}:{len(lines[line - 1]) + 1}"
    completed = run(state_dir, "complete", place, "--json")
    assert completed.returncode == 0, completed.stderr
    answer = json.loads(completed.stdout)
    assert answer["prompt_tokens"] > 100
    assert answer["cached_source"] == "engine"
    gateway = the_gateway(state_dir)
    explained = json.loads(run(state_dir, "explain", place, "--json").stdout)
    assert explained["prompt_tokens"] == answer["prompt_tokens"]
    # The engine has just seen this prompt, so all of its whole blocks are cached.
    block_tokens = explained["profile"]["block_tokens"]
    assert sum(segment["cached"] for segment in explained["segments"]) >= answer["prompt_tokens"] - 2 * block_tokens
    report = json.loads(run(state_dir, "doctor", "--json").stdout)
    statuses = {finding["name"]: finding["status"] for finding in report["findings"]}
    assert {statuses["gateway"], statuses["engine"], statuses["tokenizer"]} == {"ok"}
    assert statuses["grammar"] != "fail"
    assert the_gateway(state_dir).pid == gateway.pid
