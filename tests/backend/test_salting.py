"""Whether a server keeps salts apart: what is asked of it, and for how long the answer is believed."""

import asyncio
from collections.abc import Sequence

import pytest
from foretype_backend.engines.salting import (
    SaltProof,
    as_text,
    as_token_ids,
    cached_tokens_of,
    prompt_lengths,
    prove_apart,
)
from foretype_backend.errors import SaltIgnoredError


class Server:
    """Caches whole blocks, and keeps salts apart or not."""

    def __init__(self, block_tokens: int = 16, *, salts: bool = True, counts: bool = True, late: int = 0) -> None:
        self.block_tokens, self.salts, self.counts, self.late = block_tokens, salts, counts, late
        self.asked: list[tuple[tuple[int, ...], str]] = []

    async def ask(self, prompt: Sequence[int], salt: str) -> int:
        found = (tuple(prompt), salt if self.salts else "")
        times = self.asked.count(found)
        self.asked.append(found)
        return self.counts * (times > self.late) * (len(prompt) // self.block_tokens * self.block_tokens)


async def test_a_server_that_keeps_salts_apart_is_believed_after_one_prompt_and_two_strangers() -> None:
    server = Server()
    await prove_apart(server.ask, [33, 65], "there")
    assert [len(prompt) for prompt, _ in server.asked] == [33] * 4
    (prompt, salt), again, first, second = server.asked
    assert again == (prompt, salt) and first[0] == second[0] == prompt
    assert len({salt, first[1], second[1]}) == 3
    assert len(set(prompt)) > 20, "random, so that nobody has sent it"


async def test_a_server_that_reports_the_second_time_it_is_asked_again_is_believed() -> None:
    server = Server(late=1)
    await prove_apart(server.ask, [33], "there")
    assert len(server.asked) == 5


async def test_larger_blocks_are_looked_for_with_longer_prompts() -> None:
    server = Server(block_tokens=100)
    await prove_apart(server.ask, [33, 65, 257], "there")
    assert {len(prompt) for prompt, _ in server.asked} == {33, 65, 257}


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (Server(salts=False), "to another salt"),
        (Server(counts=False), "no cached tokens of a prompt that it got before"),
        (Server(late=-1), "that nobody has sent"),
    ],
)
async def test_one_that_does_not_or_does_not_say_gets_no_tenants(server: Server, told: str) -> None:
    with pytest.raises(SaltIgnoredError, match=told):
        await prove_apart(server.ask, [33], "there")


def test_prompts_hold_two_blocks_or_grow_to_a_quarter_of_the_context() -> None:
    assert list(prompt_lengths(16, 8000)) == [33]
    assert list(prompt_lengths(16, 40)) == [20]
    assert list(prompt_lengths(0, 8000)) == [65, 257, 1025, 2000]
    assert list(prompt_lengths(0, 100_000)) == [65, 257, 1025, 4097]
    assert list(prompt_lengths(0, 2)) == [1]
    assert all(type(length) is int for length in prompt_lengths(16, 40))


def test_every_number_is_a_word_of_its_own_and_an_id_of_every_vocabulary() -> None:
    words = as_text(range(200)).split(" ")
    assert len(set(words)) == 200 and all(word.isalpha() and word.islower() and len(word) == 2 for word in words)
    assert as_token_ids([0, 199]) == [10, 209]


def test_a_reply_that_counts_nothing_proves_nothing() -> None:
    assert cached_tokens_of({"usage": {"prompt_tokens_details": {"cached_tokens": 32}}}, "there") == 32
    assert cached_tokens_of({"usage": {"prompt_tokens_details": None}}, "there") == 0
    with pytest.raises(SaltIgnoredError, match="no token counts"):
        cached_tokens_of({}, "there")


class Proving:
    def __init__(self) -> None:
        self.asked, self.now, self.refuse = 0, 100.0, False
        self.came, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def prove(self) -> None:
        self.asked += 1
        self.came.set()
        await self.go.wait()
        if self.refuse:
            raise SaltIgnoredError("it does not")

    def proof(self) -> SaltProof:
        return SaltProof(self.prove, lambda: self.now)


async def test_what_was_proved_holds_until_the_server_is_lost() -> None:
    world = Proving()
    proof = world.proof()
    assert not proof.holds
    await asyncio.gather(proof.hold(), proof.hold())
    await proof.hold()
    assert (world.asked, proof.holds) == (1, True)
    proof.forget()
    assert not proof.holds
    await proof.hold()
    assert world.asked == 2


async def test_a_refusal_is_told_for_five_seconds_and_then_asked_about_again() -> None:
    world = Proving()
    world.refuse, proof = True, world.proof()
    for now in (100.0, 104.9):
        world.now = now
        with pytest.raises(SaltIgnoredError, match="it does not"):
            await proof.hold()
    assert world.asked == 1
    world.refuse, world.now = False, 105.0
    await proof.hold()
    assert (world.asked, proof.holds) == (2, True)


async def test_what_was_found_out_of_a_server_that_was_lost_meanwhile_counts_for_nothing() -> None:
    world = Proving()
    proof = world.proof()
    world.go.clear()
    waiting = asyncio.create_task(proof.hold())
    await world.came.wait()
    proof.forget()
    world.refuse = True
    world.go.set()
    with pytest.raises(SaltIgnoredError):
        await waiting
    world.refuse = False
    await proof.hold()  # the refusal was of the one before
    assert (world.asked, proof.holds) == (2, True)
    await proof.close()
