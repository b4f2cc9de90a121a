import math

import pytest
from backend.world import TOKENIZER
from foretype_backend.engines.port import Chunk, EngineFinish
from foretype_backend.errors import EngineUnavailableError
from foretype_backend.serving.output_text import OutputText, TextDelta, joined
from foretype_context.prompt.profile import Opened, Stop
from hypothesis import given
from hypothesis import strategies as st


def chunks(ids: list[int], sizes: list[int]) -> list[Chunk]:
    out: list[Chunk] = []
    for size in [*sizes, len(ids)]:
        out.append(Chunk(token_ids=tuple(ids[:size]), logprobs=(-0.5,) * len(ids[:size])))
        ids = ids[size:]
    return out


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.lists(st.integers(0, 9), max_size=20))
def test_text_is_the_same_whatever_the_chunks(text: str, sizes: list[int]) -> None:
    """Characters that span tokens (emoji, CJK) come out whole, and every token is counted once."""
    ids = TOKENIZER.encode(text)
    output = OutputText(TOKENIZER, Stop())
    deltas = [output.feed(chunk) for chunk in chunks(ids, sizes)] + [output.finish()]
    real = [delta for delta in deltas if delta is not None]
    assert "".join(delta.text for delta in real) == text
    assert sum(delta.tokens for delta in real) == len(ids) == output.generated_tokens
    assert sum(delta.logprob for delta in real) == pytest.approx(-0.5 * len(ids))


def test_two_deltas_are_joined_in_their_order() -> None:
    first, second = TextDelta("a", -1.0, 2), TextDelta("b", -0.25, 3)
    assert joined(first, second) == TextDelta("ab", -1.25, 5)
    assert (joined(first, None), joined(None, second), joined(None, None)) == (first, second, None)


def test_what_repeats_the_typed_text_was_no_choice_and_what_ends_the_text_is_one() -> None:
    ids = TOKENIZER.encode("retu") + TOKENIZER.encode("rn x")
    output = OutputText(TOKENIZER, Stop(repeats="retu"))
    last = Chunk(finish=EngineFinish.END_TOKEN, end_logprob=-0.25)
    deltas = [output.feed(Chunk(token_ids=tuple(ids), logprobs=(-3.0,) * len(ids))), output.feed(last), output.finish()]
    assert "".join(delta.text for delta in deltas if delta is not None) == "return x"
    own = len(TOKENIZER.encode("rn x"))
    assert sum(delta.logprob for delta in deltas if delta is not None) == pytest.approx(-3.0 * own)
    assert output.ending == TextDelta("", -0.25, 1)
    given = OutputText(TOKENIZER, Stop(repeats="retu"))
    given.given("retu")
    assert (delta := given.feed(Chunk(token_ids=ids[-1:], logprobs=(-3.0,)))) and delta.logprob == -3.0


def test_tokens_after_a_stop_inside_a_chunk_are_generated_but_not_delivered() -> None:
    ids = TOKENIZER.encode("one\ntwo\nthree\n")
    output = OutputText(TOKENIZER, Stop(max_lines=1))
    delta = output.feed(Chunk(token_ids=tuple(ids), logprobs=(-0.5,) * len(ids)))
    assert delta is not None
    assert delta.text == "one"
    assert delta.tokens < output.generated_tokens == len(ids)
    assert output.stopped
    assert output.finish() is None


def test_an_engine_of_text_is_counted_with_the_tokenizer() -> None:
    output = OutputText(TOKENIZER, Stop(strings=["STOP"]))
    parts = [output.feed(Chunk(text=text)) for text in ("return ", "", "xSTOPy")]
    assert "".join(delta.text for delta in parts if delta is not None) == "return x"
    assert output.generated_tokens == TOKENIZER.count("return ") + TOKENIZER.count("xSTOPy")


@pytest.mark.parametrize("bad", [-1, 10**6])
def test_ids_outside_the_vocabulary_are_a_lost_engine(bad: int) -> None:
    with pytest.raises(EngineUnavailableError):
        OutputText(TOKENIZER, Stop()).feed(Chunk(token_ids=(bad,)))


