"""`foretype config check` says what it cannot know, and `--probe` finds it out: a finding for each thing that is away."""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from backend.redis_server import redis_server
from backend.replica import Replica
from backend.test_config_agreement import OPENAI
from backend.test_gateway_process import serving
from backend.world import TOKENIZER
from foretype_backend.identity.store import IdentityStore
from foretype_client.commands.cli import app
from foretype_models.artifacts import locate
from typer.testing import CliRunner

NOBODY = "127.0.0.1:9"
TEAM = f"""
[pool.fast]
replicas = ["http://{NOBODY}/v1"]
[model]
tokenizer = "tokenizer.json"
[identity]
url = "postgresql://ann:s3cret@{NOBODY}/foretype"
salt_file = "salt"
[identity.oidc]
issuer = "http://{NOBODY}"
audience = "foretype"
[leases]
redis_url = "redis://:s3cret@{NOBODY}/0"
[telemetry]
url = "postgresql://ann:s3cret@{NOBODY}/foretype"
[pool.quality]
url = "http://{NOBODY}/v1"
"""
ASKED = ["engine", "identity.url", "telemetry.url", "leases.redis_url", "identity.oidc.issuer", "pool.quality.url"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copy(locate().tokenizer_path, tmp_path / "tokenizer.json")
    (tmp_path / "salt").write_bytes(b"s" * 32)
    return tmp_path


def check(folder: Path, text: str, *options: str) -> tuple[int, Any]:
    path = folder / "team.toml"
    path.write_text(text)
    done = CliRunner().invoke(app, ["config", "check", str(path), "--json", *options])
    assert "s3cret" not in done.output
    return done.exit_code, json.loads(done.stdout)


def test_what_reading_cannot_tell_is_said_and_a_probe_finds_each_thing_that_is_away(folder: Path) -> None:
    code, told = check(folder, TEAM)
    assert (code, told["findings"]) == (0, [])
    unknown = {one["field"] for one in told["unknown"]}
    assert unknown == {"gateway.port", "pool.fast.replicas", *ASKED[1:]}
    code, told = check(folder, TEAM, "--probe")
    assert code == 2
    assert [one["field"] for one in told["findings"]] == ASKED
    assert {one["field"] for one in told["unknown"]} == {"gateway.port"}
    lines = (folder / "team.toml").read_text().splitlines()
    of: dict[str, str] = {one["field"]: lines[one["line"] - 1] for one in told["findings"] if one["line"]}
    assert of["leases.redis_url"].startswith("redis_url") and of["identity.oidc.issuer"].startswith("issuer")


def test_what_is_not_checked_is_told_to_people_too(folder: Path) -> None:
    path = folder / "team.toml"
    path.write_text(TEAM)
    done = CliRunner().invoke(app, ["config", "check", str(path)])
    first, *others = done.stdout.splitlines()
    assert first == f"{path}: ok"
    assert all(line.startswith("not checked: ") for line in others)
    assert any(line.startswith("not checked: identity.url: ") for line in others)
    assert "s3cret" not in done.output


def test_an_engine_that_is_away_is_told_by_the_probe_in_the_words_of_serve(folder: Path) -> None:
    code, told = check(folder, OPENAI, "--probe")
    assert code == 2
    command = [sys.executable, "-m", "foretype_backend", "serve", "--profile", str(folder / "team.toml"), "--port", "0"]
    served = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert served.returncode == 2
    assert served.stderr.splitlines()[-1] == f"foretype serve: engine: {told['findings'][0]['message']}"


async def test_a_probe_of_a_team_that_is_there_finds_nothing_and_changes_nothing(folder: Path) -> None:
    async with Replica(vocabulary=TOKENIZER.vocabulary_tokens) as replica:
        store = await IdentityStore.open(str(folder / "i.db"))
        await store.close()
        before = (folder / "i.db").read_bytes()
        with redis_server() as redis:
            text = f"[pool.fast]\nreplicas = ['{replica.url}/v1']\n[model]\ntokenizer = 'tokenizer.json'\n"
            text += f"[identity]\nurl = 'i.db'\nsalt_file = 'salt'\n[leases]\nredis_url = '{redis.url}'\n"
            text += "[telemetry]\nurl = 'new.db'\n"
            code, told = await asyncio.to_thread(check, folder, text, "--probe")
            assert (code, told["findings"]) == (0, [])
        assert not (folder / "new.db").exists()
        assert (folder / "i.db").read_bytes() == before


def test_a_store_that_a_newer_version_wrote_is_told_in_the_words_of_serve(folder: Path) -> None:
    path = folder / "events.db"
    text = f"[engine]\nname = 'scripted'\n[telemetry]\nurl = '{path}'\n"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        database.execute("INSERT INTO alembic_version VALUES ('9999')")
    assert check(folder, text)[0] == 0
    code, told = check(folder, text, "--probe")
    (finding,) = told["findings"]
    assert (code, finding["field"]) == (2, "telemetry.url") and "9999" in finding["message"]
    command = [sys.executable, "-m", "foretype_backend", "serve", "--profile", str(folder / "team.toml"), "--port", "0"]
    served = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert served.returncode == 2
    assert served.stderr.splitlines()[-1] == f"foretype serve: telemetry.url: {finding['message']}"


@pytest.mark.slow
async def test_what_check_and_probe_pass_serve_starts(folder: Path) -> None:
    text = "[engine]\nname = 'scripted'\n[identity]\nurl = 'i.db'\nsalt_file = 'salt'\n[telemetry]\nurl = 'events.db'\n"
    text += "[metrics]\nport = 0\n[gateway]\nworkers = 2\n"
    code, told = await asyncio.to_thread(check, folder, text, "--probe")
    assert (code, told["findings"]) == (0, [])
    async with serving("--profile", str(folder / "team.toml"), "--port", "0") as (process, _):
        process.terminate()
        assert await process.wait() == 0


async def test_a_probe_says_what_each_announced_replica_answers(folder: Path) -> None:
    async with (
        Replica(vocabulary=TOKENIZER.vocabulary_tokens) as good,
        Replica(vocabulary=TOKENIZER.vocabulary_tokens) as other,
    ):
        listed = folder / "replicas.json"
        text = "[pool.fast.discovery]\nsource = 'file'\npath = 'replicas.json'\n[model]\ntokenizer = 'tokenizer.json'\n"

        def announce(**replicas: str) -> None:
            listed.write_text(
                json.dumps([{"targets": [at], "labels": {"replica": name}} for name, at in replicas.items()])
            )

        announce(a=f"127.0.0.1:{good.port}")
        code, told = await asyncio.to_thread(check, folder, text, "--probe")
        assert (code, told["findings"]) == (0, [])
        other.behaviour = "error"
        announce(a=f"127.0.0.1:{good.port}", b=f"127.0.0.1:{other.port}", c="93.184.216.34:80", d=NOBODY)
        code, told = await asyncio.to_thread(check, folder, text, "--probe")
        [finding] = told["findings"]
        assert (code, finding["field"]) == (2, "pool.fast.discovery")
        assert finding["message"].startswith("a would be asked; ")
        for name, why in (("b", "500"), ("c", "outside of pool.fast.discovery.networks"), ("d", "cannot connect")):
            [its] = [part for part in finding["message"].split("; ") if part.startswith(f"{name} (")]
            assert why in its
