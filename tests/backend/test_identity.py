"""Tenants, users, keys and bearer tokens: decisions, the store, the commands, and a gateway that follows them."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import jwt
import pytest
from backend.commands import run
from backend.identity_world import NOW_MS, Clock, added_key, identity_of, minted, record, salts
from backend.world import gateway, until
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from foretype_backend.admission.limits import Budget
from foretype_backend.admission.metering import UsageKey, UsageRow
from foretype_backend.config.settings import OidcConfig
from foretype_backend.doors.auth import CLOSE_CREDENTIALS
from foretype_backend.errors import EntryError, StoreError
from foretype_backend.identity.directory import Denial, Directory, KeyRecord, Principal, Scope, Tenant, User
from foretype_backend.identity.keys import ApiKey, matches, mint, parse, redacted
from foretype_backend.identity.schema import flushes, metadata
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.store_purges import Purges
from foretype_backend.identity.store_watch import JwksWatch
from foretype_backend.identity.tokens import TokenVerifier
from foretype_client.commands.cli import app
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import inspect, select
from typer.testing import CliRunner


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[IdentityStore]:
    if request.param == "sqlite":
        url = str(tmp_path / "identity.db")
    else:
        url = request.getfixturevalue("postgres_url")
    opened = await IdentityStore.open(url)
    yield opened
    async with opened.engine.begin() as connection:
        names = [*metadata.tables, "id_alembic_version"]
        for name in names:
            await connection.exec_driver_sql(f"DROP TABLE {name}")
    await opened.close()


def test_a_key_is_told_by_its_form_and_shown_without_its_secret() -> None:
    key = mint(lambda size: b"\x07" * size)
    assert key.text == "ft_" + "07" * 6 + "_" + "07" * 32
    assert parse(key.text) == key
    assert matches(key, key.hash)
    assert not matches(ApiKey(key.id, "0" * 64), key.hash)
    assert key.secret not in repr(key) + redacted(key.text)
    assert redacted("hunter2") == "…"


@given(st.text(max_size=100) | st.from_regex(r"ft_[0-9a-f]{12}_[0-9a-f]{64}.?", fullmatch=True))
def test_any_text_is_a_key_or_is_none(text: str) -> None:
    key = parse(text)
    assert key is None or key.text == text


def test_a_directory_says_why_a_key_is_not_taken() -> None:
    good, revoked, expired, off, gone = (minted() for _ in range(5))
    directory = Directory(
        [Tenant(name="acme"), Tenant(name="off", enabled=False)],
        [User(tenant="acme", name="ann", team="web"), User(tenant="acme", name="bob", enabled=False)],
        [
            record(good, user="ann"),
            record(revoked, revoked_ms=NOW_MS),
            record(expired, expires_ms=NOW_MS),
            record(off, "off"),
            record(gone, user="bob"),
        ],
    )
    found = directory.of_key(good, NOW_MS)
    assert isinstance(found, Principal)
    assert (found.tenant, found.team, found.user) == ("acme", "web", "ann")
    assert directory.still(found, NOW_MS) is None
    assert Directory([Tenant(name="acme")]).still(found, NOW_MS) is Denial.UNKNOWN
    denials = {directory.of_key(key, NOW_MS) for key in (revoked, expired, off, gone)}
    assert denials == {Denial.REVOKED, Denial.EXPIRED, Denial.DISABLED}
    assert directory.of_key(ApiKey(good.id, "f" * 64), NOW_MS) is Denial.WRONG
    assert directory.of_key(minted(), NOW_MS) is Denial.UNKNOWN
    assert isinstance(directory.of_key(expired, NOW_MS - 1), Principal)


async def test_tables_are_those_that_migrations_make(store: IdentityStore) -> None:
    def columns(connection: Any) -> dict[str, set[tuple[str, bool]]]:
        found = inspect(connection)
        return {name: {(c["name"], bool(c["nullable"])) for c in found.get_columns(name)} for name in metadata.tables}

    async with store.engine.connect() as connection:
        made = await connection.run_sync(columns)
    assert made == {
        name: {(column.name, bool(column.nullable)) for column in table.columns}
        for name, table in metadata.tables.items()
    }


async def test_every_change_of_who_may_ask_moves_the_version(store: IdentityStore) -> None:
    key, successor = minted(), minted()
    budget = {"tenant": Budget(tokens_per_s=5, burst_tokens=9)}
    versions = [await store.version()]
    await store.add_tenant(Tenant(name="acme", weight=2.0, budgets=budget), NOW_MS)
    versions.append(await store.version())
    await store.add_team("acme", "web")
    await store.put_user(User(tenant="acme", name="ann", team="web"))
    versions.append(await store.version())
    await store.add_key(key, record(key, user="ann", scopes=frozenset({Scope.COMPLETE})), NOW_MS)
    versions.append(await store.version())
    rotated = await store.rotate_key(key.id, successor, NOW_MS, overlap_ms=1000)
    versions.append(await store.version())
    assert versions == sorted(set(versions))
    directory = await store.snapshot()
    assert directory.tenants["acme"].budgets == budget
    assert rotated.scopes == {Scope.COMPLETE}
    both = [directory.of_key(one, NOW_MS + 999) for one in (key, successor)]
    assert all(isinstance(one, Principal) for one in both)
    assert directory.of_key(key, NOW_MS + 1000) is Denial.EXPIRED
    with pytest.raises(EntryError, match="rotated already"):
        await store.rotate_key(key.id, minted(), NOW_MS, 0)
    await store.revoke_key(successor.id, NOW_MS)
    assert (await store.snapshot()).of_key(successor, NOW_MS) is Denial.REVOKED


async def test_what_is_not_there_is_named_with_its_remedy(store: IdentityStore) -> None:
    key = minted()
    with pytest.raises(EntryError, match="no tenant 'acme'; add it with `foretype tenants add acme`"):
        await store.add_key(key, record(key), NOW_MS)
    await store.add_tenant(Tenant(name="acme"), NOW_MS)
    with pytest.raises(EntryError, match="no user 'ann'"):
        await store.add_key(key, record(key, user="ann"), NOW_MS)
    with pytest.raises(EntryError, match="no team 'web'"):
        await store.put_user(User(tenant="acme", name="ann", team="web"))
    with pytest.raises(EntryError, match="exists already"):
        await store.add_tenant(Tenant(name="acme"), NOW_MS)
    with pytest.raises(EntryError, match="no key"):
        await store.revoke_key("nothing", NOW_MS)


async def test_a_batch_of_usage_that_is_sent_twice_counts_once(store: IdentityStore) -> None:
    of = UsageKey("acme", "", "ann", "interactive", "2026-09-22")
    row = UsageRow(requests=1, prompt_tokens=10, cached_tokens=4, generated_tokens=3, wasted_tokens=1, engine_us=7)
    assert await store.add_usage("g1", 1, [(of, row)], NOW_MS)
    assert not await store.add_usage("g1", 1, [(of, row)], NOW_MS)
    assert await store.add_usage("g2", 1, [(of, row), (of._replace(day="2026-10-01"), row)], NOW_MS)
    assert await store.usage_of("2026-09") == [(("acme", "", "ann", "interactive"), row.plus(row))]


async def test_batches_of_processes_that_are_long_gone_are_forgotten(store: IdentityStore) -> None:
    day_ms = 86_400_000
    await store.add_usage("g1", 1, [], NOW_MS)
    await store.add_usage("g2", 1, [], NOW_MS + 20 * day_ms)
    await store.add_usage("g3", 1, [], NOW_MS + 31 * day_ms)
    async with store.reading() as connection:
        kept = {row.gateway for row in await connection.execute(select(flushes))}
    assert kept == {"g2", "g3"}


OIDC = OidcConfig(issuer="https://issuer.test", audience="foretype", team_claim="group")
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def jwk(private: Any, kid: str, algorithm: str) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if algorithm.startswith("RS") else jwt.algorithms.ECAlgorithm
    return json.loads(kind.to_jwk(private.public_key())) | {"kid": kid, "alg": algorithm, "use": "sig"}


def bearer(private: Any = RSA_KEY, kid: str = "r", algorithm: str = "RS256", **claims: Any) -> str:
    base = {"iss": OIDC.issuer, "aud": OIDC.audience, "sub": "ann", "tenant": "acme", "exp": NOW_MS / 1000 + 60}
    given = {name: value for name, value in (base | claims).items() if value is not None}
    return jwt.encode(given, private, algorithm=algorithm, headers={"kid": kid})


def verifier() -> TokenVerifier:
    made = TokenVerifier(OIDC)
    made.use({"keys": [jwk(RSA_KEY, "r", "RS256"), jwk(EC_KEY, "e", "ES256"), {"kty": "oct", "k": "c2VjcmV0"}]})
    return made


DIRECTORY = Directory([Tenant(name="acme")])


def test_a_bearer_token_names_tenant_team_user_and_scopes() -> None:
    tokens = verifier()
    token = bearer(group="web", scope="openid foretype:chat")
    found = tokens.principal(token, DIRECTORY, NOW_MS / 1000)
    assert isinstance(found, Principal)
    assert (found.tenant, found.team, found.user, found.scopes) == ("acme", "web", "ann", {Scope.CHAT})
    assert token not in found.credential
    assert isinstance(tokens.principal(bearer(EC_KEY, "e", "ES256"), DIRECTORY, NOW_MS / 1000), Principal)
    assert tokens.principal(token, DIRECTORY, NOW_MS / 1000 + 91) is Denial.EXPIRED


@pytest.mark.parametrize(
    "token",
    [
        bearer(iss="https://other.test"),
        bearer(aud="other"),
        bearer(exp=None),
        bearer(exp="soon"),
        bearer(exp=10**400),
        bearer(exp=float("inf")),
        bearer(sub=None),
        bearer(tenant=7),
        bearer(tenant="a b"),
        bearer(sub="ann\0"),  # PostgreSQL stores no such text, so that a whole batch of usage would wait for ever
        bearer(sub="\ud800"),
        bearer(nbf=NOW_MS / 1000 + 100),
        bearer(EC_KEY, "r", "ES256"),
        bearer(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        bearer("x" * 32, "r", "HS256"),
        jwt.encode({"sub": "ann"}, "", algorithm="none"),
        "a.b.c",
        "é",
        "x" * 20_000,
    ],
)
def test_a_forged_or_foreign_token_is_refused(token: str) -> None:
    assert verifier().principal(token, DIRECTORY, NOW_MS / 1000) is Denial.BAD_TOKEN


def test_a_token_of_an_unknown_tenant_is_refused_and_an_unknown_key_asks_for_a_fetch() -> None:
    tokens = verifier()
    assert tokens.principal(bearer(tenant="other"), DIRECTORY, NOW_MS / 1000) is Denial.UNKNOWN
    assert not tokens.unknown_kid
    assert tokens.principal(bearer(kid="new"), DIRECTORY, NOW_MS / 1000) is Denial.BAD_TOKEN
    assert tokens.unknown_kid
    assert TokenVerifier(OIDC).principal(bearer(), DIRECTORY, NOW_MS / 1000) is Denial.NO_KEYS


async def test_an_issuer_that_goes_away_leaves_the_former_keys() -> None:
    tokens = TokenVerifier(OIDC)
    answers: list[Any] = [{"keys": [jwk(RSA_KEY, "r", "RS256")]}, OSError("away"), {"keys": []}, {"keys": 7}]

    async def fetch() -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watch = JwksWatch(tokens, fetch, every_s=1000)
    assert [await watch.refresh() for _ in range(4)] == [True, False, False, False]
    assert isinstance(tokens.principal(bearer(), DIRECTORY, NOW_MS / 1000), Principal)


async def test_an_issuer_that_is_away_at_the_start_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretype_backend.identity.store_watch._JWKS_LOOK_S", 0.001)
    monkeypatch.setattr("foretype_backend.identity.store_watch._JWKS_PAUSE_S", 0.002)
    tokens, away = TokenVerifier(OIDC), 2

    async def fetch() -> dict[str, Any]:
        nonlocal away
        away -= 1
        if away >= 0:
            raise OSError("away")
        return {"keys": [jwk(RSA_KEY, "r", "RS256")]}

    watch = JwksWatch(tokens, fetch, every_s=1000)
    await watch.start()
    assert tokens.principal(bearer(), DIRECTORY, NOW_MS / 1000) is Denial.NO_KEYS
    await until(lambda: isinstance(tokens.principal(bearer(), DIRECTORY, NOW_MS / 1000), Principal))
    assert away == -1
    await watch.close()


async def test_a_fault_of_who_is_told_does_not_end_the_watch(tmp_path: Path) -> None:
    async with identity_of(tmp_path / "i.db") as (identity, store):
        told = 0

        def fails(_: Directory) -> None:
            nonlocal told
            told += 1
            raise RuntimeError("a fault")

        leave = identity.watch.changed.add(fails)
        await until(lambda: told > 1)
        leave()
        await store.add_tenant(Tenant(name="later"), NOW_MS)
        await until(lambda: "later" in identity.directory.tenants)


async def test_a_gateway_asks_for_a_key_and_a_revoked_one_ends_its_connections(tmp_path: Path) -> None:
    clock = Clock()
    async with identity_of(tmp_path / "i.db", clock=clock) as (identity, store):
        good = await added_key(store, user="ann")
        metrics_only = await added_key(store, scopes=frozenset({Scope.METRICS}))
        await identity.watch.look()
        async with gateway(identity=identity, salts=salts()) as world:
            headers = {"Authorization": f"Bearer {good.text}"}
            async with world.http() as http:
                assert (await http.get("/v1/models")).status_code == 401
                assert (await http.get("/v1/models", headers=headers)).status_code == 200
                assert (await http.get("/metrics", headers=headers)).status_code == 403
                other = {"Authorization": f"Bearer {metrics_only.text}"}
                seen = await http.get("/metrics", headers=other)
                assert 'foretype_denied_total{reason="missing"} 1.0' in seen.text
                assert 'foretype_denied_total{reason="scope"} 1.0' in seen.text
                assert (await http.get("/v1/models", headers=other)).status_code == 403
            async with world.peer(additional_headers=headers) as peer:
                await peer.still_works()
                await store.revoke_key(good.id, NOW_MS)
                assert (await peer.closed()).code == CLOSE_CREDENTIALS
            await world.closes(additional_headers=headers)
            await until(lambda: not world.gateway.stream.connections)


async def test_a_key_that_expires_ends_its_connections(tmp_path: Path) -> None:
    clock = Clock()
    async with identity_of(tmp_path / "i.db", clock=clock) as (identity, store):
        key = await added_key(store, expires_ms=NOW_MS + 1000)
        await identity.watch.look()
        headers = {"Authorization": f"Bearer {key.text}"}
        async with gateway(identity=identity, salts=salts()) as world, world.peer(additional_headers=headers) as peer:
            await peer.still_works()
            clock.now_ms += 1000
            await peer.closed()


async def test_a_bearer_token_that_expires_ends_its_connections(tmp_path: Path) -> None:
    clock = Clock()
    async with identity_of(tmp_path / "i.db", clock=clock, verifier=verifier()) as (identity, _):
        headers = {"Authorization": f"Bearer {bearer()}"}
        async with gateway(identity=identity, salts=salts()) as world, world.peer(additional_headers=headers) as peer:
            await peer.still_works()
            clock.now_ms += 60_000
            await peer.still_works()  # clocks differ: half a minute is granted at both ends
            clock.now_ms += 30_000
            await peer.closed()


async def test_an_engine_gets_a_salt_per_tenant_that_ends_with_a_purge(tmp_path: Path) -> None:
    book = salts()
    async with identity_of(tmp_path / "i.db") as (identity, store):
        before = book.salt(book.namespace("acme"))
        async with gateway(identity=identity, salts=book):
            await Purges(store, wall_ms=lambda: NOW_MS).purge("acme")
            await until(lambda: book.namespace("acme").epoch == 1)
        assert book.salt(book.namespace("acme")) != before


async def test_while_the_store_is_away_the_last_snapshot_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, late = minted(), minted()
    async with identity_of(tmp_path / "i.db") as (identity, store):
        await store.add_key(key, record(key), NOW_MS)
        await until(lambda: isinstance(identity.authenticate(key.text), Principal))
        asked, version = asyncio.Event(), IdentityStore.version

        async def away(self: IdentityStore) -> int:
            asked.set()
            raise StoreError("the store cannot be reached")

        monkeypatch.setattr(IdentityStore, "version", away)
        await store.add_key(late, record(late), NOW_MS)
        await asked.wait()
        assert isinstance(identity.authenticate(key.text), Principal)
        assert identity.authenticate(late.text) is Denial.UNKNOWN
        monkeypatch.setattr(IdentityStore, "version", version)
        await until(lambda: isinstance(identity.authenticate(late.text), Principal))


def test_commands_make_a_tenant_a_key_and_its_successor(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "i.db"))
    tenant = run("tenants", "add", "acme", "--limit", "tenant=500:2000", "--limit", "chat=50", *store)
    assert tenant["budgets"] == {
        "tenant": {"tokens_per_s": 500.0, "burst_tokens": 2000.0},
        "chat": {"tokens_per_s": 50.0, "burst_tokens": 50.0},
    }
    run("tenants", "add-team", "acme", "web", *store)
    run("tenants", "add-user", "acme", "ann", "--team", "web", *store)
    assert list(run("tenants", "set", "acme", "--limit", "chat=none", *store)["budgets"]) == ["tenant"]
    made = run("keys", "create", "--tenant", "acme", "--user", "ann", "--days", "30", *store)
    assert parse(made["key"]) is not None
    rotated = run("keys", "rotate", made["id"], "--overlap-hours", "1", *store)
    run("keys", "revoke", rotated["key"], *store)
    rows = {row["id"]: row for row in run("keys", "list", *store)}
    assert rows[made["id"]]["successor"] == rotated["id"]
    assert rows[rotated["id"]]["revoked"]
    secrets = (made["key"], rotated["key"])
    assert not any(secret.rpartition("_")[2] in json.dumps(list(rows.values())) for secret in secrets)
    shown = CliRunner().invoke(app, ["keys", "list", *store], env={"COLUMNS": "80"}).stdout
    assert made["id"] in shown and rows[made["id"]]["expires"][11:19] in shown and "…" not in shown, shown
    listed = run("tenants", "list", *store)
    assert (listed[0]["teams"], [user["name"] for user in listed[0]["users"]]) == (["web"], ["ann"])
    purged = run("tenants", "purge", "acme", *store)
    assert (purged["epoch"], purged["complete"], purged["reached"]) == (1, True, [])
    data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(parse(secret).secret.encode() in data for secret in secrets)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("tenants", "add", "a b"), "NAME: 'a b' is no name"),
        (("tenants", "add", "x", "--limit", "lunch=1"), "--limit: 'lunch' is none of tenant, user"),
        (("tenants", "add", "x", "--limit", "tenant=fast"), "--limit: 'tenant=fast'; write WHAT=TOKENS_PER_S:BURST"),
        (("tenants", "add", "x", "--limit", "tenant=-1"), "--limit: tokens_per_s must be above 0"),
        (("tenants", "add", "x", "--weight", "0"), "--weight: must be above 0"),
        (("keys", "create", "--tenant", "x"), "no tenant 'x'; add it with"),
        (("keys", "revoke", "x"), "no key 'x'"),
        (("usage", "--month", "2026-13"), "--month: '2026-13' is no month"),
    ],
)
def test_a_bad_command_names_the_field_and_the_remedy(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    assert told in run(*arguments, "--store", str(tmp_path / "i.db"), code=1)
    assert KeyRecord(id="", hash="", tenant="").scopes == {Scope.COMPLETE, Scope.CHAT}
