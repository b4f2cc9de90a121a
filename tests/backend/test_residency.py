"""Residency: what a tenant is bound to is proved from the file, and kept by a running gateway whatever is down."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.replica import Replica
from backend.running_replicas import replicas
from backend.test_gateway_process import serving
from backend.test_tenants_apart import LINES, keys_of
from backend.world import TOKENIZER_PATH
from foretype_backend.config.secret_files import make_secret
from foretype_backend.errors import FAULT_MESSAGES, Fault, NoReplicaError
from foretype_backend.fleet.routing.router import Router
from foretype_client.commands.cli import app
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

BOUND = "[residency.tenants]\nacme = ['eu']\n"
EU = "[gateway]\nregion = 'eu'\n"
FAST = "[pool.fast]\nreplicas = ['http://one.example/v1', 'http://two.example/v1']\n"
TEAM = "[identity]\nsalt_file = 'salt'\n"

OUTSIDE = {
    "no region of the gateway": (BOUND + FAST + "regions = ['eu', 'us']\n", "gateway.region"),
    "a gateway elsewhere": ("[gateway]\nregion = 'us'\n" + BOUND + FAST + "regions = ['eu', 'us']\n", "gateway.region"),
    "replicas that do not say": (EU + BOUND + FAST, "pool.fast.regions"),
    "replicas elsewhere": (EU + BOUND + FAST + "regions = ['us', 'us']\n", "pool.fast.regions"),
    "too few regions": (EU + BOUND + FAST + "regions = ['eu']\n", "pool.fast.regions"),
    "an engine elsewhere": (
        EU + BOUND + "[engine]\nname = 'openai'\nmodel = 'http://one.example/v1'\nregion = 'us'\n",
        "engine.region",
    ),
    "an engine that does not say": (
        EU + BOUND + "[engine]\nname = 'openai'\nmodel = 'http://one.example/v1'\n",
        "engine.region",
    ),
    "its Redis": (EU + BOUND + "[engine.options]\nredis_url = 'redis://far.example'\n", "engine.region"),
    "the quality pool": (EU + BOUND + "[pool.quality]\nurl = 'http://one.example/v1'\n", "pool.quality.region"),
    "the model of next edits": (
        EU + BOUND + "[pool.next_edit]\nurl = 'http://one.example/v1'\nformat = 'zeta-2.1'\ntokenizer = 't'\n",
        "pool.next_edit.region",
    ),
    "the identity store": (EU + BOUND + "[identity]\nurl = 'postgresql://db.example/f'\n", "identity.region"),
    "the telemetry store": (
        EU + BOUND + "[telemetry]\nurl = 'postgresql://db.example/f'\nregion = 'us'\n",
        "telemetry.region",
    ),
    "opted-in texts": (EU + BOUND + "[telemetry]\ntext_url = 's3://bucket'\n", "telemetry.text_region"),
    "the Redis of budgets": (EU + BOUND + "[leases]\nredis_url = 'redis://r.example'\n", "leases.region"),
    "the shared tier": (
        EU + BOUND + FAST + "regions = ['eu', 'us']\ntiers = true\nshared_tier_tenants = ['acme']\n",
        "pool.fast.tier_region",
    ),
    "what the tier hears": (
        EU + BOUND + FAST + "regions = ['eu', 'us']\nretire_url = 'redis://r.example'\n",
        "pool.fast.tier_region",
    ),
    "no region at all": ("[residency.tenants]\nacme = []\n", "residency.tenants.acme"),
    "no name of a tenant": ("[residency.tenants]\n'a b' = ['eu']\n", "residency.tenants.a b"),
    "a second tenant elsewhere": (EU + BOUND + "other = ['us']\n", "gateway.region"),
}


def findings(folder: Path, text: str) -> list[dict[str, Any]]:
    file = folder / "team.toml"
    file.write_text(text)
    result = CliRunner().invoke(app, ["config", "check", str(file), "--json"])
    return json.loads(result.stdout)["findings"]


@pytest.mark.parametrize("case", OUTSIDE)
def test_the_check_of_a_file_names_what_is_outside(tmp_path: Path, case: str) -> None:
    text, field = OUTSIDE[case]
    (found,) = findings(tmp_path, text)
    assert found["field"] == field, found
    if found["field"].endswith("region"):
        assert "acme" in found["message"] or "other" in found["message"]


def test_a_file_that_keeps_to_the_regions_passes_and_a_file_that_binds_nobody_says_nothing(tmp_path: Path) -> None:
    make_secret(tmp_path / "salt")
    model = f"[model]\ntokenizer = '{TOKENIZER_PATH}'\ngrammar = 'foretype-1'\n"
    whole = (
        EU
        + BOUND
        + model
        + FAST
        + "regions = ['us', 'eu']\nretire_url = 'redis://r.example'\ntier_region = 'eu'\n"
        + "[pool.quality]\nurl = 'http://one.example/v1'\nregion = 'eu'\n"
        + "[identity]\nurl = 'postgresql://db.example/f'\nregion = 'eu'\nsalt_file = 'salt'\n"
        + "[telemetry]\nurl = 'postgresql://db.example/f'\nregion = 'eu'\ntext_url = 's3://bucket'\ntext_region = 'eu'\n"
        + "[leases]\nredis_url = 'redis://r.example'\nregion = 'eu'\n"
    )
    assert findings(tmp_path, whole) == []
    unbound = [line for line in whole.replace(BOUND, "").splitlines() if "region" not in line]
    assert findings(tmp_path, "\n".join(unbound)) == []


@given(
    st.frozensets(st.sampled_from("abcdef"), min_size=1),
    st.frozensets(st.sampled_from("abcdef")),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100)),
    st.frozensets(st.sampled_from("abcdef")),
    st.lists(st.sampled_from("xyz"), max_size=30),
)
def test_a_router_takes_no_replica_but_those_that_it_may(
    members: frozenset[str], only: frozenset[str], cached: dict[str, int], avoid: frozenset[str], sessions: list[str]
) -> None:
    router = Router()
    router.set_replicas(members)
    for at, session in enumerate(["s", *sessions]):
        if not members & only:
            with pytest.raises(NoReplicaError):
                router.choose("acme", "shop", session, 100, cached, avoid=avoid, only=only)
            continue
        choice = router.choose("acme", "shop", session, 100, cached, avoid=avoid, only=only)
        assert choice.replica in members & only
        router.begin(choice, 100, float(at))
        router.begin(router.choose("other", "shop", session, 100, cached), 100, float(at))


async def completed(http: httpx.AsyncClient, headers: dict[str, str], text: str) -> httpx.Response:
    body = {"prompt": text, "max_tokens": 2, "stream": False}
    return await http.post("/v1/completions", json=body, headers=headers, timeout=60)


async def answered(http: httpx.AsyncClient, headers: dict[str, str], text: str) -> None:
    """Again while it is refused, as clients ask: a replica that a busy machine keeps from answering is out for a moment."""
    async with asyncio.timeout(60):
        while (answer := await completed(http, headers, text)).status_code != 200:
            assert answer.status_code == 503, answer.text
            await asyncio.sleep(0.05)


def prompts(replica: Replica) -> int:
    """How many requests of tenants it got, whose prompts are longer than any probe's of so few blocks."""
    return sum(body["max_tokens"] == 2 for body in replica.bodies)


