"""The chance of a line, from its log-probability."""

import math

import pytest
from foretype_context.prompt.profile import LineChance
from hypothesis import given
from hypothesis import strategies as st

FITTED = LineChance(bias=-0.5, log_odds=0.5, log_characters=-0.5, went_on=1.0, in_comment=-1.0)


def chance(
    of: LineChance, logprob: float, characters: int = 10, *, went_on: bool = False, comment: bool = False
) -> float:
    return of.of(logprob, characters, went_on=went_on, in_comment=comment)


@given(st.floats(-20, -0.001), st.integers(0, 300), st.booleans(), st.booleans())
def test_the_model_is_taken_at_its_word_where_nothing_is_known(
    logprob: float, characters: int, on: bool, comment: bool
) -> None:
    assert chance(LineChance(), logprob, characters, went_on=on, comment=comment) == pytest.approx(math.exp(logprob))


@given(st.floats(), st.integers(0, 10_000))
def test_a_chance_is_one_whatever_an_engine_says(logprob: float, characters: int) -> None:
    assert 0 <= chance(FITTED, logprob, characters) <= 1 or math.isnan(logprob)


def test_each_weight_counts_in_its_direction() -> None:
    usual = chance(FITTED, -0.3)
    assert usual == pytest.approx(
        1 / (1 + math.exp(0.5 - 0.5 * math.log(math.exp(-0.3) / -math.expm1(-0.3)) + 0.5 * math.log(10)))
    )
    assert chance(FITTED, -0.1) > usual > chance(FITTED, -0.6)
    assert chance(FITTED, -0.3, 4) > usual > chance(FITTED, -0.3, 40)
    assert chance(FITTED, -0.3, went_on=True) > usual > chance(FITTED, -0.3, comment=True)
