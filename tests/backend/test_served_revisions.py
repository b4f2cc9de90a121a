"""A roll-out of a model with another tokenizer, grammar and budgets: clients are told, asked prompts are right, and it goes back."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend.patient_gateway import SERVE
from backend.replica import Replica
from backend.replica_directory import ReplicaDirectory
from backend.test_fleet_gateway import flags
from backend.test_gateway_process import serving
from backend.test_stream_with_client import MARTIAN, session_of, typing_session
from backend.world import TOKENIZER, TOKENIZER_PATH, until
from context.tiny import raw
from foretype_backend.errors import ConfigError
from foretype_backend.fleet.members.announced import AnnouncedRollout
from foretype_backend.fleet.members.revisions import on_canary
from foretype_backend.start.check import examine
from foretype_client.session.session import Session
from foretype_context.grammars.grammar import described, grammar
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.segments import Segment
from foretype_context.tokens.tokenizer import tokenizer_from_bytes
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import Complete, Done
from msgspec.structs import replace

pytestmark = pytest.mark.slow  # whole processes

RAW = raw("gpt2", described(MARTIAN).controls())
OTHER = tokenizer_from_bytes(RAW)
FORETYPE, MARS = grammar("foretype-1"), described(MARTIAN)


def rules(table: str) -> str:
    return f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in MARTIAN.items())


class Roll:
    """A gateway's process, its directory, and a replica of each revision."""

    def __init__(self, url: str, directory: ReplicaDirectory, replicas: dict[str, Replica]) -> None:
        self.ws_url = url.replace("http", "ws", 1) + "/v1/stream"
        self.url, self.directory, self.replicas = url, directory, replicas

    def to(self, stable: str, canary: str | None = None, share: float = 0.0, number: int = 1) -> None:
        self.directory.rollouts = {"fast": {"stable": stable, "canary": canary, "share": share, "number": number}}

    def asked(self, revision: str) -> list[list[int]]:
        """Prompts that clients sent, without those of checks."""
        return [one["prompt"] for one in self.replicas[revision].bodies if one.get("cache_salt") != "foretype"]


@contextlib.asynccontextmanager
async def rolling(tmp_path: Path, *up: str) -> AsyncGenerator[Roll]:
    (tmp_path / "r2.json").write_bytes(RAW)
    replicas = {
        "r1": Replica(vocabulary=TOKENIZER.vocabulary_tokens),
        "r2": Replica(vocabulary=OTHER.vocabulary_tokens, model="martian", block=32),
    }
    replicas["r2"].writes = tuple(OTHER.encode("x = 1"))
    replicas["r1"].tokenizes = lambda text: list(TOKENIZER.encode(text))
    replicas["r2"].tokenizes = lambda text: list(OTHER.encode(text))
    async with ReplicaDirectory().running() as directory:
        for name in up:
            await replicas[name].start()
            directory.announce(name, replicas[name], revision=name)
        profile = tmp_path / "team.toml"
        profile.write_text(
            f"[engine]\nname = 'vllm-server'\n[pool.fast.discovery]\nsource = 'http'\nurl = '{directory.url}'\npoll_s = 0.05\n"
            f"[pool.fast]\ncheck_every_s = 0.2\n"
            f"[model]\ntokenizer = '{TOKENIZER_PATH}'\ngrammar = 'foretype-1'\n"
            f"[pool.revisions.r2]\ntokenizer = '{tmp_path / 'r2.json'}'\nlayout = 'spm_plain'\n"
            "budgets = { prompt_tokens = 700 }\nmin_mean_logprob = { line = -1.25 }\n"
            + rules("pool.revisions.r2.grammar_rules")
        )
        try:
            async with serving(*flags(profile, tmp_path / "state"), command=SERVE) as (_, url):
                yield Roll(url, directory, replicas)
        finally:
            for one in replicas.values():
                await one.stop()


