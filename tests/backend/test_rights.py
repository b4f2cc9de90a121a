"""The right to share a repository's cache: who lacks it learns of nobody's text, and nobody of his."""

import asyncio
import base64
import contextlib
import hmac
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest
from backend.commands import run
from backend.identity_world import added_key, identity_of, salts
from backend.replica import Replica
from backend.running_replicas import replicas
from backend.world import TOKENIZER, Peer, World, gateway, segments, until
from foretype_backend.config.fleet import FastConfig
from foretype_backend.fleet.build import make_pool
from foretype_backend.fleet.doors import attach_pool
from foretype_backend.identity.directory import Scope, User
from foretype_backend.identity.identity import Identity
from foretype_backend.identity.rights import grant, open_to_all, revoke
from foretype_backend.identity.store import IdentityStore
from foretype_backend.prefix.rights import CacheRights
from foretype_backend.prefix.salt import Namespace, SaltBook, cache_salt
from foretype_wire.messages import VERSION, Hello, Source, Workspace
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

CANARY = "".join(f"canary_{at} = secret_of_the_shop({at})\n" for at in range(40))
NAMES = st.sampled_from(["", "a", "b"])


@given(st.dictionaries(st.tuples(NAMES, NAMES), st.frozensets(NAMES.filter(bool))), NAMES, NAMES, NAMES, NAMES)
def test_only_teams_with_the_right_share(
    teams: dict[tuple[str, str], frozenset[str]], tenant: str, repository: str, team: str, user: str
) -> None:
    rights = CacheRights(teams)
    owner = rights.owner(tenant, repository, team=team, user=user, credential="key:1")
    if (tenant, repository) in teams:
        assert (owner == "") is (team in teams[tenant, repository])
    elif repository or not any(of == tenant for of, _ in teams):
        assert owner == ""
    else:
        assert owner, "what names no repository may be of any"
    other = rights.owner(tenant, repository, team=team, user=user + "x", credential="key:2")
    assert bool(other) == bool(owner) and (not owner or other != owner)


@given(st.text(), st.text(), st.text(), st.text(), st.text(), st.text())
def test_no_two_owners_have_one_salt(a: str, b: str, c: str, d: str, e: str, f: str) -> None:
    one, two = Namespace(a, b, 0, c), Namespace(d, e, 0, f)
    assert (cache_salt(b"s" * 32, one) == cache_salt(b"s" * 32, two)) is (one == two)


def test_a_user_whom_the_store_knows_has_the_team_that_it_says() -> None:
    known = {("acme", "ann"): "web", ("acme", "bob"): ""}

    def team_of(tenant: str, user: str) -> str | None:
        return known.get((tenant, user))

    rights = CacheRights({("acme", "shop"): frozenset({"web"})}, team_of)

    def owner(user: str, team: str) -> str:
        return rights.owner("acme", "shop", team=team, user=user, credential="jwt:x")

    assert (owner("ann", "other"), owner("bob", "web"), owner("eve", "web")) == ("", "user bob", "")
    assert owner("", "") == "credential jwt:x"


class Shop(NamedTuple):
    world: World
    identity: Identity
    store: IdentityStore
    keys: dict[str, dict[str, str]]

    @contextlib.asynccontextmanager
    async def editor(self, user: str, repository: str = "shop") -> AsyncGenerator[Peer]:
        hello = Hello(v=VERSION, workspaces=[Workspace(root="/src/shop", repository=repository)])
        async with self.world.peer(hello=hello, additional_headers=self.keys[user]) as peer:
            yield peer

    async def looks(self) -> None:
        """Wait until the gateway follows the store."""
        version = await self.store.version()
        await until(lambda: self.identity.directory.version == version)


_asked = iter(range(10**6))


async def cached(peer: Peer) -> int:
    document = "file:///src/shop/cart.py"
    parts = [
        replace(one, source=Source(document=document, path="cart.py", end=len(CANARY))) for one in segments(CANARY)
    ]
    _, end = await peer.answer(f"r{next(_asked)}", segments=parts, document=document, max_tokens=2)
    return end.usage.cached_tokens


@contextlib.asynccontextmanager
async def shop(folder: Path) -> AsyncGenerator[tuple[Shop, Replica]]:
    """Ann and carl are of the team web, bob is of another; one tenant, one repository, one replica."""
    async with replicas(1) as (replica,), identity_of(folder / "i.db") as (identity, store):
        keys: dict[str, dict[str, str]] = {}
        for team in ("web", "games"):
            await store.add_team("acme", team)
        for user, team in (("ann", "web"), ("carl", "web"), ("bob", "games"), ("boss", "web")):
            await store.put_user(User(tenant="acme", name=user, team=team))
            scopes = frozenset(Scope) if user == "boss" else frozenset({Scope.COMPLETE})
            key = await added_key(store, user=user, scopes=scopes)
            keys[user] = {"Authorization": f"Bearer {key.text}"}
        pool = make_pool(FastConfig(replicas=(f"{replica.url}/v1",)), vocabulary_tokens=TOKENIZER.vocabulary_tokens)
        async with gateway(pool, salts=salts(), identity=identity) as world:
            attach_pool(world.app, world.gateway.stream, pool)
            made = Shop(world, identity, store, keys)
            await made.looks()
            yield made, replica


