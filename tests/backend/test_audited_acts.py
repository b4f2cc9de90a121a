"""Every administrative command and HTTP operation leaves an entry in the audit log: one that is new has to be named here."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.commands import run
from backend.identity_world import NOW_MS, added_key
from backend.replica import Replica
from backend.test_gateway_process import serving
from backend.test_text_keys import filled
from backend.world import TOKENIZER, TOKENIZER_PATH
from foretype_backend.config.secret_files import make_secret
from foretype_backend.identity.directory import Scope, Tenant
from foretype_backend.identity.store import IdentityStore
from foretype_backend.start.openapi import document
from foretype_client.commands.cli import app
from typer.main import get_command

LABORATORY = ("bench", "eval", "models", "use", "index", "search", "fleet")
"""Commands about models, folders of one's own, and replicas on Ray, which has a log of its own: none administers a gateway."""
STORES = {"store", "profile", "gateway", "token_file", "state_dir"}
"""Options of commands that reach a gateway or its stores."""

USERS = {"complete", "demo", "doctor", "explain", "lsp", "playground", "quickstart", "serve"}
"""What people and editors start, who administer nothing by it."""
READS = {
    "audit list",
    "audit verify",
    "experiment status",
    "experiment verdict",
    "keys list",
    "prefix show",
    "privacy show",  # counts, never text
    "report",
    "rights list",
    "status",
    "tenants list",
    "usage",
}
OVER_HTTP = {"prefix purge": "POST /admin/prefix/purge"}

ACTS: dict[str, tuple[list[str], str]] = {
    "tenants add": (["acme"], "tenant.add"),
    "tenants set": (["acme", "--weight", "2"], "tenant.set"),
    "tenants add-team": (["acme", "web"], "team.add"),
    "tenants add-user": (["acme", "ann", "--team", "web"], "user.put"),
    "tenants purge": (["acme"], "purge"),
    "keys create": (["--tenant", "acme"], "key.create"),
    "keys rotate": (["KEY"], "key.rotate"),
    "keys revoke": (["KEY"], "key.revoke"),
    "rights grant": (["acme", "shop", "web"], "rights.grant"),
    "rights revoke": (["acme", "shop", "web"], "rights.revoke"),
    "rights open": (["acme", "shop"], "rights.open"),
    "experiment create": (["budgets", "--set", "budgets.prompt_tokens=1500"], "experiment.create"),
    "experiment aa": (["same"], "experiment.create"),
    "experiment start": (["budgets"], "experiment.start"),
    "experiment stop": (["budgets"], "experiment.stop"),
    "privacy set": (["--tenant", "acme", "--train"], "privacy.set"),
    "privacy rotate-key": ([], "privacy.rotate_key"),
    "privacy export": (["OUT"], "privacy.export"),
    "privacy delete": (["--tenant", "acme"], "privacy.delete"),
    "audit export": (["OUT"], "audit.export"),
}
"""In this order, with their arguments; and what the log says."""