class Developer:
    """The real client, typing until told to end; it follows whatever profile it is told."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.answers: list[str] = []
        self.wrong: list[object] = []
        self._over = asyncio.Event()

    @property
    def told(self) -> str:
        assert self.session.profile is not None
        return self.session.profile.grammar

    async def moved(self, grammar: str) -> None:
        """Until it is told this grammar, and has been answered in it."""
        await until(lambda: self.told == grammar or bool(self.wrong))
        before = len(self.answers)
        await until(lambda: grammar in self.answers[before:] or bool(self.wrong))
        assert not self.wrong

    async def type(self) -> None:
        made: dict[str, list[Complete[Segment]]] = {}
        for typed in itertools.count():
            profile = self.session.profile
            assert profile is not None
            if profile.tokenizer_digest not in made:  # the event loop is the servers', too: once each
                tokenizer = tokenizer_from_bytes(await self.session.tokenizer_json(profile))
                made[profile.tokenizer_digest] = typing_session(Assembler(tokenizer, profile), 4)
            calls = made[profile.tokenizer_digest]
            call = replace(calls[typed % len(calls)], id=f"t{typed}")
            try:
                async for item in self.session.complete(call):
                    if isinstance(item, Done) and item.usage.prompt_tokens != call.prompt_tokens:
                        self.wrong.append(item)
            except (RequestRefusedError, GatewayGoneError) as error:
                self.wrong.append(error)
            self.answers.append(profile.grammar)
            if self._over.is_set():
                return
            await asyncio.sleep(0.02)

    def end(self) -> None:
        self._over.set()


@contextlib.asynccontextmanager
async def developers(roll: Roll, tmp_path: Path, *users: str) -> AsyncGenerator[list[Developer]]:
    async with contextlib.AsyncExitStack() as stack:
        found = [
            Developer(await stack.enter_async_context(session_of_user(roll, tmp_path / user, user))) for user in users
        ]
        tasks = [asyncio.create_task(one.type()) for one in found]
        try:
            yield found
        finally:
            for one in found:
                one.end()
            await asyncio.gather(*tasks)


def session_of_user(roll: Roll, folder: Path, user: str) -> Any:
    world: Any = roll
    return session_of(world, cache_dir=folder, user=user)


def all_of_their_own(roll: Roll) -> None:
    """No prompt is in another vocabulary than its replica's: each holds that grammar's controls, and ends where it has the model write."""
    for revision, tokenizer, its in (("r1", TOKENIZER, FORETYPE), ("r2", OTHER, MARS)):
        for prompt in roll.asked(revision):
            assert max(prompt) < tokenizer.vocabulary_tokens
            for token in (its.fim_prefix, its.fim_suffix, its.fim_middle):
                assert prompt.count(tokenizer.control(token)) == 1, revision


async def test_a_roll_to_another_grammar_and_back_while_developers_type(tmp_path: Path) -> None:
    async with rolling(tmp_path, "r1") as roll, developers(roll, tmp_path, "ann", "bob") as team:
        roll.to("r1")
        for one in team:
            await one.moved("foretype-1")
        roll.to("r1", "r2", 1.0, 2)  # ordered, and no replica of it is there yet: nobody is moved
        await roll.directory.answered(3)
        assert {one.told for one in team} == {"foretype-1"}
        await roll.replicas["r2"].start()
        roll.directory.announce("r2", roll.replicas["r2"], revision="r2")
        for one in team:
            await one.moved("martian-1")
            profile = one.session.profile
            assert profile is not None
            assert (profile.tokenizer_digest, profile.layout, profile.budgets.prompt_tokens, profile.block_tokens) == (
                OTHER.digest,
                "spm_plain",
                700,
                32,
            )
            assert profile.min_mean_logprob.line == -1.25
        roll.to("r1", None, 0.0, 3)  # back
        for one in team:
            await one.moved("foretype-1")
        roll.to("r2", None, 0.0, 4)  # through to the end: the old revision leaves
        for one in team:
            await one.moved("martian-1")
        del roll.directory.entries["r1"]
        await roll.replicas["r1"].stop()
        for one in team:
            await one.moved("martian-1")
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            signals = (await http.get(f"{roll.url}/v1/fleet/signals")).json()
            metrics = (await http.get(f"{roll.url}/metrics")).text
        assert set(signals) == {"fast"} and signals["fast"]["revisions"]["r2"]["requests"] > 0
        assert signals["fast"]["revisions"]["r2"]["failed"] == signals["fast"]["revisions"]["r1"]["failed"] == 0
        assert 'pool="fast r2"' in metrics
        assert all(not one.wrong for one in team)
    assert len(roll.asked("r1")) > 4 and len(roll.asked("r2")) > 4
    all_of_their_own(roll)


async def test_only_the_canary_share_is_told_and_a_canary_that_dies_gives_its_developers_back(tmp_path: Path) -> None:
    async with rolling(tmp_path, "r1", "r2") as roll:
        users = [f"user{at}" for at in range(8)]
        drawn = [one for one in users if on_canary(AnnouncedRollout("r1", "r2", 0.5, 7), f"default/{one}")]
        stays = next(one for one in users if one not in drawn)
        roll.to("r1", "r2", 0.5, 7)
        await roll.directory.answered(3)
        async with developers(roll, tmp_path, drawn[0], stays) as (canary, stable):
            await canary.moved("martian-1")
            await stable.moved("foretype-1")
            roll.directory.state("r2", "draining")
            await roll.replicas["r2"].stop(keeps_port=True)
            await until(lambda: canary.told == "foretype-1")
        assert stable.told == "foretype-1" and not stable.wrong
    all_of_their_own(roll)


async def test_a_replica_of_another_vocabulary_under_a_known_revision_is_never_asked(tmp_path: Path) -> None:
    async with rolling(tmp_path, "r1") as roll, developers(roll, tmp_path, "ann") as (ann,):
        await roll.replicas["r2"].start()
        roll.directory.announce(
            "r2", roll.replicas["r2"], revision="r1"
        )  # its vocabulary is smaller than the profile's
        await roll.directory.answered(5)
        roll.directory.announce("r1b", roll.replicas["r1"], revision="r2")  # and the other way round
        await roll.directory.answered(5)
        roll.to("r1", "r2", 1.0, 2)
        await roll.directory.answered(5)
        await ann.moved("foretype-1")
        assert not roll.asked("r2")
    all_of_their_own(roll)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[pool.revisions.r2]\ntokenizer = 'TOKENIZER'\n", "pool.revisions.r2"),
        ("DIRECTORY[pool.revisions.r2]\ngrammar = 'foretype-1'\n", "pool.revisions.r2.tokenizer"),
        ("DIRECTORY[pool.revisions.r2]\ntokenizer = 'none.json'\n", "pool.revisions.r2.tokenizer"),
        (
            "DIRECTORY[pool.revisions.r2]\ntokenizer = 'TOKENIZER'\nbudgets = { prompt_tokens = 0 }\n",
            "pool.revisions.r2.budgets.prompt_tokens",
        ),
        (
            "DIRECTORY[pool.revisions.r2]\ntokenizer = 'TOKENIZER'\ngrammar = 'martian-1'\n",
            "pool.revisions.r2.grammar",
        ),
        (
            "DIRECTORY[pool.revisions.r2]\ntokenizer = 'TOKENIZER'\nnext_edit = 'zeta-2.1'\n",
            "pool.revisions.r2.next_edit",
        ),
    ],
)
def test_a_revision_that_cannot_be_served_is_named_before_anything_starts(
    tmp_path: Path, text: str, field: str
) -> None:
    directory = "[pool.fast.discovery]\nsource = 'http'\nurl = 'http://127.0.0.1:9/replicas'\n"
    own = f"[model]\ntokenizer = '{TOKENIZER_PATH}'\ngrammar = 'foretype-1'\n"
    alone = "" if "DIRECTORY" in text else "[pool.fast]\nreplicas = ['http://127.0.0.1:9/v1']\n"
    file = tmp_path / "team.toml"
    file.write_text(own + alone + text.replace("DIRECTORY", directory).replace("TOKENIZER", str(TOKENIZER_PATH)))
    with pytest.raises(ConfigError) as told:
        examine(file)
    assert told.value.field == field, told.value
