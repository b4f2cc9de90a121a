"""A gateway whose replicas are announced: they come, go, drain, move and lie over sockets, while clients type."""

import asyncio
import contextlib
import json
import logging
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from backend.replica import Replica
from backend.replica_directory import ReplicaDirectory
from backend.test_fleet_gateway import COMMAND, LINES, SECRET, asked, flags
from backend.test_gateway_process import serving
from backend.world import OF_A_SHOP, TOKENIZER, TOKENIZER_PATH, World, gateway, until
from foretype_backend.config.fleet import DiscoveryConfig, FastConfig
from foretype_backend.errors import ConfigError, EngineUnavailableError
from foretype_backend.fleet.build import make_pool
from foretype_backend.fleet.doors import attach_pool
from foretype_backend.fleet.members.announced import AnnouncedRollout, RefusalReason
from foretype_backend.fleet.members.member import Phase
from foretype_backend.fleet.members.membership import MembershipStatistics
from foretype_backend.fleet.members.revisions import on_canary
from foretype_backend.fleet.pool import ReplicaPool
from foretype_backend.operations.status import status as status_command
from foretype_backend.prefix.salt import SaltBook
from msgspec.structs import replace
from typer import Typer
from typer.testing import CliRunner


def new_replica(**options: Any) -> Replica:
    return Replica(vocabulary=TOKENIZER.vocabulary_tokens, **options)


class Fleet:
    """A directory, its replicas, and a gateway on them."""

    def __init__(self, directory: ReplicaDirectory) -> None:
        self.directory = directory
        self.replicas: dict[str, Replica] = {}
        self.world: World

    @property
    def pool(self) -> ReplicaPool:
        assert isinstance(self.world.engine, ReplicaPool)
        return self.world.engine

    async def up(self, name: str, **labels: str) -> Replica:
        replica = self.replicas[name] = new_replica()
        await replica.start()
        self.directory.announce(name, replica, **labels)
        return replica

    async def down(self, name: str) -> None:
        """As a replica goes: it says so, waits until nothing is asked of it, and ends."""
        self.directory.state(name, "draining")
        await self.directory.answered()
        replica = self.replicas.pop(name)
        await until(lambda: not replica._live)  # pyright: ignore[reportPrivateUsage]
        await replica.stop()
        del self.directory.entries[name]

    async def aclose(self) -> None:
        for one in self.replicas.values():
            await one.stop()

    def serving(self) -> set[str]:
        return {one.name for one in self.pool.in_service()}

    @property
    def membership(self) -> MembershipStatistics:
        found = self.pool.pool_statistics().membership
        assert found is not None
        return found

    def phase(self, name: str) -> Phase | None:
        return self.membership.phases.get(name)

    def why(self, name: str) -> RefusalReason | None:
        return next((one.why for one in self.membership.refused if one.name == name), None)


@contextlib.asynccontextmanager
async def fleet(
    *names: str, token: str = "", token_file: str | None = None, poll_s: float = 0.05, **labels: str
) -> AsyncGenerator[Fleet]:
    quick: dict[str, Any] = {"poll_s": poll_s, "timeout_s": 5.0, "shrink_interval_s": 0.5, "first_wait_s": 60.0}
    async with ReplicaDirectory().running() as directory, contextlib.aclosing(Fleet(directory)) as ours:
        directory.token = token
        for name in names:
            await ours.up(name, **labels)
        discovery = DiscoveryConfig(source="http", url=directory.url, token_file=token_file, **quick)
        fast = FastConfig(discovery=discovery, check_every_s=0.5, idle_timeout_s=60.0)
        pool = make_pool(fast, vocabulary_tokens=TOKENIZER.vocabulary_tokens, grammar="foretype-1")
        async with gateway(pool, salts=SaltBook(SECRET, {})) as ours.world:
            attach_pool(ours.world.app, ours.world.gateway.stream, pool)
            yield ours


