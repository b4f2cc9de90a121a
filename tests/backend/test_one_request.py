"""One request cannot stop a gateway: what is asked is bounded, counted once, and paid for before it is worked on."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from backend.identity_world import added_key, identity_of, salts
from backend.test_chat import ASK, pool_of
from backend.world import TOKENIZER, World, complete, gateway, profile, scripted, segment, segments, until
from foretype_backend.admission.bounds import Bound
from foretype_backend.admission.limits import Budget, Budgets, Denied
from foretype_backend.config.settings import LimitsConfig
from foretype_backend.identity.accounts import Accounts
from foretype_backend.identity.directory import Tenant
from foretype_backend.prefix.block_keys import block_keys
from foretype_backend.prefix.chain import blocks_of
from foretype_backend.prefix.directory import PrefixDirectory
from foretype_backend.prefix.salt import Namespace
from foretype_backend.serving.encoding import INLINE_CHARS, EncodePool
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from foretype_context.tokens.tokenizer import CutRule
from foretype_wire.messages import MAX_CHANGED, Changed, ChangeReason, Done, Error, ErrorCode, Need
from foretype_wire.segment_cache import CAPACITY_ENTRIES
from hypothesis import given, settings
from hypothesis import strategies as st


class Counting:
    """A tokenizer that counts what it is asked to encode."""

    def __init__(self) -> None:
        self.calls = self.characters = 0

    @property
    def cut_rule(self) -> CutRule:
        return TOKENIZER.cut_rule

    @property
    def vocabulary_tokens(self) -> int:
        return TOKENIZER.vocabulary_tokens

    @property
    def digest(self) -> str:
        return TOKENIZER.digest

    def encode(self, text: str) -> list[int]:
        self.calls += 1
        self.characters += len(text)
        return TOKENIZER.encode(text)

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def decode(self, ids: Sequence[int]) -> bytes:
        return TOKENIZER.decode(ids)

    def control(self, token: str) -> int:
        return TOKENIZER.control(token)

    def controls(self) -> frozenset[str]:
        return TOKENIZER.controls()


@asynccontextmanager
async def poor_tenant(folder: Path, budgets: Mapping[str, Budget], **options: Any) -> AsyncGenerator[tuple[World, Any]]:
    """A gateway whose tenant has these budgets; with headers of its key, and the accounts."""
    accounts = Accounts(lambda: "2026-09-22")
    async with identity_of(folder / "i.db") as (identity, store):
        key = await added_key(store, user="ann")
        await store.set_tenant(Tenant(name="acme", budgets=dict(budgets)))
        await identity.watch.look()
        async with gateway(identity=identity, salts=salts(), accounts=accounts, **options) as world:
            yield world, ({"Authorization": f"Bearer {key.text}"}, accounts)


def level_of(accounts: Accounts) -> float:
    (one,) = accounts.quotas.budgets.statistics(asyncio.get_running_loop().time()).values()
    assert one.reserved == 0
    return one.level


# Finding 4


@pytest.mark.parametrize("files", [1_000, 100_000])
async def test_infill_with_very_many_files_encodes_each_that_is_looked_at_once(files: int) -> None:
    tokenizer = Counting()
    async with gateway(tokenizer=tokenizer) as world, world.http() as http:
        body: dict[str, Any] = {
            "input_extra": [{}] * files,
            "input_prefix": "x = 1\n",
            "prompt": "y = ",
            "n_predict": 4,
        }
        answer = await http.post("/infill", json=body)
        assert answer.status_code == 200
        assert len(world.engine.requests) == 1
        assert tokenizer.calls < 1_000 + 100  # of 256 files: name and text, before and after the cut


async def test_infill_drops_the_last_files_first_and_then_the_farthest_lines() -> None:
    async with gateway() as world, world.http() as http:
        files = [{"filename": f"f{at}.py", "text": f"# file {at}\n" + "a = b\n" * 150} for at in range(8)]
        lines = "".join(f"line_{at} = {at}\n" for at in range(30))
        body = {"input_extra": files, "input_prefix": lines, "prompt": "li", "input_suffix": "\nend\n", "n_predict": 8}
        answer = (await http.post("/infill", json=body)).json()
        sent = TOKENIZER.decode(world.engine.requests[-1]).decode()
        assert answer["truncated"] is True and len(world.engine.requests[-1]) <= 2048 - 8
        assert "# file 0" in sent and "# file 7" not in sent and "line_0 = 0\n" in sent
        kept = sent.count("# file")
        more = {**body, "input_extra": files[: kept + 1]}
        await http.post("/infill", json=more)
        assert TOKENIZER.decode(world.engine.requests[-1]).decode().count("# file") == kept, "one more does not fit"


async def test_infill_refuses_names_and_texts_that_are_too_long() -> None:
    async with gateway() as world, world.http() as http:
        for body, field in (
            ({"input_extra": [{"filename": "x" * 5000}]}, "input_extra"),
            ({"input_prefix": "x" * 300_000, "input_suffix": "y" * 300_000}, "body"),
        ):
            answer = await http.post("/infill", json=body)
            assert answer.status_code == 400
            assert answer.json()["error"]["message"].startswith(field)


# Finding 5


async def test_a_changed_frame_is_bounded_and_worked_off_in_slices_before_the_next_frame() -> None:
    slices: list[int] = []

    def changed(_session: str, change: Changed) -> None:
        slices.append(len(change.documents))

    async with gateway(changed=changed) as world, world.peer() as peer:
        await peer.send(Changed(documents=[""] * (MAX_CHANGED + 1), reason=ChangeReason.PULL))
        refused = await peer.error()
        assert (refused.code, refused.field) == (ErrorCode.INVALID_REQUEST, "documents")
        assert not slices
        await peer.send(Changed(documents=[str(at) for at in range(MAX_CHANGED)], reason=ChangeReason.PULL))
        await peer.still_works()
        assert sum(slices) == MAX_CHANGED and max(slices) <= 64


class _Watched(dict[bytes, Any]):
    looks = 0

    def get(self, key: bytes, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


def test_a_name_that_changed_costs_no_walk_through_every_prompt_of_its_session() -> None:
    directory = PrefixDirectory()
    for at in range(64):
        source = Source(document=f"d{at}", path=f"d{at}", version=1, start=0, end=2000)
        only = Segment(kind=Kind.PREFIX, scope=Scope.FILE, source=source, text="")
        chain = blocks_of(block_keys([at] * 2000, 16, salt=""), [PlacedSegment(segment=only, start=0, end=2000)], 16)
        directory.place(Namespace("a", "r"), "s", f"d{at}", chain, replica="r", now=0.0)
    directory.edited("s", "unknown", 0, 1.0)
    watched = _Watched(vars(directory)["_entries"])
    setattr(directory, "_entries", watched)  # noqa: B010 - to see what it looks at
    for number in range(1000):
        assert directory.edited("s", f"unknown {number}", 0, 1.0) == 0
    assert watched.looks == 0
    assert directory.edited("s", "d5", 0, 1.0) == 125 and watched.looks < 300
    assert directory.edited("s", "d5", 0, 1.0) == 0


# Finding 9


async def test_remembered_texts_are_bounded_in_number_and_only_of_who_may_ask() -> None:
    async with gateway() as world, world.peer(hello=None) as stranger, world.peer() as peer:
        tiny = [segment(Kind.FILE, str(at), path="f") for at in range(1024)]
        await stranger.send(complete("early", segments=tiny))
        assert isinstance(await stranger.receive(), Error)
        await peer.ask("many", segments=[*tiny, *tiny])  # above the limit of segments
        assert [len(one.session.cache) for one in world.gateway.stream.connections] == [0, 0]
        for number in range(5):
            texts = [segment(Kind.FILE, f"{number} {at}", path="f") for at in range(1024)]
            await peer.ask(f"r{number}", segments=texts)
        assert max(len(one.session.cache) for one in world.gateway.stream.connections) == CAPACITY_ENTRIES
        await peer.still_works()


async def test_remembered_texts_of_a_tenant_are_bounded_over_its_connections_and_given_back() -> None:
    limits = LimitsConfig(segments_bytes_per_tenant=20_000)
    async with gateway(limits=limits) as world:
        held = world.gateway.stream.remembered
        async with world.peer() as one, world.peer() as two:
            text = "x = 1\n" * 1000
            for at, peer in enumerate((one, two, one, two)):
                await peer.ask(f"a{at}", segments=segments(prefix=f"# {at}\n{text}"))
                assert held.statistics().held < 20_000
            digest = world.gateway.stream.connections
            assert sum(len(connection.session.cache) for connection in digest) < 12
            for peer in (one, two):
                await peer.still_works()
        await until(lambda: not held.statistics().tenants)
        assert held.statistics().held == 0


# Finding 10


async def test_who_is_over_the_budget_is_refused_before_anything_is_encoded(tmp_path: Path) -> None:
    tokenizer = Counting()
    budgets = {"tenant": Budget(tokens_per_s=0.001, burst_tokens=200)}
    async with poor_tenant(tmp_path, budgets, tokenizer=tokenizer) as (world, (headers, _)):
        text = "x = 1\n" * 200
        async with world.peer(additional_headers=headers) as peer:
            end = await peer.refusal(segments=segments(prefix=text))
            assert end.code is ErrorCode.RATE_LIMITED
        async with world.http(headers=headers) as http:
            for path, body in (
                ("/v1/completions", {"prompt": text}),
                ("/v1/completions", {"prompt": text, "suffix": "\n"}),
                ("/v1/completions", {"prompt": [5] * 1000}),
                ("/infill", {"input_prefix": text}),
            ):
                answer = await http.post(path, json=body)
                assert answer.status_code == 429
        assert tokenizer.calls == 0 and not world.engine.requests


async def test_chat_is_refused_before_it_is_counted(tmp_path: Path) -> None:
    tokenizer = Counting()
    budgets = {"tenant": Budget(tokens_per_s=0.001, burst_tokens=200)}
    pool = pool_of("http://127.0.0.1:9/v1")
    async with poor_tenant(tmp_path, budgets, tokenizer=tokenizer, quality=pool) as (world, (headers, accounts)):
        pool.chat.accounts = accounts
        async with world.http(headers=headers) as http:
            long = [{"role": "user", "content": "why? " * 1000}]
            answer = await http.post("/v1/chat/completions", json=ASK | {"messages": long})
            assert answer.status_code == 429 and tokenizer.calls == 0
    await pool.close()


async def test_a_refusal_says_when_to_come_back_in_its_header(tmp_path: Path) -> None:
    budgets = {"tenant": Budget(tokens_per_s=0.5, burst_tokens=70)}
    async with poor_tenant(tmp_path, budgets) as (world, (headers, _)), world.http(headers=headers) as http:
        for path, most in (("/v1/completions", "max_tokens"), ("/infill", "n_predict")):
            body = {"prompt": "x = ", most: 60}
            answers = [await http.post(path, json=body) for _ in range(4)]
            late = [answer for answer in answers if answer.status_code == 429]
            assert late and all(1 <= int(answer.headers["Retry-After"]) <= 140 for answer in late)


async def test_what_is_refused_has_cost_its_sender(tmp_path: Path) -> None:
    budgets = {"tenant": Budget(tokens_per_s=0.001, burst_tokens=100_000)}
    async with poor_tenant(tmp_path, budgets) as (world, (headers, accounts)):
        too_long = "x = 1\n" * 3000
        async with world.http(headers=headers) as http:
            before = 100_000.0
            for path, body in (
                ("/v1/completions", {"prompt": too_long}),
                ("/v1/completions", {"prompt": too_long, "suffix": "\n"}),
            ):
                assert (await http.post(path, json=body)).status_code == 400
                level = level_of(accounts)
                assert level < before - 500, "an eighth of what was counted"
                before = level
        async with world.peer(additional_headers=headers) as peer:
            end = await peer.refusal("long", segments=segments(prefix=too_long))
            assert end.code is ErrorCode.INVALID_REQUEST
            end = await peer.refusal("late", deadline_ms=0.001, segments=segments(prefix="y = 2\n" * 100))
            assert end.code is ErrorCode.EXPIRED
            await peer.still_works()
        assert level_of(accounts) < before


async def test_a_cancel_storm_gives_every_reservation_back(tmp_path: Path) -> None:
    budgets = {"tenant": Budget(tokens_per_s=0.001, burst_tokens=1_000_000)}
    slow = scripted("x + 1\n" * 30, decode_s_per_token=0.01)
    async with poor_tenant(tmp_path, budgets, engine=slow) as (world, (headers, accounts)):
        async with world.peer(additional_headers=headers) as peer:
            for number in range(200):
                text = "y = 2\n" * (1 + 400 * (number % 2) * 10)  # every other one is encoded in a thread
                await peer.send(complete(f"r{number}", segments=segments(prefix=text), supersedes=f"r{number - 1}"))
                await peer.send({"type": "cancel", "id": f"r{number}"})
        await world.idle()
        await until(lambda: not accounts.quotas.budgets._live)
        assert level_of(accounts) > 0


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120), st.sampled_from(["settle", "abandon", "twice"]))))
def test_a_claim_that_is_resized_takes_and_gives_back_exactly(steps: list[tuple[int, int, str]]) -> None:
    budgets = Budgets({"a": Budget(tokens_per_s=1e-9, burst_tokens=200)})
    level = 200.0
    for first, then, end in steps:
        claim = budgets.reserve(["a"], first, 0.0)
        if isinstance(claim, Denied):
            assert first > level
            continue
        sized = budgets.resize(claim, then, 0.0)
        assert isinstance(sized, Denied) == (then > level and then > first)
        kept = claim if isinstance(sized, Denied) else sized
        used = min(then, 5) if end != "abandon" else 0
        budgets.settle(kept, used, 0.0)
        if end == "twice":
            budgets.settle(claim, 50, 0.0)
            assert budgets.resize(kept, 1, 0.0) == kept
        level -= used
        (now,) = budgets.statistics(0.0).values()
        assert now.reserved == 0 and now.level == pytest.approx(level)


# Threads


@pytest.fixture
def pool() -> Iterator[EncodePool]:
    with contextlib.closing(EncodePool()) as made:
        yield made


async def test_a_tenant_waits_for_its_own_long_texts_and_nobody_elses(pool: EncodePool) -> None:
    order = list[str]()

    first, others = threading.Event(), threading.Event()

    def work(name: str, wait: threading.Event | None = None) -> str:
        if wait is not None:
            assert wait.wait(60)
        order.append(name)
        return name

    running = asyncio.ensure_future(pool.run("greedy", lambda: work("g1", first)))
    waiting = [asyncio.ensure_future(pool.run("greedy", lambda n=n: work(f"g{n}"))) for n in (2, 3, 4)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(pool.run("modest", lambda: work("m")), 60) == "m"
    waiting[0].cancel()
    running.cancel()  # its place stays taken until its thread is done
    await asyncio.sleep(0)
    assert order == ["m"]
    first.set()
    assert await asyncio.gather(*waiting[1:]) == ["g3", "g4"]
    assert order == ["m", "g1", "g3", "g4"]
    others.set()


async def test_a_fault_in_a_thread_is_its_senders_and_frees_the_place(pool: EncodePool) -> None:
    with pytest.raises(ZeroDivisionError):
        await pool.run("a", lambda: 1 // 0)
    assert await pool.run("a", lambda: 7) == 7


async def test_a_gateway_that_ends_leaves_no_thread_that_encodes() -> None:
    async with gateway() as world, world.http() as http:
        answer = await http.post("/v1/completions", json={"prompt": "x = 1\n" * INLINE_CHARS, "max_tokens": 1})
        assert answer.status_code in (200, 400)
        threads = [one for one in threading.enumerate() if one.name.startswith("encode")]
        assert threads
    for one in threads:
        await asyncio.to_thread(one.join, 60)
        assert not one.is_alive()


# The bounds, from both sides

edges = st.one_of(st.integers(0, 3), st.sampled_from([255, 256, 257, 1023, 1024, 1025]))
chars = st.sampled_from([0, 1, INLINE_CHARS - 1, INLINE_CHARS, INLINE_CHARS + 1, (1 << 19) - 1, 1 << 19, (1 << 19) + 1])


@settings(max_examples=4, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["segments", "changed", "path"]), edges, chars), min_size=2, max_size=4))
def test_whatever_lies_at_a_bound_of_the_socket_is_answered_and_nothing_stays(
    steps: list[tuple[str, int, int]],
) -> None:
    async def run() -> None:
        engine = scripted(context_limit_tokens=1 << 20)
        async with gateway(engine, with_profile=profile(context_limit_tokens=1 << 20)) as world:
            async with world.peer() as peer:
                for at, (kind, count, size) in enumerate(steps):
                    if kind == "changed":
                        await peer.send(Changed(documents=["d"] * count, reason=ChangeReason.EDIT))
                        if count > MAX_CHANGED:
                            assert isinstance(await peer.receive(), Error)
                    else:
                        path = "p" * count if kind == "path" else "p"
                        parts = [segment(Kind.FILE, "x\n", path=path)] * (count if kind == "segments" else 1)
                        text = "y = 2\n" * (size // 6) + "z" * (size % 6)
                        asked = [*parts, segment(Kind.PREFIX, text), segment(Kind.MIDDLE, "a")]
                        _, end, _ = await peer.ask(f"r{at}", segments=asked, max_tokens=1)
                        fits = len(asked) <= 1024 and 2 * len(parts) + size + 1 <= 1 << 19
                        assert isinstance(end, Need | Done if fits else Error)
                await peer.still_works()
            await world.idle()
            assert world.gateway.stream.turns.statistics().waiting == 0

    asyncio.run(run())


@settings(max_examples=4, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["infill", "text", "ids", "pair"]), edges, chars), min_size=2, max_size=4))
def test_whatever_lies_at_a_bound_of_the_http_doors_is_answered_and_nothing_stays(
    steps: list[tuple[str, int, int]],
) -> None:
    async def run() -> None:
        async with gateway() as world, world.http() as http:
            for kind, count, size in steps:
                text = "y = 2\n" * (size // 6)
                path, body = {
                    "infill": ("/infill", {"input_extra": [{"text": "a"}] * count, "input_prefix": text}),
                    "text": ("/v1/completions", {"prompt": text}),
                    "ids": ("/v1/completions", {"prompt": [5] * count}),
                    "pair": ("/v1/completions", {"prompt": text, "suffix": "b" * count}),
                }[kind]
                answer = await http.post(path, json=body | {"max_tokens": 1, "n_predict": 1})
                assert answer.status_code in (200, 400), answer.text
                if kind == "infill":
                    assert answer.status_code == (200 if len(text) + count * 6 <= 1 << 19 else 400)
            assert (await http.post("/v1/completions", json={"prompt": "x = "})).status_code == 200
            await world.idle()
            assert world.gateway.requests.statistics().held == 0

    asyncio.run(run())


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5))))
def test_what_is_taken_and_given_back_is_nothing(steps: list[tuple[str, int]]) -> None:
    bound = Bound(10, 6)
    for tenant, amount in steps:
        bound.add(tenant, amount)
    for tenant, amount in reversed(steps):
        assert not bound.full("c") or bound.statistics().held >= 10
        bound.add(tenant, -amount)
    assert bound.statistics() == (0, 0)


async def test_white_space_that_ends_in_something_else_is_no_work_for_the_loop() -> None:
    """A tokenizer's regular expression takes the square of its length."""
    threads: list[int] = []

    class Noting(Counting):
        def encode(self, text: str) -> list[int]:
            if " " * 2000 in text:
                threads.append(threading.get_ident())
            return super().encode(text)

    async with gateway(tokenizer=Noting()) as world, world.peer() as peer, world.http() as http:
        text = " " * 15_000 + "a"
        await peer.ask("a", segments=segments(prefix=text))
        for path, body in (
            ("/v1/completions", {"prompt": text}),
            ("/v1/completions", {"prompt": text, "suffix": "\n"}),
            ("/infill", {"input_prefix": text}),
            ("/infill", {"input_extra": [{"filename": " " * 4000 + "a"}]}),
        ):
            assert (await http.post(path, json=body)).status_code == 200
    assert len(threads) >= 5 and threading.get_ident() not in threads


def test_a_long_run_of_white_space_is_encoded_in_parts() -> None:
    asked: list[int] = []
    inner: Any = TOKENIZER
    encode = inner._encode
    inner._encode = lambda text: asked.append(len(text)) or encode(text)
    try:
        for blanks in (4095, 4096, 4097, 50_000):
            text = "x" + " " * blanks + "a"
            assert TOKENIZER.decode(TOKENIZER.encode(text)).decode() == text
        assert max(asked) <= 4096 + 2
    finally:
        inner._encode = encode
