"""A gateway on a pool of replicas: configuration, salts, what sessions do to the book of caches, the operators' door."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.replica import Replica
from backend.running_replicas import replicas
from backend.test_gateway_process import refused, serving
from backend.world import OF_A_SHOP, TOKEN, TOKENIZER, Peer, World, gateway, segments, until
from foretype_backend.config.fleet import FastConfig
from foretype_backend.config.load import load_config
from foretype_backend.errors import ConfigError, EpochFileError
from foretype_backend.fleet.build import make_pool
from foretype_backend.fleet.doors import attach_pool, attach_purger
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.prefix.cli import app as prefix_commands
from foretype_backend.prefix.epochs import EpochFile, WorkerPurger, read_epochs
from foretype_backend.prefix.salt import SaltBook
from foretype_backend.start.check import check_file
from foretype_backend.start.prepare import prepare
from foretype_context.prompt.segments import Source
from foretype_models.artifacts import locate, locate_embedder
from foretype_wire.messages import Changed, ChangeReason, Done
from msgspec.structs import replace
from typer.testing import CliRunner

LINES = "".join(f"value_{at} = compute({at}, 'some text that makes tokens')\n" for at in range(40))
SECRET = b"s" * 32


async def noted(_tenant: str, _scope: str, _actor: str) -> None:
    """What purges tell the audit log has a test of its own."""


@contextlib.asynccontextmanager
async def fleet(
    tmp_path: Path, *, count: int = 2, token: str | None = None, **options: Any
) -> AsyncGenerator[tuple[World, list[Replica]]]:
    async with replicas(count) as made:
        fast = FastConfig(replicas=tuple(f"{one.url}/v1" for one in made))
        pool = make_pool(fast, vocabulary_tokens=TOKENIZER.vocabulary_tokens)
        salts = SaltBook(SECRET, read_epochs(tmp_path / "epochs.json"))
        async with gateway(pool, salts=salts, token=token, **options) as world:
            attach_pool(world.app, world.gateway.stream, pool)
            file, peers = EpochFile(tmp_path / "epochs.json", salts), world.gateway.peers
            attach_purger(world.app, WorkerPurger(file, lambda: peers.ask("epochs", bool), note=noted), pool)
            yield world, made


def asked(document: str = "file:///src/shop/cart.py") -> dict[str, Any]:
    parts = [replace(one, source=Source(document=document, path="cart.py", end=len(LINES))) for one in segments(LINES)]
    return {"segments": parts, "document": document, "max_tokens": 2}


async def cached(peer: Peer, name: str, **fields: Any) -> int:
    _, end = await peer.answer(name, **(asked() | fields))
    return end.usage.cached_tokens


def bodies(replicas: list[Replica]) -> list[dict[str, Any]]:
    return [body for one in replicas for body in one.bodies]


async def test_a_request_does_not_count_what_all_replicas_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(tmp_path) as (world, _), world.peer(hello=OF_A_SHOP) as peer:
        counted: list[str] = []
        monkeypatch.setattr(ReplicaPool, "statistics", lambda _: counted.append("all of them"))
        await cached(peer, "a")
        assert not counted


async def test_a_colleague_is_warm_another_repository_is_not_and_a_purge_makes_all_cold(tmp_path: Path) -> None:
    async with (
        fleet(tmp_path) as (world, replicas),
        world.peer(hello=OF_A_SHOP) as one,
        world.peer(hello=OF_A_SHOP) as two,
    ):
        assert await cached(one, "a") == 0
        warm = await cached(one, "b")
        assert warm > 400
        assert await cached(two, "c") == warm  # sharing is by repository, and both are sent where it is
        assert await cached(one, "d", document="file:///elsewhere/x.py") == 0
        salts = {body["cache_salt"] for body in bodies(replicas)}
        assert len(salts) == 2
        assert all(len(salt) == 43 for salt in salts)

        async with world.http() as http:
            shown = (await http.get("/admin/prefix", params={"repository": "shop"})).json()
            assert shown["tokens"] >= warm
            assert {row["sessions"] for row in shown["documents"]} == {2}
            assert shown["agreement"]["within_block"] == shown["agreement"]["requests"] == 4
            purged = (await http.post("/admin/prefix/purge", json={"repository": "shop"})).json()
            assert purged["epoch"] == 1
            assert purged["blocks"] > 20
            assert (purged["complete"], purged["reached"]) == (True, ["worker 0"])
            assert (await http.get("/admin/prefix", params={"repository": "shop"})).json()["documents"] == []
        _, end, _ = await one.ask("e", **asked())  # text again: the gateway forgot it
        assert isinstance(end, Done)
        assert end.usage.cached_tokens == 0
    async with fleet(tmp_path) as (world, _replicas):
        assert world.service.salts is not None
        assert world.service.salts.namespace("default", "shop").epoch == 1  # it survives a restart


async def test_leaving_and_changed_documents_end_the_use_of_blocks(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (world, _replicas):
        pool = world.engine
        assert isinstance(pool, ReplicaPool)
        async with world.peer(hello=OF_A_SHOP) as peer:
            await cached(peer, "a")
            used = pool.book.directory.statistics().used_blocks
            assert used > 20
            await peer.send(Changed(documents=["file:///src/shop/cart.py"], reason=ChangeReason.BRANCH))
            await until(lambda: pool.book.directory.statistics().used_blocks < used)
            await cached(peer, "b")
            assert pool.book.directory.statistics().used_blocks == used
        await until(lambda: pool.book.directory.statistics().used_blocks == 0)
        async with world.http() as http:
            answer = await http.post("/v1/completions", json={"prompt": LINES, "max_tokens": 1})
            assert answer.status_code == 200
        assert pool.book.directory.statistics().sessions == 0  # a stateless client leaves nothing behind


async def test_the_door_asks_for_the_token_and_names_what_is_wrong(tmp_path: Path) -> None:
    async with fleet(tmp_path, count=1, token=TOKEN) as (world, _replicas), world.http() as http:
        assert (await http.get("/admin/prefix")).status_code == 401
        assert (await http.post("/admin/prefix/purge", json={})).status_code == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        wrong = await http.post("/admin/prefix/purge", json={"repository": 7}, headers=headers)
        assert wrong.status_code == 400
        assert wrong.json()["error"]["param"] == "repository"
        assert (await http.get("/admin/prefix", headers=headers)).json()["tokens"] == 0


async def test_the_commands_show_and_purge(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    async with (
        fleet(tmp_path, token=TOKEN) as (world, _replicas),
        world.peer(hello=OF_A_SHOP, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as peer,
    ):
        await cached(peer, "a")
        options = ["--gateway", world.url, "--token-file", str(token), "--json"]

        def run(*arguments: str) -> dict[str, Any]:
            result = CliRunner().invoke(prefix_commands, [*arguments, *options])
            assert result.exit_code == 0, result.output
            return json.loads(result.output)

        shown = await asyncio.to_thread(run, "show", "shop")
        assert shown["tokens"] > 400
        assert (await asyncio.to_thread(run, "purge", "shop"))["epoch"] == 1
        assert (await asyncio.to_thread(run, "show", "shop"))["tokens"] == 0
        table = await asyncio.to_thread(CliRunner().invoke, prefix_commands, ["show", *options[:-1]])
        assert "in_service" in table.output
        denied = await asyncio.to_thread(CliRunner().invoke, prefix_commands, ["show", "--gateway", world.url])
        assert denied.exit_code == 2
        assert "credential" in denied.output
    gone = await asyncio.to_thread(CliRunner().invoke, prefix_commands, ["show", "--gateway", world.url])
    assert gone.exit_code == 2
    assert "foretype serve" in gone.output


async def test_a_gateway_without_a_pool_says_that_it_knows_of_no_caches() -> None:
    async with gateway() as world:
        alone = await asyncio.to_thread(CliRunner().invoke, prefix_commands, ["show", "--gateway", world.url])
    assert alone.exit_code == 2 and "has no pool of replicas" in alone.output


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ("replicas = 'http://x'", "pool.fast.replicas"),
        ("replica = ['http://x']", "pool.fast.replica"),
        ("replicas = ['http://x/v1']\nbatch = 0", "pool.fast.batch"),
        ("replicas = ['http://x/v1']\nload_factor = 0.5", "pool.fast.load_factor"),
        ("replicas = ['http://x/v1']\nsilence_s = 0.0", "pool.fast.silence_s"),
        ("replicas = ['http://x/v1']\nkv_events = ['tcp://*:5557']", "pool.fast.kv_events[0]"),
        ("replicas = ['http://x/v1']\nkv_events = ['tcp://127.0.0.1:1', 'tcp://127.0.0.1:2']", "pool.fast.kv_events"),
        ("replicas = ['http://x/v1']\nshared_tier_tenants = ['a']", "pool.fast.shared_tier_tenants"),
        ("kv_high_water = 0.0", "pool.fast.kv_high_water"),
        ("session_header = 'a b'", "pool.fast.session_header"),
        ("[pool.fast.discovery]\nsource = 'ray'", "pool.fast.discovery.source"),
        ("[pool.fast.discovery]\nsource = 'http'", "pool.fast.discovery.url"),
        ("[pool.fast.discovery]\nsource = 'http'\nurl = 'directory:1'", "pool.fast.discovery.url"),
        ("[pool.fast.discovery]\nsource = 'http'\nurl = 'http://x'\nport = 1", "pool.fast.discovery.port"),
        ("[pool.fast.discovery]\nsource = 'dns'", "pool.fast.discovery.name"),
        ("[pool.fast.discovery]\nsource = 'dns'\nname = 'x'\nport = 0", "pool.fast.discovery.port"),
        (
            "[pool.fast.discovery]\nsource = 'dns'\nname = 'x'\nnetworks = ['10.0.0.1/8']",
            "pool.fast.discovery.networks[0]",
        ),
        ("[pool.fast.discovery]\nsource = 'dns'\nname = 'x'\nnetworks = []", "pool.fast.discovery.networks"),
        ("[pool.fast.discovery]\nsource = 'dns'\nname = 'x'\npoll_s = 0.0", "pool.fast.discovery.poll_s"),
        ("replicas = ['http://x/v1']\n[pool.fast.discovery]\nsource = 'dns'\nname = 'x'", "pool.fast.replicas"),
        ("routing = 'pass_through'\n[pool.fast.discovery]\nsource = 'dns'\nname = 'x'", "pool.fast.routing"),
        ("batch = 8\n[engine]\nname = 'vllm-server'", "pool.fast.replicas"),
        ("replicas = ['http://x/v1']\n[identity]\nenabled = true", "identity.salt_file"),
    ],
)
def test_settings_that_cannot_be_meant_name_their_field(tmp_path: Path, section: str, field: str) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(f"[pool.fast]\n{section}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(profile=path)
    assert caught.value.field == field


def test_a_directory_chooses_the_engine_and_its_token_is_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    discovery = "[pool.fast.discovery]\nsource = 'http'\nurl = 'http://x/replicas'\ntoken_file = 'token'\n"
    path.write_text(f"{discovery}[model]\ntokenizer = '{locate().tokenizer_path}'\n")
    config = load_config(profile=path)
    assert config.engine.name == "vllm-server"
    found = check_file(path)
    assert found is not None and found.field == "pool.fast.discovery.token_file"
    (tmp_path / "token").write_text("of-the-directory")
    assert check_file(path) is None


def test_replicas_choose_the_engine_and_a_tokenizer_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text("[pool.fast]\nreplicas = ['http://127.0.0.1:1/v1']\nkv_events = ['ipc:///run/events']\n")
    config = load_config(profile=path)
    assert config.engine.name == "vllm-server"
    with pytest.raises(ConfigError, match=r"model\.tokenizer"):
        prepare(config)
    one = load_config(engine="vllm-server", model="http://127.0.0.1:1/v1")
    assert one.engine.model == "http://127.0.0.1:1/v1"


def test_damaged_epochs_are_not_overlooked(tmp_path: Path) -> None:
    path = tmp_path / "epochs.json"
    assert read_epochs(path) == {}
    path.write_text('[["acme", "shop", 3]]')
    assert read_epochs(path) == {("acme", "shop"): 3}
    for text in ("{", '[["acme", 3]]', ""):
        path.write_text(text)
        with pytest.raises(EpochFileError, match="delete it"):
            read_epochs(path)


COMMAND = (sys.executable, "-m", "foretype_backend", "serve")


def flags(profile: Path, state: Path) -> tuple[str, ...]:
    """Of `foretype serve` on a profile."""
    return ("--profile", str(profile), "--port", "0", "--no-telemetry", "--state-dir", str(state))


async def test_serve_on_a_profile_completes_is_purged_and_refuses_different_models(tmp_path: Path) -> None:
    async with (
        Replica(vocabulary=TOKENIZER.vocabulary_tokens) as one,
        Replica(vocabulary=TOKENIZER.vocabulary_tokens) as two,
        Replica(vocabulary=TOKENIZER.vocabulary_tokens, model="other") as other,
    ):
        tokenizer = locate_embedder().tokenizer_path
        profile = tmp_path / "team.toml"
        model = f"[model]\ntokenizer = '{tokenizer}'\ngrammar = 'foretype-1'\n"
        profile.write_text(f"[pool.fast]\nreplicas = ['{one.url}/v1', '{two.url}/v1']\n{model}")
        async with (
            serving(*flags(profile, tmp_path / "state"), command=COMMAND) as (gateway, url),
            httpx.AsyncClient(trust_env=False, timeout=60) as http,
        ):
            answer = await http.post(f"{url}/v1/completions", json={"prompt": LINES, "max_tokens": 3})
            assert answer.status_code == 200, answer.text
            assert answer.json()["usage"]["completion_tokens"] >= 1  # tokens of no language
            purged = (await http.post(f"{url}/admin/prefix/purge", json={})).json()
            assert purged["epoch"] == 1
            assert "foretype_replica_standing" in (await http.get(f"{url}/metrics")).text
            gateway.send_signal(signal.SIGTERM)
            assert await gateway.wait() == 0
        assert read_epochs(tmp_path / "state" / "prefix" / "epochs.json") == {("default", ""): 1}
        salts = [body["cache_salt"] for body in bodies([one, two])]
        assert (
            salts.count("foretype") == 2 and len(set(salts)) == 2
        )  # each fills a hole before `ready`, under a salt of its own

        profile.write_text(f"[pool.fast]\nreplicas = ['{one.url}/v1', '{other.url}/v1']\n{model}")
        assert "different models" in await refused(*flags(profile, tmp_path / "state"), command=COMMAND)