class Typing:
    """Clients that ask one thing after the other until told to end; every answer has to be a whole one."""

    def __init__(self, world: World, clients: int = 6) -> None:
        self._world, self._clients = world, clients
        self._over = asyncio.Event()
        self.answers = 0
        self.lost: list[str] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._type(at)) for at in range(self._clients)]
        await self.more(2 * self._clients)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await asyncio.gather(*self._tasks)

    async def more(self, count: int) -> None:
        wanted = self.answers + count
        await until(lambda: self.answers >= wanted or bool(self.lost))

    async def _type(self, client: int) -> None:
        async with self._world.http() as http:
            typed = 0
            while not self._over.is_set():
                typed += 1
                body = {"prompt": f"# {client}\n{LINES}" + "x" * typed, "max_tokens": 4}
                answer = await http.post("/v1/completions", json=body)
                if answer.status_code != 200 or not answer.json()["choices"][0]["finish_reason"]:
                    self.lost.append(answer.text)
                self.answers += 1


async def test_what_replicas_had_counted_stays_counted_when_they_have_left() -> None:
    async with fleet("a", "b") as ours, ours.world.http() as http:
        for number in range(8):
            body = {"prompt": f"# {number}\n{LINES}", "max_tokens": 4}
            assert (await http.post("/v1/completions", json=body)).status_code == 200
        before = ours.pool.statistics()
        assert before.generated_tokens and before.prompt_tokens
        await ours.down("a")
        await until(lambda: ours.serving() == {"b"} and len(ours.pool.pool_statistics().replicas) == 1)
        after = ours.pool.statistics()
        assert (after.prompt_tokens, after.generated_tokens) == (before.prompt_tokens, before.generated_tokens)


@pytest.mark.slow
# A socket that another test left is collected here now and then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_directory_that_is_away_lies_or_flaps_changes_nothing_that_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with fleet("a", "b") as ours, Typing(ours.world) as typing:
        await until(lambda: ours.serving() == {"a", "b"})
        directory, entries = ours.directory, dict(ours.directory.entries)
        for says in (
            b"[]",
            b"{",
            b'{"data": []}',
            b"[" + b"[" * 5000,
            json.dumps([3, None]).encode(),
            b"x" * (5 << 20),
        ):
            directory.says = says
            await directory.answered(3)
            assert ours.serving() == {"a", "b"}
        directory.says = None
        for status in (500, 404, 302):
            directory.status = status
            await directory.answered(3)
            assert ours.serving() == {"a", "b"}
        directory.status = 200
        stranger = new_replica()
        directory.announce("stranger", "93.184.216.34:80")
        directory.announce("again", ours.replicas["a"])
        directory.announce("other", stranger, grammar="qwen2.5-coder")
        await directory.answered(3)
        assert [ours.why(name) for name in ("stranger", "again", "other")] == [
            RefusalReason.STRANGER,
            RefusalReason.TWICE,
            RefusalReason.MISFIT,
        ]
        assert "replica stranger is not asked (stranger)" in caplog.text
        for _ in range(5):  # flaps
            directory.entries = {}
            await directory.answered(1)
            directory.entries = dict(entries)
            await directory.answered(1)
            assert ours.serving()
        await until(lambda: ours.serving() == {"a", "b"})
        await typing.more(10)
        assert not typing.lost
        async with ours.world.http() as http:
            text = (await http.get("/metrics")).text
        assert 'foretype_membership_refused{why="stranger"} 0.0' in text
        assert 'foretype_replica_standing{replica="a",standing="in_service"} 1.0' in text
        assert 'foretype_membership_replicas{phase="member"} 2.0' in text
        assert 'foretype_membership_answers_total{outcome="answered"}' in text
        assert "foretype_membership_age_seconds 0." in text and "foretype_membership_held_back_total" in text
        assert "stranger_" not in text and 'replica="stranger"' not in text


async def test_the_list_costs_a_head_while_it_is_the_same_and_asks_for_the_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("of-the-directory\n")
    async with fleet("a", token="of-the-directory", token_file=str(token)) as ours:
        await ours.directory.answered(3)
        assert ours.directory.unchanged >= 2
        token.write_text("another")
        await ours.directory.answered(2)
        failure = ours.membership.failure
        assert "401" in failure
        assert ours.serving() == {"a"}


