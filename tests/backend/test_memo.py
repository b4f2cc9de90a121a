from backend.world import TOKENIZER
from foretype_backend.serving.encoded_texts import MemoTokenizer
from hypothesis import given
from hypothesis import strategies as st

LONG = "value = compute(value)\n" * 20


@given(st.lists(st.sampled_from([LONG, LONG + "x", "short", LONG * 2, "y" + LONG]), max_size=20))
def test_ids_are_those_of_the_inner_tokenizer_and_memory_is_bounded(texts: list[str]) -> None:
    memo = MemoTokenizer(TOKENIZER, capacity_tokens=300)
    for text in texts:
        assert memo.encode(text) == TOKENIZER.encode(text)
        assert memo.tokens <= 300


def test_a_text_that_comes_again_is_not_encoded_again() -> None:
    memo = MemoTokenizer(TOKENIZER)
    first = memo.encode(LONG)
    assert memo.encode(LONG) is first
    assert memo.tokens == len(first)


def test_the_least_recent_text_leaves_first() -> None:
    size = len(TOKENIZER.encode(LONG))
    memo = MemoTokenizer(TOKENIZER, capacity_tokens=2 * size + 10)
    for text in (LONG, "a" + LONG, LONG, "b" + LONG):
        memo.encode(text)
    assert memo.knows(LONG) and memo.knows("b" + LONG) and not memo.knows("a" + LONG)
