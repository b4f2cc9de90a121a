"""The chance of a line, from its log-probability."""

import math

import msgspec
import pytest
from foretype_context.prompt.profile import LineChance, MinMeanLogprob, Profile
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


@given(
    st.floats(0.01, 0.99), st.floats(0.1, 2), st.floats(-1, 1), st.booleans(), st.booleans(), st.integers(3, 200), st.floats(-8, -0.001)
)  # fmt: skip
def test_a_line_below_the_least_probability_is_shown_nowhere(
    least: float, odds: float, weight: float, on: bool, comment: bool, characters: int, logprob: float
) -> None:
    fitted = LineChance(
        least=least, log_odds=odds, bias=weight, log_characters=weight, went_on=-weight, in_comment=weight
    )
    if math.exp(logprob) < fitted.least_probability * 0.999:
        assert chance(fitted, logprob, characters, went_on=on, comment=comment) < least


def test_where_every_line_is_shown_none_is_too_unlikely_to_be_generated() -> None:
    assert LineChance().least_probability == 0.0 and LineChance(least=1.0).least_probability == 1.0
    assert LineChance(least=0.35).least_probability == pytest.approx(0.35)
    profile = Profile(model="m", grammar="foretype-3", tokenizer_digest="0", line_chance=LineChance(least=0.35))
    assert profile.least_probability(opens=False) == pytest.approx(0.35)
    assert profile.least_probability(opens=True) < 1e-100
    surer = msgspec.structs.replace(profile, min_mean_logprob=MinMeanLogprob(block=-0.15))
    assert surer.least_probability(opens=True) == pytest.approx(math.exp(-3))
