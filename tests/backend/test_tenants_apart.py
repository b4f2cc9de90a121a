"""A gateway of tenants, as a process, before servers that keep them apart, that do not, and that do not say."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.identity_world import NOW_MS, added_key
from backend.replica import Replica
from backend.running_replicas import replicas
from backend.test_gateway_process import serving
from backend.world import TOKENIZER_PATH
from foretype_backend.__main__ import main
from foretype_backend.config.load import load_config
from foretype_backend.config.secret_files import make_secret
from foretype_backend.config.tenants import check_tenants
from foretype_backend.errors import ConfigError
from foretype_backend.identity.directory import Tenant
from foretype_backend.identity.store import IdentityStore
from foretype_backend.operations import logs
from typer.testing import CliRunner

LINES = "".join(f"value_{at} = compute({at}, 'some text that makes tokens')\n" for at in range(40))
SERVE = (sys.executable, "-m", "foretype_backend", "serve", "--port", "0", "--no-telemetry")
POOLS = ("openai", "replicas", "chat", "block")


def profile_of(folder: Path, pool: str, replica: Replica, good: Replica, *, identity: bool = True) -> Path:
    """`pool` reaches `replica`; where it is not the fast one, that is the `good` one."""
    url, fast = f"{replica.url}/v1", f"{(good if pool in ('chat', 'block') else replica).url}/v1"
    tables = [f"[model]\ntokenizer = {json.dumps(str(TOKENIZER_PATH))}"]
    if pool == "replicas":
        tables.append(f'[pool.fast]\nreplicas = ["{fast}"]\ncheck_every_s = 0.5')
    else:
        tables.append(f'[engine]\nname = "openai"\nmodel = "{fast}"')
    if pool == "chat":
        tables.append(f'[pool.quality]\nurl = "{url}"')
    if pool == "block":
        named = f"tokenizer = {json.dumps(str(TOKENIZER_PATH))}\n"
        tables.append(f'[pool.quality]\nurl = "{url}"\n{named}grammar = "foretype-1"')
    if identity:
        tables.append(
            f"[identity]\nurl = {json.dumps(str(folder / 'i.db'))}\npoll_ms = 20\nsalt_file = {json.dumps(str(folder / 'salt'))}"
        )
        make_secret(folder / "salt")
    path = folder / "team.toml"
    path.write_text("\n".join(tables))
    return path


@contextlib.asynccontextmanager
async def two_replicas(**wrong: str) -> AsyncGenerator[tuple[Replica, Replica]]:
    """One of which so much is wrong, and a good one. Blocks are so long that a short prompt fills none."""
    async with replicas(2, block=128) as (one, good):
        for name, value in wrong.items():
            setattr(one, name, value)
        yield one, good


async def keys_of(folder: Path, *tenants: str) -> list[dict[str, str]]:
    store = await IdentityStore.open(str(folder / "i.db"))
    headers: list[dict[str, str]] = []
    for name in tenants:
        await store.add_tenant(Tenant(name=name), NOW_MS)
        key = await added_key(store, name)
        headers.append({"Authorization": f"Bearer {key.text}"})
    await store.close()
    return headers


async def refused(profile: Path, folder: Path) -> str:
    """In this process, whose other thread has the servers: a start that is refused is the same in one of its own."""
    arguments = ("serve", "--port", "0", "--no-telemetry", "--profile", str(profile), "--state-dir", str(folder))
    done = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.output[-2000:]
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("pool", "wrong", "told"),
    [
        *((pool, {"salting": "ignores"}, "does not keep tenants apart. Put `vllm serve` there") for pool in POOLS),
        ("openai", {"salting": "refuses"}, "unknown field cache_salt; so it cannot keep tenants apart"),
        ("chat", {"counting": "prompt"}, "Start `vllm serve` with --enable-prefix-caching and --enable-prompt-tokens-details"),
        ("openai", {"counting": "nothing"}, "reports no token counts"),
    ],
)  # fmt: skip
async def test_a_server_that_is_not_seen_to_keep_tenants_apart_ends_the_start(
    tmp_path: Path, pool: str, wrong: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "configure", lambda level: None)  # this process' loggers are pytest's
    field = {"openai": "engine.model", "replicas": "pool.fast.replicas"}.get(pool, "pool.quality.url")
    async with two_replicas(**wrong) as (replica, good):
        error = await refused(profile_of(tmp_path, pool, replica, good), tmp_path)
        assert error.startswith(f"foretype serve: {field}: ") and told in error


async def asked(http: httpx.AsyncClient, headers: dict[str, str], *, chat: bool = False) -> tuple[int, int]:
    """Status, and the cached tokens that the answer reports."""
    body: dict[str, Any] = {"max_tokens": 2, "stream": False}
    body |= {"messages": [{"role": "user", "content": LINES}]} if chat else {"prompt": LINES}
    answer = await http.post(f"/v1/{'chat/' * chat}completions", json=body, headers=headers)
    usage = answer.json().get("usage") or {}
    return answer.status_code, (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


@contextlib.asynccontextmanager
async def served(profile: Path, folder: Path) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of a gateway's process."""
    arguments = ("--profile", str(profile), "--state-dir", str(folder))
    async with (
        serving(*arguments, command=SERVE) as (_, url),
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http,
    ):
        yield http