@pytest.mark.parametrize("bound", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_tenant_whose_replicas_are_all_down_is_refused_and_asks_no_other(tmp_path: Path, bound: bool) -> None:
    """The control: a file that binds nobody sends the same tenant to the other region."""
    make_secret(tmp_path / "salt")
    profile = tmp_path / "team.toml"
    acme, free = await keys_of(tmp_path, "acme", "free")
    command = (sys.executable, "-m", "foretype_backend", "serve", "--port", "0", "--no-telemetry")
    arguments = ("--profile", str(profile), "--state-dir", str(tmp_path))
    async with contextlib.AsyncExitStack() as stack:
        inside, outside = await stack.enter_async_context(replicas(2, block=128))
        urls = ", ".join(f"'{one.url}/v1'" for one in (inside, outside))
        profile.write_text(
            f"{EU}[model]\ntokenizer = '{TOKENIZER_PATH}'\n[limits]\nretry_wait_ms = 200\n"
            f"[pool.fast]\nreplicas = [{urls}]\nregions = ['eu', 'us']\ncheck_every_s = 0.2\nbatch = 1\n"
            f"[identity]\nurl = '{tmp_path / 'i.db'}'\npoll_ms = 20\nsalt_file = 'salt'\n{BOUND * bound}"
        )
        _, url = await stack.enter_async_context(serving(*arguments, command=command))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, trust_env=False, timeout=60))
        await asyncio.gather(*(answered(http, acme, f"{at} {LINES}") for at in range(12)))
        assert (prompts(outside) == 0) is bound, "twelve at once overflow to where they may"
        await asyncio.gather(*(answered(http, free, f"{at} {LINES}") for at in range(12)))
        assert prompts(outside) > 0

        await inside.stop()
        before = prompts(outside)
        for at in range(4):
            if not bound:
                await answered(http, acme, f"again {at} {LINES}")
                continue
            answer = await completed(http, acme, f"again {at} {LINES}")
            assert answer.status_code == 503, answer.text
            assert at < 3 or answer.json()["error"]["message"] == FAULT_MESSAGES[Fault.REGION]
        assert (prompts(outside) == before) is bound
        await answered(http, free, LINES)
        if bound:
            await inside.start()
            await answered(http, acme, LINES)
            assert prompts(outside) == before + 1
