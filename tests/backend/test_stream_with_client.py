"""The gateway and the real client on one socket: what one says the other understands."""

import contextlib
import random
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asking import answer_of
from backend.identity_world import NOW_MS, added_key, identity_of, salts
from backend.world import TOKENIZER_PATH, World, closing, gateway, profile, scripted, until
from context.tiny import raw, tiny
from foretype_backend.engines.scripted import ScriptedEngine, fixed
from foretype_client.client import ClientOptions, open_client
from foretype_client.flow.suggestion import FlowState
from foretype_client.session.session import Session
from foretype_context.grammars.grammar import GRAMMARS, described
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.plan import PlanState
from foretype_context.prompt.segments import Segment
from foretype_context.syntax.document import Document, Edit
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer, tokenizer_from_bytes
from foretype_wire.errors import RequestRefusedError
from foretype_wire.messages import Complete

SOURCE = Path(__file__).read_text("utf-8")


@contextlib.asynccontextmanager
async def session_of(world: World, **options: Any) -> AsyncGenerator[Session]:
    session = Session(world.ws_url, clock=time.monotonic, rng=random.Random(1), **options)
    await session.start()
    async with closing(session):
        await session.ready(60)
        yield session


def typing_session(assembler: Assembler, edits: int) -> list[Complete[Segment]]:
    """Plans of somebody who types in the middle of this file."""
    at = SOURCE.index("def typing_session")
    document = Document("file:///a.py", SOURCE, language="python", path="a.py")
    state, calls = PlanState.empty(), []
    for number, character in enumerate("if x:\n    return (y + 1)\n"[:edits]):
        document.apply([Edit(at, at, character)], number + 1)
        at += 1
        plan, state = assembler.plan(state, document.snapshot(), at, now=float(number))
        calls.append(
            Complete(
                id=f"r{number}",
                document="file:///a.py",
                segments=[placed.segment for placed in plan.segments],
                prompt_tokens=plan.prompt_tokens,
                max_tokens=8,
                stop=plan.stop,
            )
        )
    return calls


@pytest.mark.parametrize("layout", ["psm_line_last", "psm_growing", "psm_classic", "spm"])
@pytest.mark.parametrize("json", [False, True])
async def test_token_counts_agree_and_stable_text_travels_once(layout: str, json: bool, tmp_path: Path) -> None:
    async with (
        gateway(scripted("x + 1\n"), with_profile=profile(layout=layout)) as world,
        session_of(world, json=json, cache_dir=tmp_path) as session,
    ):
        assert session.profile is not None
        tokenizer = tokenizer_from_bytes(await session.tokenizer_json())
        assert tokenizer.digest == session.profile.tokenizer_digest
        for call in typing_session(Assembler(tokenizer, session.profile), 25):
            text, done = await answer_of(session, call)
            assert text
            assert done.usage.prompt_tokens == call.prompt_tokens
        assert session.statistics().needs == 0
        if layout != "psm_classic":
            assert session.statistics().digest_segments > session.statistics().text_segments / 4


@pytest.mark.parametrize("id", sorted(GRAMMARS))
async def test_token_counts_agree_in_every_grammar(id: str) -> None:
    tokenizer: Tokenizer = tiny(id)
    for layout in GRAMMARS[id].layouts:
        rules = msgspec.to_builtins(GRAMMARS[id].for_vocabulary(tokenizer.controls()))  # as a gateway tells them
        told = {"tokenizer_digest": tokenizer.digest, "layout": layout, "context_limit_tokens": 4096}
        its = profile(grammar=id, grammar_rules=rules, **told)
        engine = ScriptedEngine(fixed(tokenizer.encode("x = 1")))
        async with gateway(engine, tokenizer=tokenizer, with_profile=its) as world, session_of(world) as session:
            for call in typing_session(Assembler(tokenizer, its), 8):
                _, done = await answer_of(session, call)
                assert done.usage.prompt_tokens == call.prompt_tokens


MARTIAN = {
    "id": "martian-1",
    "file": ["~{path}\n"],
    "order": ["context", "suffix", "prefix"],
    "fim_prefix": "<|above|>",
    "fim_suffix": "<|below|>",
    "fim_middle": "<|here|>",
    "layouts": ["spm_plain_growing", "spm_plain"],
    "end_tokens": ["<|over|>"],
}


async def test_a_family_that_the_client_never_heard_of_is_taken_from_the_profile(tmp_path: Path) -> None:
    assert MARTIAN["id"] not in GRAMMARS
    raw_tokenizer = raw("gpt2", described(MARTIAN).controls())
    tokenizer = tokenizer_from_bytes(raw_tokenizer)
    for layout in described(MARTIAN).layouts:
        its = profile(
            grammar="martian-1",
            grammar_rules=MARTIAN,
            tokenizer_digest=tokenizer.digest,
            layout=layout,
            context_limit_tokens=4096,
        )
        engine = ScriptedEngine(fixed(tokenizer.encode("x = 1")))
        async with (
            gateway(engine, tokenizer=tokenizer, with_profile=its) as world,
            session_of(world, cache_dir=tmp_path) as session,
        ):
            assert session.profile is not None
            for call in typing_session(Assembler(tokenizer, session.profile), 8):
                text, done = await answer_of(session, call)
                assert text == "x = 1"
                assert done.usage.prompt_tokens == call.prompt_tokens


async def test_a_gateway_that_forgot_asks_again_and_the_client_never_notices() -> None:

    async with gateway(scripted("x\n")) as world, session_of(world) as session:
        calls = typing_session(Assembler(load_tokenizer(TOKENIZER_PATH), profile()), 4)
        await answer_of(session, calls[0])
        (connection,) = world.gateway.stream.connections
        connection.session.cache.clear()
        text, done = await answer_of(session, calls[1])
        assert text
        assert done.usage.prompt_tokens == calls[1].prompt_tokens
        assert session.statistics().needs == 1
        await answer_of(session, calls[2])
        assert session.statistics().needs == 1


async def test_a_refusal_reaches_the_caller_with_code_and_field() -> None:
    async with gateway() as world, session_of(world) as session:
        call = typing_session(Assembler(load_tokenizer(TOKENIZER_PATH), profile()), 1)[0]
        with pytest.raises(RequestRefusedError) as caught:
            await answer_of(session, Complete(id="x", segments=call.segments, max_tokens=10**6))
        assert (caught.value.code, caught.value.field) == ("invalid_request", "max_tokens")


async def test_a_client_says_why_it_has_no_gateway_any_more(tmp_path: Path) -> None:
    """A key that is revoked while a session is open: the state was `offline`, and the detail empty for ever."""
    async with identity_of(tmp_path / "i.db") as (identity, store):
        key = await added_key(store)
        await identity.watch.look()
        async with gateway(identity=identity, salts=salts()) as world:
            options = ClientOptions(gateway=world.ws_url, token=key.text, cache_dir=tmp_path, local=False)
            async with open_client(options) as client:
                await client.ready()
                assert client.status().detail == ""
                await store.revoke_key(key.id, NOW_MS)
                await until(lambda: client.session.statistics().failures > 0)
                status = client.status()
                assert status.state is FlowState.OFFLINE
                assert status.detail.startswith("the gateway refused this client (4401): check the token"), status
            assert client.status().state is FlowState.CLOSED
