"""A purge reaches every gateway and worker before its answer says so, or the answer names who was not reached."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.identity_world import NOW_MS, Clock, added_key
from backend.replica import Replica
from backend.running_replicas import replicas
from backend.test_workers import children, fresh
from backend.world import OF_A_SHOP, TOKENIZER_PATH, Peer, closing, peer_at, segments
from foretype_backend.errors import EntryError
from foretype_backend.identity.directory import Scope, Tenant
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.store_purges import FRESH_S, GONE_S, GatewayRow, Presence, Purges, gateway_states
from foretype_backend.identity.store_watch import DirectoryWatch
from foretype_backend.operations.worker_peers import WorkerAddress
from foretype_backend.prefix.epochs import EpochFile, read_epochs
from foretype_backend.prefix.purge_report import Purged
from foretype_backend.prefix.salt import SaltBook
from foretype_wire.messages import Done, Need
from hypothesis import given
from hypothesis import strategies as st

from backend import postgres_server

LINES = "".join(f"value_{at} = compute({at})\n" for at in range(40))


def row(name: str, version: int, silent_s: float = 0.0) -> GatewayRow:
    return GatewayRow(name, "t", version, NOW_MS - int(silent_s * 1000))


def test_who_has_followed_who_will_and_who_is_silent() -> None:
    rows = [row("a", 7), row("b", 6), row("c", 6, FRESH_S + 1), row("d", 8, 10 * FRESH_S), row("e", -1)]
    assert gateway_states(rows, 7, NOW_MS) == (("a", "d"), ("b", "e"), (("c", FRESH_S + 1),))
    assert gateway_states([row("a", 6, -5.0)], 7, NOW_MS).awaited == ("a",)  # a clock that is ahead of ours


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "x", "y"]), st.integers(0, 5))))
def test_epochs_never_go_back_and_each_move_is_told_once(moves: list[tuple[str, str, int]]) -> None:
    book, told = SaltBook(b"s" * 32), list[tuple[str, str]]()
    book.ended.add(lambda tenant, scope: told.append((tenant, scope)))
    highest: dict[tuple[str, str], int] = {}
    ends = 0
    for tenant, scope, epoch in moves:
        before = book.salt(book.namespace(tenant, scope))
        book.follow({(tenant, scope): epoch})
        moved = epoch > highest.get((tenant, scope), 0)
        highest[tenant, scope] = max(epoch, highest.get((tenant, scope), 0))
        assert (book.salt(book.namespace(tenant, scope)) != before) is moved
        ends += moved
    assert {key: epoch for key, epoch in highest.items() if epoch} == book.epochs()
    assert len(told) == ends


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[IdentityStore]:
    store = await IdentityStore.open(str(folder / "i.db"))
    await store.add_tenant(Tenant(name="acme"), NOW_MS)
    async with closing(store):
        yield store


async def test_a_purge_waits_for_who_follows_and_names_who_does_not(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path) as store:
        purges = Purges(store, wall_ms=clock, reach_s=0.3)
        assert await purges.purge("acme", "shop") == Purged(1, ())  # there is no gateway
        own = await IdentityStore.open(str(tmp_path / "i.db"))
        follower = DirectoryWatch(
            own, poll_s=0.01, clock=lambda: 0.0, presence=Presence(own, "gw-1:80/0", "a", wall_ms=clock)
        )
        salts = SaltBook(b"s" * 32)
        follower.changed.add(lambda directory: salts.follow(directory.epochs()))
        await follower.start()
        follower.changed.tell(follower.directory)
        stuck = Presence(store, "gw-2:80", "b", wall_ms=clock)
        await stuck.beat(await store.version())
        found = await purges.purge("acme", "shop")
        assert (found.epoch, found.reached, found.complete) == (2, ("gw-1:80/0",), False)
        assert [one.gateway for one in found.not_reached] == ["gw-2:80"]
        assert salts.namespace("acme", "shop").epoch == 2  # before the answer

        clock.now_ms += int((FRESH_S + 1) * 1000)
        async with asyncio.timeout(60):
            while not any(one.seen_ms == clock.now_ms for one in await purges.gateways()):  # noqa: ASYNC110 - it lives
                await asyncio.sleep(0.01)
        (silent,) = (await Purges(store, wall_ms=clock, reach_s=60).purge("acme")).not_reached  # nobody waits for it
        assert "31 s" in silent.why
        assert salts.namespace("acme", "shop").epoch == 3  # with the tenant's

        again = Presence(store, "gw-2:80", "c", wall_ms=clock)  # its successor has its name
        await again.beat(await store.version())
        assert (await store.snapshot()).epochs() == {("acme", ""): 1, ("acme", "shop"): 2}
        assert {one.token for one in await purges.gateways()} == {"a", "c"}
        await again.leave()
        await follower.close()
        assert await purges.gateways() == []
        await stuck.beat(1)
        clock.now_ms += int((GONE_S + 1) * 1000)
        await again.beat(1)
        assert [one.token for one in await purges.gateways()] == ["c"]


async def test_what_could_not_be_put_in_place_is_not_told_as_such_and_is_tried_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        own = await IdentityStore.open(str(tmp_path / "i.db"))
        follower = DirectoryWatch(
            own, poll_s=60, clock=lambda: 0.0, presence=Presence(own, "gw", "a", wall_ms=lambda: NOW_MS)
        )
        await follower.start()
        purges = Purges(store, wall_ms=lambda: NOW_MS, reach_s=0.0)
        assert (await purges.purge("acme")).reached == ()

        def broken(_: object) -> None:
            raise RuntimeError("told to")

        leave = follower.changed.add(broken)
        with pytest.raises(RuntimeError):
            await follower.look()
        assert [one.version for one in await purges.gateways()] == [1]
        leave()
        assert await follower.look()
        assert [one.version for one in await purges.gateways()] == [2]
        await follower.close()


async def test_epochs_of_the_store_only_grow(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        purges = Purges(store, wall_ms=lambda: NOW_MS, reach_s=0.0)
        before = await store.tenant("acme")
        await purges.purge("acme")
        await store.set_tenant(before)  # who changes a limit has read the tenant before the purge
        assert (await store.tenant("acme")).epoch == 1
        version = await store.version()
        await purges.keep({("acme", "shop"): 3, ("acme", ""): 9, ("gone", "shop"): 4})
        await purges.keep({("acme", "shop"): 2})
        assert await store.version() == version + 1
        assert (await store.snapshot()).epochs() == {("acme", ""): 1, ("acme", "shop"): 3}
        assert (await purges.purge("acme", "shop")).epoch == 4
        for tenant, scope in (("nobody", ""), ("acme", "x" * 129)):
            with pytest.raises(EntryError):
                await purges.purge(tenant, scope)
        assert await store.version() == version + 2


@contextlib.asynccontextmanager
async def process(profile: Path, state: Path, *options: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """A gateway and its URL."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "foretype_backend", "serve", "--profile", str(profile), "--port", "0"),
        *("--no-telemetry", "--state-dir", str(state), *options),
        stdout=asyncio.subprocess.PIPE,
    )
    assert started.stdout is not None
    try:
        line = (await started.stdout.readline()).decode()
        assert line.startswith("ready "), line
        yield started, line.removeprefix("ready ").strip()
    finally:
        if started.returncode is None:
            started.terminate()
        await started.communicate()