def test_logprobs_that_are_no_numbers_do_not_poison_the_sum() -> None:
    ids = TOKENIZER.encode("a b c")[:3]
    delta = OutputText(TOKENIZER, Stop()).feed(Chunk(token_ids=tuple(ids), logprobs=(math.nan, -math.inf, -1.0)))
    assert delta is not None
    assert delta.logprob == -101.0


def test_a_first_line_has_its_own_limit_until_it_has_opened_a_block() -> None:
    stop = Stop(max_lines=1, opened=Opened(endings=[":"], max_lines=3, max_tokens=100, min_indent=1))
    long = OutputText(TOKENIZER, stop, first_line_tokens=4)
    long.feed(Chunk(token_ids=tuple(TOKENIZER.encode("one two three four five six seven")[:3])))
    assert not long.too_long
    long.feed(Chunk(token_ids=tuple(TOKENIZER.encode("four")[:1])))
    assert (long.generated_tokens, long.too_long) == (4, True)
    block = OutputText(TOKENIZER, stop, first_line_tokens=4)
    block.feed(Chunk(token_ids=tuple(TOKENIZER.encode("x:\n  one two three four five six"))))
    assert (block.generated_tokens > 4, block.too_long, block.stopped) == (True, False, False)
    line = OutputText(TOKENIZER, Stop(max_lines=1), first_line_tokens=4)
    line.feed(Chunk(token_ids=tuple(TOKENIZER.encode("one two three four five six seven"))))
    assert not line.too_long  # the engine was given the same limit


def test_a_line_ends_before_the_token_that_makes_it_unlikely() -> None:
    first, *ids = TOKENIZER.encode("one two three four\nfive")
    output = OutputText(TOKENIZER, Stop(least_chance=0.1))
    likely = output.feed(Chunk(token_ids=(first,), logprobs=(-1.0,)))
    unlikely = output.feed(Chunk(token_ids=tuple(ids), logprobs=(-1.2, -0.2) + (-0.1,) * (len(ids) - 2)))
    assert likely is not None
    assert (unlikely and unlikely.text, output.unlikely, output.stopped) == (
        TOKENIZER.decode(ids[:1]).decode(),
        True,
        False,
    )
    assert output.feed(Chunk(token_ids=(first,), logprobs=(0.0,))) is None
    assert output.finish() is None
    assert output.generated_tokens == len(ids) + 2


def test_the_chance_counts_anew_on_each_line() -> None:
    ids = TOKENIZER.encode("one\ntwo\nthree\n")
    output = OutputText(TOKENIZER, Stop(least_chance=0.1))
    delta = output.feed(Chunk(token_ids=tuple(ids), logprobs=(-1.0,) * len(ids)))
    assert delta is not None
    assert (delta.text, output.unlikely) == ("one\ntwo\nthree\n", False)


def test_a_line_that_is_as_likely_as_asked_for_goes_on() -> None:
    output = OutputText(TOKENIZER, Stop(least_chance=0.1))
    assert output.feed(Chunk(text="one", logprobs=(math.log(0.1),))) is not None
    assert (output.unlikely, output.ended) == (False, False)


@pytest.mark.parametrize("text", ["one two", "one two\n"])
def test_an_engine_of_text_tells_how_likely_it_is_too(text: str) -> None:
    output = OutputText(TOKENIZER, Stop(strings=["STOP"], least_chance=0.1))
    kept = output.feed(Chunk(text=text, logprobs=(-2.0,)))
    assert kept is not None
    assert (output.feed(Chunk(text=" more", logprobs=(-1.0,))) is None) == (output.unlikely) == (text == "one two")


def test_what_rounding_makes_likelier_than_certain_makes_up_for_nothing() -> None:
    first, second, third = TOKENIZER.encode("one two three")[:3]
    told = [Chunk(text="one", logprobs=(0.5,)), Chunk(text=" two", logprobs=(-2.4,))]
    for chunks in (told, [Chunk(token_ids=(first, second, third), logprobs=(0.5, -2.4, 0.0))]):
        output = OutputText(TOKENIZER, Stop(least_chance=0.1))
        for chunk in chunks:
            output.feed(chunk)
        assert output.unlikely