@pytest.mark.parametrize("pool", ["openai", "replicas", "chat"])
async def test_tenants_of_a_server_that_salts_are_served_and_learn_of_their_own_cache_alone(
    tmp_path: Path, pool: str
) -> None:
    async with two_replicas() as (replica, good):
        ann, bob = await keys_of(tmp_path, "ann", "bob")
        async with served(profile_of(tmp_path, pool, replica, good), tmp_path) as http:
            assert len(replica.probed) + (pool != "chat") == len(replica.bodies) <= 14
            assert (
                pool == "chat" or replica.bodies[-1]["cache_salt"] not in replica.probed
            )  # the hole of before `ready`
            assert sum(len(body["prompt"]) for body in replica.bodies) < 6_000
            replica.bodies.clear()
            chat = pool == "chat"
            assert await asked(http, ann, chat=chat) == (200, 0)
            status, own = await asked(http, ann, chat=chat)
            assert status == 200 and own > 128
            assert await asked(http, bob, chat=chat) == (200, 0)
            assert len({body["cache_salt"] for body in replica.bodies}) == 2


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["openai", "replicas", "chat"])
async def test_a_server_that_comes_back_without_salts_gets_no_tenant_until_it_has_them_again(
    tmp_path: Path, pool: str
) -> None:
    async with two_replicas() as (replica, good):
        (ann,) = await keys_of(tmp_path, "ann")
        async with served(profile_of(tmp_path, pool, replica, good), tmp_path) as http:
            chat = pool == "chat"
            assert await asked(http, ann, chat=chat) == (200, 0)
            await replica.stop(keeps_port=True)
            assert (await asked(http, ann, chat=chat))[0] == 503
            replica.salting = "ignores"
            await replica.start()
            replica.bodies.clear()
            for _ in range(3):
                assert (await asked(http, ann, chat=chat))[0] == 503
            assert LINES not in str(replica.bodies) and all(body["max_tokens"] == 1 for body in replica.bodies)
            await replica.stop(keeps_port=True)
            replica.salting = "keeps"
            await replica.start()
            async with asyncio.timeout(60):
                while (await asked(http, ann, chat=chat))[0] != 200:  # noqa: ASYNC110  the gateway asks the server again after a pause
                    await asyncio.sleep(0.2)


@pytest.mark.slow
async def test_a_server_of_blocks_that_has_no_chat_is_good_for_blocks(tmp_path: Path) -> None:
    async with two_replicas() as (replica, good):
        (ann,) = await keys_of(tmp_path, "ann")
        replica.chats = False
        profile = profile_of(tmp_path, "block", replica, good)
        async with served(profile, tmp_path) as http:
            assert (await asked(http, ann, chat=True))[0] == 503
            assert (await asked(http, ann))[0] == 200
            assert len(set(replica.probed)) == 3  # a salt of its own and two others: its blocks were proved


async def test_a_gateway_of_one_asks_nothing_about_salts(tmp_path: Path) -> None:
    async with two_replicas(salting="refuses", counting="nothing") as (replica, good):
        profile = profile_of(tmp_path, "chat", replica, good, identity=False)
        async with served(profile, tmp_path) as http:
            assert replica.probed == good.probed == []
            assert await asked(http, {}) == await asked(http, {}, chat=True) == (200, 0)


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ('[engine]\nname = "embedded"', "identity.enabled"),
        ('[engine]\nname = "vllm"\nmodel = "m"\noptions = { shared = false }', "engine.options.shared"),
    ],
)
def test_what_no_server_is_needed_for_is_told_without_one(tmp_path: Path, lines: str, field: str) -> None:
    path = tmp_path / "team.toml"
    path.write_text(f"{lines}\n[identity]\nenabled = true\n")
    with pytest.raises(ConfigError) as told:
        check_tenants(load_config(profile=path))
    assert told.value.field == field
    path.write_text(lines)
    check_tenants(load_config(profile=path))