class Editor:
    """A connection with repository `shop` open, and the salts that its requests had at the replica."""

    def __init__(self, peer: Peer, replica: Replica) -> None:
        self._peer = peer
        self._replica = replica
        self._asked = 0

    async def salt(self) -> str:
        """Of one more request."""
        before, self._asked = len(self._replica.bodies), self._asked + 1
        _, end, _ = await self._peer.ask(
            f"r{self._asked}", segments=segments(LINES), document="file:///src/shop/a.py", max_tokens=2
        )
        assert isinstance(end, Done | Need), end
        (body,) = self._replica.bodies[before:]
        return body["cache_salt"]


@contextlib.asynccontextmanager
async def editors(url: str, replica: Replica, count: int, **options: Any) -> AsyncGenerator[list[Editor]]:
    """Several, so that each worker has some."""
    async with contextlib.AsyncExitStack() as stack:
        found: list[Editor] = []
        for _ in range(count):
            peer = peer_at(f"{url.replace('http', 'ws')}/v1/stream", OF_A_SHOP, **options)
            found.append(Editor(await stack.enter_async_context(peer), replica))
        yield found


async def salts_of(them: list[Editor]) -> set[str]:
    return {await one.salt() for one in them}


async def become(them: list[Editor], wanted: str) -> None:
    """Wait until all of them ask under this salt."""
    async with asyncio.timeout(60):
        while await salts_of(them) != {wanted}:  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.05)


def written(folder: Path, replica: Replica, more: str) -> Path:
    profile = folder / "team.toml"
    profile.write_text(
        f"[pool.fast]\nreplicas = ['{replica.url}/v1']\n"
        f"[model]\ntokenizer = '{TOKENIZER_PATH}'\ngrammar = 'foretype-1'\n{more}"
    )
    return profile


def worker_at(pid: int, slot: int) -> int:
    """The process id of a worker."""
    for child in children(pid).read_text().split():
        arguments = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        if WorkerAddress.of(arguments[arguments.index("--place") + 1]).slot == slot:
            return int(child)
    raise AssertionError(f"no worker {slot}")


@pytest.fixture
def store_url(tmp_path: Path) -> Iterator[str]:
    """What a team has, where it can be had."""
    if not postgres_server.available():
        yield str(tmp_path / "identity.db")
    else:
        with postgres_server.postgres("fsync=off") as server:
            yield server.url


