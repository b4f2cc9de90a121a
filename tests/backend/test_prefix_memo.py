"""What prompts were turned into is taken over by the next one: the same as without, and only within one owner."""

from __future__ import annotations

import asyncio
import sysconfig
import tracemalloc
import weakref
from array import array
from pathlib import Path

import msgspec
import pytest
from backend.identity_world import salts
from backend.test_one_request import Counting
from backend.world import TOKENIZER, gateway, scripted, until
from context.tiny import tiny
from foretype_backend import prefix_memo
from foretype_backend.engines.openai.json_ids import JsonIds
from foretype_backend.prefix_memo import PrefixMemo
from foretype_backend.serving import encoded_texts
from foretype_backend.serving.encoded_texts import RememberedPrompts
from hypothesis import given, settings
from hypothesis import strategies as st

CODE = (Path(sysconfig.get_paths()["stdlib"]) / "bisect.py").read_text("utf-8")
RULES = ["foretype-1", "starcoder", "codellama", "deepseek-coder"]
TYPED = st.text("ab \n\r\t:é.", max_size=12)
CHANGES = st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 400), TYPED), max_size=6)


class Words:
    """Turns words into their lengths, and keeps a list of those that it was asked for."""

    def __init__(self, most: int) -> None:
        self.made: list[str] = []
        self.memo: PrefixMemo[str, array[int]] = PrefixMemo(
            head=lambda text: text[:2],
            least=2,
            pieces=str.split,
            make=self._make,
            empty=lambda: array("Q"),
            most=most,
        )

    def asks(self, text: str) -> int:
        """How many words were turned anew."""
        before = len(self.made)
        assert list(self.memo("me", text)) == list(map(len, text.split()))
        return len(self.made) - before

    def _make(self, word: str) -> array[int]:
        self.made.append(word)
        return array("Q", [len(word)])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(RULES), CHANGES, st.integers(513, 2500))
def test_a_text_that_goes_on_from_another_gets_the_ids_that_it_has_alone(
    family: str, changes: list[tuple[int, int, str]], end: int
) -> None:
    async def ask() -> None:
        tokenizer = tiny(family)
        prompts, text = RememberedPrompts(tokenizer), CODE[:end]
        for at, length, typed in [(0, 0, ""), *changes]:
            text = text[:at] + typed + text[at + length :]
            assert prompts.ids_of("me", text).tolist() == tokenizer.encode(text)
            assert prompts.ids_of("me", text).tolist() == tokenizer.encode(text)

    asyncio.run(ask())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**31), max_size=300), max_size=4), st.integers(0, 300))
def test_ids_are_the_json_that_they_are_alone(prompts: list[list[int]], kept: int) -> None:
    async def ask() -> None:
        written, before = JsonIds(), array("Q")
        for prompt in prompts:
            before = array("Q", [*before[:kept], *prompt])
            assert msgspec.json.decode(bytes(written(before, "salt"))) == before.tolist()
        assert msgspec.json.decode(bytes(written([1, 2], None))) == [1, 2]

    asyncio.run(ask())


async def test_what_is_typed_is_all_that_is_encoded_of_a_prompt_and_nobody_elses_texts_are_known() -> None:
    counting = Counting()
    prompts = RememberedPrompts(counting)
    prompts.ids_of("one", CODE)
    first = counting.characters
    prompts.ids_of("one", f"{CODE}\nx = 1")
    assert 0 < counting.characters - first < len(CODE) / 10
    counting.characters = 0
    prompts.ids_of("two", CODE)
    assert counting.characters >= len(CODE)


async def test_what_was_not_asked_for_in_a_while_leaves_memory_though_nobody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefix_memo, "UNUSED_S", 0.02)
    words = Words(most=17_000)
    assert words.asks("some more words") == 3 and words.asks("some more words") == 0
    made = weakref.ref(words.memo("me", "some more words"))
    assert made() is not None
    await until(lambda: made() is None)
    assert words.asks("some more words") == 3


async def test_no_more_is_held_than_two_generations_and_what_is_in_use_stays() -> None:
    words = Words(most=17_000)  # some twelve texts
    for number in range(200):
        words.asks(f"{number:03} a b c")
        assert words.asks("xx y") == 0 or number == 0
    assert sum(words.asks(f"{number:03} a b c") == 0 for number in reversed(range(200))) <= 2 * 17_000 / 1300
    words.memo.forget()
    assert words.asks("xx y") == 2


@pytest.mark.parametrize("text", [CODE[:6900], CODE[:520], "7" * 3000, "\u4e2d\U0001f600" * 900, "a\n\n" * 1000])
async def test_what_is_held_counts_in_bytes_whatever_the_texts_are(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1 << 19
    monkeypatch.setattr(encoded_texts, "_PROMPTS_MOST", most)
    prompts = RememberedPrompts(TOKENIZER)
    prompts.ids_of("me", f"{text} again")
    tracemalloc.start()
    try:
        for number in range(2 * most // len(text)):
            prompts.ids_of(f"{number}", f"{number} {text}")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most / 2 < held < 2.2 * most


async def test_short_texts_are_encoded_again_and_fill_no_memory() -> None:
    counting = Counting()
    prompts = RememberedPrompts(counting)
    for _ in range(2):
        before = counting.characters
        assert prompts.ids_of("me", "x = 1\n").tolist() == TOKENIZER.encode("x = 1\n")
        assert counting.characters == before + len("x = 1\n")


async def test_a_purge_of_a_tenant_drops_what_is_remembered_of_stateless_clients() -> None:
    book, counting = salts(), Counting()
    async with gateway(scripted("x"), tokenizer=counting, salts=book) as world, world.http() as http:

        async def encoded() -> int:
            before = counting.characters
            await http.post("/v1/completions", json={"prompt": CODE, "max_tokens": 1})
            return counting.characters - before

        assert await encoded() >= len(CODE) and await encoded() == 0
        book.ended.tell("local", "")
        assert await encoded() >= len(CODE)