async def test_a_start_waits_for_the_first_replica_and_says_for_whom_it_waited() -> None:
    async with ReplicaDirectory().running() as directory:
        directory.announce("late", "127.0.0.1:9", state="starting")
        directory.announce("far", "8.8.8.8:80")
        discovery = DiscoveryConfig(source="http", url=directory.url, poll_s=0.05, first_wait_s=0.5)
        pool = make_pool(FastConfig(discovery=discovery))
        with pytest.raises(
            EngineUnavailableError, match=r"no replica came within 0.5 s.*far.*networks.*late is starting"
        ):
            await pool.start()
        patient = make_pool(FastConfig(discovery=DiscoveryConfig(source="http", url=directory.url, poll_s=0.05)))
        starting = asyncio.ensure_future(patient.start())
        await directory.answered()
        assert not starting.done()
        async with new_replica() as replica:
            directory.announce("late", replica)
            await starting
            assert [one.name for one in patient.in_service()] == ["late"]
            await patient.close()


async def test_the_canary_is_asked_of_whoever_comes_and_who_fails_it_is_never_asked() -> None:
    async with fleet("a") as ours:

        async def canary(engine: Any) -> None:
            if engine.name == "prose":
                raise ConfigError("pool.fast.discovery", "answers in prose")

        await ours.pool.expect(canary)
        prose = await ours.up("prose")
        await ours.up("b")
        await until(lambda: ours.why("prose") is RefusalReason.MISFIT and ours.serving() == {"a", "b"})
        async with Typing(ours.world):
            pass
        assert not prose.bodies


async def test_a_rollout_asks_the_canary_for_its_developers_alone_and_takes_them_back_at_once() -> None:
    async with fleet("a", revision="r1") as ours:
        canary = await ours.up("b", revision="r2")
        await until(lambda: ours.serving() == {"a", "b"})

        async def ask(user: str) -> str:
            before = len(canary.bodies)
            async with ours.world.peer(hello=replace(OF_A_SHOP, user=user)) as peer:
                await peer.answer("x", **asked())
            return "r2" if len(canary.bodies) > before else "r1"

        rollout = AnnouncedRollout("r1", "r2", 0.5, 7)
        ours.directory.rollouts = {"fast": {"stable": "r1", "canary": "r2", "share": 0.5, "number": 7}}
        await ours.directory.answered(3)
        for user in ("ann", "bob", "cleo", "dan", "eve", "finn"):
            wanted = "r2" if on_canary(rollout, f"default/{user}") else "r1"
            assert [await ask(user) for _ in range(2)] == [wanted, wanted], user
        drawn = next(user for user in ("ann", "bob", "cleo", "dan") if on_canary(rollout, f"default/{user}"))
        ours.directory.rollouts = {"fast": {"share": "wrong"}}
        await ours.directory.answered(3)
        assert await ask(drawn) == "r2"  # a directory that lies takes nobody back
        ours.directory.rollouts = {"fast": {"stable": "r1", "canary": None, "share": 0.0, "number": 8}}
        await ours.directory.answered(3)
        assert await ask(drawn) == "r1"
        async with ours.world.http() as http:
            signals = (await http.get("/v1/fleet/signals")).json()["fast"]
            status = (await http.get("/admin/status")).json()["pools"]["fast"]
        assert signals["replicas"] == status["replicas"] == 2
        assert {name: one["failed"] for name, one in signals["revisions"].items()} == {"r1": 0, "r2": 0}
        assert sum(one["requests"] for one in signals["revisions"].values()) == 14
        assert signals["revisions"]["r2"]["ttft_ms"]["p99"] >= signals["revisions"]["r2"]["ttft_ms"]["p50"] > 0
        assert {(one["replica"], one["phase"], one["revision"]) for one in status["membership"]["members"]} == {
            ("a", "member", "r1"),
            ("b", "member", "r2"),
        }