def leaves(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Commands without sub-commands, as click has them."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for each in command.list_commands(None):
        if name or each not in LABORATORY:
            yield from leaves(command.get_command(None, each), f"{name} {each}".strip())


def test_every_command_that_reaches_a_store_is_known_to_act_or_to_read() -> None:
    found = {
        name
        for name, command in leaves(get_command(app))
        if STORES & {parameter.name for parameter in command.params} and name.partition(" ")[0] not in USERS
    }
    assert found == READS | set(ACTS) | set(OVER_HTTP)


async def test_every_command_that_acts_leaves_its_entry(tmp_path: Path) -> None:
    telemetry, _, _ = await filled(tmp_path / "telemetry", 3)
    await telemetry.close()
    (tmp_path / "telemetry" / "key").write_bytes(b"m" * 32)
    store = ["--store", str(tmp_path / "i.db")]
    profile = tmp_path / "team.toml"
    profile.write_text(f"[identity]\nenabled = true\nurl = '{tmp_path / 'i.db'}'\n[engine]\nname = 'scripted'\n")
    own = ["--profile", str(profile), "--state-dir", str(tmp_path)]
    key = ""
    for at, (name, (given, action)) in enumerate(ACTS.items(), 1):
        arguments = [one.replace("OUT", str(tmp_path / f"out-{at}")).replace("KEY", key) for one in given]
        made = await asyncio.to_thread(run, *name.split(), *arguments, *(own if name.startswith("privacy") else store))
        key = made.get("id", key) if name == "keys create" else key
        entries = await asyncio.to_thread(run, "audit", "list", *store)
        assert (len(entries), entries[-1]["action"]) == (at, action), name
        assert "@" in entries[-1]["actor"]
    verdict = await asyncio.to_thread(run, "audit", "verify", *store)
    assert (verdict["entries"], verdict["broken_at"], verdict["sealed"]) == (len(ACTS), None, True)


OPERATIONS = {"POST /admin/prefix/purge": ({"repository": "shop"}, "purge")}
"""HTTP operations of administrators that change something, with a body each."""


def test_every_http_operation_of_operators_is_known_to_act_or_reads() -> None:
    found = {
        f"{method.upper()} {path}"
        for path, operations in document(TOKENIZER)["paths"].items()
        for method, operation in operations.items()
        if method != "get" and ("operators" in operation["tags"] or path.startswith("/admin"))
    }
    assert found == set(OPERATIONS)


@pytest.mark.parametrize("identities", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_every_http_operation_that_acts_leaves_its_entry(tmp_path: Path, identities: bool) -> None:
    replica = Replica(vocabulary=TOKENIZER.vocabulary_tokens)
    await replica.start()
    make_secret(tmp_path / "salt")
    profile = tmp_path / "team.toml"
    url = tmp_path / "identity" / "identity.db"
    identity = f"url = '{url}'\npoll_ms = 20\n" if identities else ""
    profile.write_text(
        f"[model]\ntokenizer = '{TOKENIZER_PATH}'\n[pool.fast]\nreplicas = ['{replica.url}/v1']\n"
        f"[identity]\n{identity}salt_file = 'salt'\n"
    )
    headers, actor = {}, "gateway"
    if identities:
        store = await IdentityStore.open(str(url))
        await store.add_tenant(Tenant(name="acme"), NOW_MS)
        key = await added_key(store, scopes=frozenset(Scope))
        await store.close()
        headers, actor = {"Authorization": f"Bearer {key.text}"}, f"key:{key.id}"
    command = (sys.executable, "-m", "foretype_backend", "serve", "--port", "0", "--no-telemetry")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(replica.stop)
        _, address = await stack.enter_async_context(
            serving("--profile", str(profile), "--state-dir", str(tmp_path), command=command)
        )
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=address, trust_env=False, headers=headers, timeout=60)
        )
        for name, (body, action) in OPERATIONS.items():
            method, _, path = name.partition(" ")
            answer = await http.request(method, path, json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            (*_, last) = await asyncio.to_thread(run, "audit", "list", "--store", str(url), "--profile", str(profile))
            assert (last["action"], last["subject"], last["actor"]) == (action, "shop", actor)
        # What cannot be written down is not done.
        before = (await http.post("/admin/prefix/purge", json={"repository": "shop"}, timeout=20)).json()["epoch"]
        broken = await IdentityStore.open(str(url))
        async with broken.writing() as connection:
            await connection.exec_driver_sql("UPDATE id_state SET name = 'gone' WHERE name = 'audit'")
        refused = await http.post("/admin/prefix/purge", json={"repository": "shop"}, timeout=20)
        assert refused.status_code == 503 and "audit log" in refused.text
        async with broken.writing() as connection:
            await connection.exec_driver_sql("UPDATE id_state SET name = 'audit' WHERE name = 'gone'")
        await broken.close()
        again = await http.post("/admin/prefix/purge", json={"repository": "shop"}, timeout=20)
        assert again.json()["epoch"] == before + 1