async def test_who_lacks_the_right_learns_of_nobodys_text_and_a_planted_leak_is_seen(tmp_path: Path) -> None:
    async with shop(tmp_path) as (it, replica):
        await grant(it.store, "acme", "shop", "web")
        await it.looks()
        async with it.editor("ann") as ann, it.editor("carl") as carl, it.editor("bob") as bob:
            assert await cached(ann) == 0
            assert await cached(carl) > 0, "a team shares"
            assert await cached(bob) == 0, "who lacks the right shares nothing"
            assert await cached(bob) > 0, "but with himself"
            salts_of = [body["cache_salt"] for body in replica.bodies[-4:]]
            assert salts_of[0] == salts_of[1] != salts_of[2] == salts_of[3]

            # Who is moved to the team by the store shares within a look of it, on the connection that he has.
            await it.store.put_user(User(tenant="acme", name="bob", team="web"))
            await it.looks()
            assert await cached(bob) > 0
            assert replica.bodies[-1]["cache_salt"] == salts_of[0]
            await it.store.put_user(User(tenant="acme", name="bob", team="games"))
            await it.looks()
            await cached(bob)
            assert replica.bodies[-1]["cache_salt"] == salts_of[2]

        # The report says who shares what, to who administers, in whoever's words.
        async with it.world.http() as http:
            shown = (await http.get("/admin/prefix", params={"repository": "shop"}, headers=it.keys["boss"])).json()
            assert shown["sharing"] == [{"repository": "shop", "teams": ["web"], "apart": ["user bob"]}]
            assert (await http.get("/admin/prefix", headers=it.keys["bob"])).status_code == 403

        # The control: were rights not looked at, bob would be told of ann's text.
        async with it.editor("bob") as bob, asyncio.timeout(60):
            told = ""
            while told != salts_of[0]:  # the store's next look may give him his own back before he asks
                it.world.service.salts.follow({}, CacheRights())  # type: ignore[union-attr]
                assert await cached(bob) > 0
                told = replica.bodies[-1]["cache_salt"]


async def test_a_revoked_right_ends_at_a_running_gateway_and_an_opened_repository_is_everybodys(tmp_path: Path) -> None:
    async with shop(tmp_path) as (it, replica):

        async def salt(peer: Peer) -> str:
            await cached(peer)
            return replica.bodies[-1]["cache_salt"]

        async with it.editor("ann") as ann, it.editor("bob") as bob:
            everybodys = await salt(ann)
            assert await salt(bob) == everybodys, "a repository without rights is its tenant's"
            for team in ("web", "games"):
                await grant(it.store, "acme", "shop", team)
            await it.looks()
            assert await salt(ann) == await salt(bob) == everybodys
            await revoke(it.store, "acme", "shop", "games")
            await it.looks()
            assert await salt(bob) != everybodys == await salt(ann)
            await revoke(it.store, "acme", "shop", "web")
            await it.looks()
            assert len({await salt(ann), await salt(bob), everybodys}) == 3, "with the last right nobody shares it"
            async with it.editor("ann", "") as nameless, it.editor("bob", "") as other:
                assert await salt(nameless) != await salt(other), "what names no repository may be of any"
            await open_to_all(it.store, "acme", "shop")
            await it.looks()
            assert await salt(ann) == await salt(bob) == everybodys


def test_a_purge_of_a_repository_ends_the_caches_of_those_apart() -> None:
    book = SaltBook(b"s" * 32)
    before = [book.salt(book.namespace("acme", "shop", owner=owner)) for owner in ("", "user bob")]
    book.purge("acme", "shop")
    assert not set(before) & {book.salt(book.namespace("acme", "shop", owner=owner)) for owner in ("", "user bob")}


def test_the_commands_grant_revoke_open_and_list(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "i.db"))
    run("tenants", "add", "acme", *store)
    assert "add-team" in run("rights", "grant", "acme", "shop", "web", *store, code=1)
    for team in ("web", "games"):
        run("tenants", "add-team", "acme", team, *store)
    assert run("rights", "grant", "acme", "shop", "web", *store)["teams"] == ["web"]
    assert run("rights", "grant", "acme", "shop", "games", *store)["teams"] == ["games", "web"]
    assert run("rights", "grant", "acme", "shop", "games", *store)["teams"] == ["games", "web"]
    assert run("rights", "list", *store) == [{"tenant": "acme", "repository": "shop", "teams": ["games", "web"]}]
    assert run("rights", "revoke", "acme", "shop", "web", *store)["teams"] == ["games"]
    assert "no right" in run("rights", "revoke", "acme", "shop", "web", *store, code=1)
    assert run("rights", "revoke", "acme", "shop", "games", *store)["teams"] == []
    assert run("rights", "open", "acme", "shop", *store)["teams"] is None
    assert "no rights" in run("rights", "open", "acme", "shop", *store, code=1)
    assert "there is no tenant" in run("rights", "grant", "none", "shop", "web", *store, code=1)
    assert "128" in run("rights", "grant", "acme", "x" * 129, "web", *store, code=1)
    acts = [row["action"] for row in run("audit", "list", *store)]
    assert acts[3:] == ["rights.grant"] * 3 + ["rights.revoke"] * 2 + ["rights.open"]


@pytest.mark.parametrize("owner", ["", "user bob"])
def test_the_salt_of_what_is_shared_is_the_one_it_was(owner: str) -> None:
    """Caches outlive the upgrade: a salt without an owner is made of the fields that it was always made of."""
    fields = (b"acme", b"shop", b"3", *([owner.encode()] if owner else []))
    message = b"".join(len(data).to_bytes(4, "big") + data for data in fields)
    wanted = base64.urlsafe_b64encode(hmac.digest(b"s" * 32, message, "sha256")).rstrip(b"=").decode()
    assert cache_salt(b"s" * 32, Namespace("acme", "shop", 3, owner)) == wanted