async def test_status_shows_members_and_who_is_refused_in_a_terminal_and_on_the_page() -> None:
    async with fleet("a") as ours:
        ours.directory.announce("far", "8.8.8.8:80")
        await ours.directory.answered()
        app = Typer()
        app.command()(status_command)
        result = await asyncio.to_thread(CliRunner().invoke, app, ["--gateway", ours.world.url, "--once"])
        assert "members of fast" in result.output
        assert "far (stranger): 8.8.8.8:80 is outside" in result.output
        async with ours.world.http() as http:
            page = (await http.get("/admin/parts/status")).text
        assert "Members of fast" in page and "stranger" in page


async def test_what_no_replica_has_memory_for_is_refused_before_it_is_sent() -> None:
    async with fleet("a") as ours:
        replica, body = ours.replicas["a"], {"prompt": LINES, "max_tokens": 4}
        async with ours.world.http() as http:
            replica.kv_use = 0.99
            await until(lambda: not ours.pool.can_admit(400))
            sent = len(replica.bodies)
            refused = await http.post("/v1/completions", json=body)
            assert refused.status_code == 200 and not refused.json()["choices"][0]["text"]  # as whatever is shed
            assert len(replica.bodies) == sent
            assert ours.world.service.metrics.decisions()["interactive"]["kv_full"] == 1
            replica.kv_use = 0.1
            await until(lambda: ours.pool.can_admit(400))
            assert (await http.post("/v1/completions", json=body)).json()["choices"][0]["finish_reason"]
            assert len(replica.bodies) == sent + 1


async def test_a_gateway_process_follows_its_directory_proves_who_comes_and_reloads(tmp_path: Path) -> None:
    profile, state = tmp_path / "team.toml", tmp_path / "state"
    async with ReplicaDirectory().running() as directory, contextlib.aclosing(Fleet(directory)) as ours:
        replica = await ours.up("a", revision="r1", grammar="foretype-1")
        replica.tokenizes = TOKENIZER.encode
        profile.write_text(
            f"[pool.fast.discovery]\nsource = 'http'\nurl = '{directory.url}'\npoll_s = 0.1\n"
            f"[model]\ntokenizer = '{TOKENIZER_PATH}'\ngrammar = 'foretype-1'\n"
        )
        async with (
            serving(*flags(profile, state), command=COMMAND) as (gateway, url),
            httpx.AsyncClient(trust_env=False, timeout=60) as http,
        ):

            async def members() -> dict[str, tuple[str, str]]:
                pool = (await http.get(f"{url}/admin/status")).json()["pools"]["fast"]["membership"]
                found = {one["replica"]: (one["phase"], one["standing"]) for one in pool["members"]}
                return found | {one["replica"]: (one["why"], one["reason"]) for one in pool["refused"]}

            async def become(name: str, *wanted: str) -> str:
                async with asyncio.timeout(60):
                    while (found := (await members()).get(name, ("", "")))[0] not in wanted:  # noqa: ASYNC110 - asks it
                        await asyncio.sleep(0.02)
                return found[1]

            stranger = await ours.up("b", revision="r1")
            stranger.tokenizes = lambda text: [3] * len(text)
            assert "another tokenizer" in await become("b", "misfit")
            directory.announce("itself", url.removeprefix("http://"))
            await become("itself", "misfit", "silent", "ourselves")  # on a free port it is found out by asking
            await ours.up("c", revision="r1")
            assert await become("c", "member") == "in_service"
            profile.write_text(profile.read_text() + "[limits]\nmax_tokens = 7\n")
            gateway.send_signal(signal.SIGHUP)
            assert (await members())["c"] == ("member", "in_service")
            signals = (await http.get(f"{url}/v1/fleet/signals")).json()["fast"]
            assert signals["replicas"] == 2
            answer = await http.post(f"{url}/v1/completions", json={"prompt": LINES, "max_tokens": 3})
            assert answer.status_code == 200, answer.text
            gateway.send_signal(signal.SIGTERM)
            assert await gateway.wait() == 0
        assert not stranger.bodies or all(body["cache_salt"] == "foretype" for body in stranger.bodies)