@pytest.mark.slow
async def test_one_gateways_purge_reaches_every_worker_of_every_gateway(tmp_path: Path, store_url: str) -> None:
    store = await IdentityStore.open(store_url)
    await store.add_tenant(Tenant(name="acme"), NOW_MS)
    key = await added_key(store, scopes=frozenset(Scope))
    headers = {"Authorization": f"Bearer {key.text}"}
    (tmp_path / "salt").write_bytes(b"s" * 32)
    async with contextlib.AsyncExitStack() as stack:
        (replica,) = await stack.enter_async_context(replicas(1))
        profile = written(tmp_path, replica, f"[identity]\nurl = '{store_url}'\nsalt_file = '{tmp_path / 'salt'}'\n")
        (many, first), (_, second) = await asyncio.gather(
            stack.enter_async_context(process(profile, tmp_path / "one", "--workers", "2")),
            stack.enter_async_context(process(profile, tmp_path / "two")),
        )
        some = await stack.enter_async_context(editors(first, replica, 6, additional_headers=headers))
        others = await stack.enter_async_context(editors(second, replica, 1, additional_headers=headers))

        async def purge(url: str, repository: str) -> httpx.Response:
            body = {"repository": repository}
            async with httpx.AsyncClient(trust_env=False, headers=headers, timeout=60) as http:
                return await http.post(f"{url}/admin/prefix/purge", json=body)

        async def purged(url: str, repository: str) -> list[dict[str, Any]]:
            """Again until everybody followed within the time that a purge waits: a busy machine may keep one from it."""
            told: list[dict[str, Any]] = []
            async with asyncio.timeout(60):
                while not told or not told[-1]["complete"]:
                    answer = await purge(url, repository)
                    told.append(answer.json())
                    assert (answer.status_code, not told[-1]["not_reached"]) in ((200, True), (202, False))
                    assert told[-1]["complete"] is (answer.status_code == 200)
            return told

        (before,) = await salts_of([*some, *others])
        answers = await purged(second, "shop")
        assert len(answers[-1]["reached"]) == 3
        assert sum(name.endswith(("/0", "/1")) for name in answers[-1]["reached"]) == 2
        assert sum(one["blocks"] for one in answers) > 0
        (after,) = await salts_of([*some, *others])
        assert after != before
        await purged(first, "")  # the whole tenant
        (last,) = await salts_of([*some, *others])
        assert last not in (before, after)

        stopped = worker_at(many.pid, 1)
        os.kill(stopped, signal.SIGSTOP)
        try:
            missed = await purge(second, "shop")
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert missed.status_code == 202
        assert not missed.json()["complete"]
        [why] = [why for late, why in (one.values() for one in missed.json()["not_reached"]) if late.endswith("/1")]
        assert "did not follow" in why
        await become(some, await others[0].salt())
        assert (await purge(second, "x" * 200)).json()["error"]["param"] == "repository"
    purges = Purges(store, wall_ms=lambda: NOW_MS)
    assert await purges.gateways() == []  # they said that they end
    await store.close()


@pytest.mark.slow
async def test_without_identities_the_workers_of_a_gateway_follow_each_other(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        (replica,) = await stack.enter_async_context(replicas(1))
        state = tmp_path / "state"
        gateway, url = await stack.enter_async_context(process(written(tmp_path, replica, ""), state, "--workers", "2"))
        them = await stack.enter_async_context(editors(url, replica, 6))
        (before,) = await salts_of(them)
        epochs, reached = 0, 0
        async with asyncio.timeout(60):
            while reached < 4:  # of a busy machine, one may not answer in time
                answer = (await fresh(url, "/admin/prefix/purge", json={"repository": "shop"})).json()
                epochs += 1
                assert answer["epoch"] == epochs  # whichever worker was asked
                reached += answer["reached"] == ["worker 0", "worker 1"]
        (after,) = await salts_of(them)
        assert after != before

        stopped = worker_at(gateway.pid, 0)
        os.kill(stopped, signal.SIGSTOP)
        try:
            missed = await fresh(url, "/admin/prefix/purge", json={"repository": "shop"})
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert missed.status_code == 202
        assert [one["gateway"] for one in missed.json()["not_reached"]] == ["worker 0"]
        async with asyncio.timeout(60):
            while len(now := await salts_of(them)) > 1:  # noqa: ASYNC110 - it heard of it, and follows
                await asyncio.sleep(0.05)
        assert now.isdisjoint({before, after})
        os.kill(stopped, signal.SIGKILL)
        await asyncio.sleep(0)
        assert (await fresh(url, "/admin/prefix/purge", json={"repository": "shop"})).json()["epoch"] == epochs + 2
        assert read_epochs(state / "prefix" / "epochs.json") == {("default", "shop"): epochs + 2}


async def test_the_folder_of_the_epochs_is_made_for_their_owner_alone(tmp_path: Path) -> None:
    salts = SaltBook(b"s" * 32)
    assert await EpochFile(tmp_path / "state" / "epochs.json", salts).purge("acme", "shop") == 1
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert salts.namespace("acme", "shop").epoch == 1
