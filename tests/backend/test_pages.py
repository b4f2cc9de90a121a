"""The pages of operators over their socket: nothing for strangers, a tenant's administrator sees that tenant, and what is wrong is said."""

import contextlib
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
from backend.identity_world import NOW_MS, identity_of, minted, record, salts
from backend.telemetry_world import NOON_MS, accept, display, opportunity
from backend.world import TOKEN, gateway
from foretype_backend.admission.metering import UsageKey, UsageRow
from foretype_backend.config.settings import IdentityConfig, PricesConfig, TelemetryConfig
from foretype_backend.identity.directory import Scope, Tenant, User
from foretype_backend.telemetry.aggregate import refresh
from foretype_backend.telemetry.intake import Sender, read
from foretype_backend.telemetry.store import Store

PARTS = ("status", "fleet", "experiments", "reports", "keys", "usage")


async def fill(path: Path) -> None:
    """A week of two tenants of eight people each; one team has a name that is HTML."""
    store = await Store.open(str(path))
    for tenant, characters in (("acme", 5), ("rival", 7777)):
        for number in range(8):
            events = (opportunity(1), display(2, "a", 900.0), accept(3, "a", characters))
            sender = Sender("c", team="<i>web</i>", user=f"u{number}", tenant=tenant)
            await store.write(read(sender, events, received_ms=NOON_MS).rows)
    await refresh(store, {("acme", "2026-09-22"), ("rival", "2026-09-22")})
    await store.close()


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[tuple[httpx.AsyncClient, dict[str, str]]]:
    """A gateway with two tenants, and a key of each kind."""
    await fill(folder / "events.db")
    async with identity_of(folder / "i.db") as (identity, store):
        await store.add_tenant(Tenant(name="rival"), NOW_MS)
        await store.put_user(User(tenant="rival", name="rita"))
        keys = {name: minted() for name in ("admin", "coder", "rival")}
        scopes = frozenset({Scope.ADMIN})
        await store.add_key(keys["admin"], record(keys["admin"], scopes=scopes), NOW_MS)
        await store.add_key(keys["coder"], record(keys["coder"], user="ann"), NOW_MS)
        await store.add_key(keys["rival"], record(keys["rival"], "rival", user="rita", scopes=scopes), NOW_MS)
        used = UsageRow(requests=3, prompt_tokens=4321, generated_tokens=5)
        for tenant, team in (("acme", "<b>red</b>"), ("rival", "")):
            key = UsageKey(tenant=tenant, team=team, user="", class_="interactive", day="2026-09-22")
            await store.add_usage(f"g-{tenant}", 1, [(key, used)], NOW_MS)
        await identity.watch.look()
        sections = {
            "telemetry": TelemetryConfig(url=str(folder / "events.db")),
            "identity": IdentityConfig(url=str(folder / "i.db")),
            "prices": PricesConfig(generated_per_million=2.0),
        }
        async with (
            gateway(token=TOKEN, identity=identity, salts=salts(), sections=sections) as world,
            world.http() as client,
        ):
            yield client, {"owner": TOKEN} | {name: key.text for name, key in keys.items()}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_strangers_see_an_empty_page_and_a_cookie_alone_opens_no_part(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, keys):
        for path in ("/admin", "/admin/app.js", "/admin/style.css"):
            got = await client.get(path)
            policy = got.headers["content-security-policy"]
            assert got.status_code == 200 and "default-src 'none'" in policy and "unsafe" not in policy
            assert not re.search(r"https?://|@import", got.text), "everything comes from this gateway"
        for part in PARTS:
            assert (await client.get(f"/admin/parts/{part}")).status_code == 401
            assert (await client.get(f"/admin/parts/{part}", headers=bearer(keys["coder"]))).status_code == 403
        entered = await client.post("/playground/login", json={"token": keys["admin"]})
        assert (await client.get("/admin/parts/keys")).status_code == 401  # what another site's link would send
        half = {"x-foretype-page": entered.json()["page"]}
        got = await client.get("/admin/parts/keys", headers=half)
        assert got.status_code == 200 and got.headers["cache-control"] == "no-store"
        elsewhere = {**half, "Origin": "http://localhost:3000"}
        assert (await client.get("/admin/parts/keys", headers=elsewhere)).status_code == 403


async def test_an_administrator_of_a_tenant_sees_that_tenant_and_the_owner_all(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, keys):
        for part in PARTS:
            query = "?of=2026-W39&tenant=rival&month=2026-09"
            own = (await client.get(f"/admin/parts/{part}{query}", headers=bearer(keys["admin"]))).text
            assert "rival" not in own and "rita" not in own and "7777" not in own.replace(",", ""), part
        month = "?month=2026-09"
        assert (
            "acme / &lt;b&gt;red"
            in (await client.get(f"/admin/parts/usage{month}", headers=bearer(keys["admin"]))).text
        )
        both = (await client.get(f"/admin/parts/usage{month}", headers=bearer(keys["owner"]))).text
        assert "acme" in both and "rival" in both
        listed = (await client.get("/admin/parts/keys", headers=bearer(keys["owner"]))).text
        assert "rita" in listed and not any(key.rpartition("_")[2] in listed for key in keys.values())
        theirs = await client.get("/admin/parts/reports?of=2026-W39&tenant=rival", headers=bearer(keys["owner"]))
        assert "tenant rival" in theirs.text and "8 users" in theirs.text


async def test_a_report_is_the_commands_and_names_are_text(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, keys):
        got = await client.get("/admin/parts/reports?of=2026-W39", headers=bearer(keys["admin"]))
        assert got.status_code == 200 and "2026-W39, tenant acme" in got.text and "8 suggestions read" in got.text
        assert "&lt;i&gt;web" in got.text and "<i>web" not in got.text
        team = await client.get("/admin/parts/reports?of=2026-W39&team=nobody", headers=bearer(keys["admin"]))
        assert "Not shown: fewer than 5 users" in team.text
        script = '?of="><script>alert(1)</script>'
        bad = await client.get(f"/admin/parts/reports{script}", headers=bearer(keys["admin"]))
        assert bad.status_code == 400 and "is no week; write it as 2026-W47" in bad.text.replace("&#x27;", "'")
        assert "<script" not in bad.text


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("usage?month=2026-13", 400, "is no month; write it as 2026-09"),
        ("reports?of=2199-W01", 400, "is reported when it is over"),
    ],
)
async def test_what_is_asked_for_wrongly_is_said_on_the_page(tmp_path: Path, path: str, status: int, told: str) -> None:
    async with served(tmp_path) as (client, keys):
        got = await client.get(f"/admin/parts/{path}", headers=bearer(keys["admin"]))
        assert got.status_code == status and told in got.text and 'role="alert"' in got.text


async def test_a_gateway_of_ones_own_has_pages_too_and_says_what_it_has_not(tmp_path: Path) -> None:
    sections = {"state_dir": tmp_path}
    async with gateway(sections=sections) as world, world.http() as client:
        status = await client.get("/admin/parts/status")
        assert status.status_code == 200 and "scripted" in status.text and "running / slots" in status.text
        assert "one replica" in (await client.get("/admin/parts/fleet")).text
        assert "knows no tenants" in (await client.get("/admin/parts/keys")).text
        none = await client.get("/admin/parts/reports")
        assert none.status_code == 503 and "no gateway has kept anything in it" in none.text
        assert not (tmp_path / "telemetry").exists(), "asking makes no store"
