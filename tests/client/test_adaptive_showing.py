"""When the adaptive model's text is worth a look and what is kept of sums."""

import numpy as np
import pytest
from foretype_client.adaptive.scoring import FEATURES, Classes, Scorer, features_of
from foretype_client.adaptive.surroundings import Answer
from foretype_client.adaptive.threshold import ShowRule, openings
from hypothesis import given, settings
from hypothesis import strategies as st

RULE = ShowRule(chance_min=0.5, cost_chars=40, floor=0.1, patience=2)


def test_longer_texts_need_less() -> None:
    assert not RULE.allows("abc", 0.4, 1.0)
    assert RULE.allows("a" * 40, 0.4, 1.0)
    assert not RULE.allows("a" * 4000, 0.05, 1.0)


def test_a_text_that_the_next_key_decides_about_waits_for_it() -> None:
    text = "a" * 40
    assert not RULE.allows(text, 0.4, 0.1)
    assert RULE.allows(text, 0.4, 0.3)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=99), st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 9))
def test_no_text_needs_less_than_what_its_first_character_says(
    text: str, chance: float, agreed: float, patience: float
) -> None:
    rule = ShowRule(patience=patience)
    assert not rule.allows(text, chance, agreed) or chance >= rule.least(agreed) >= rule.floor


def test_the_next_key_of_half_words_complete_words_and_line_ends() -> None:
    spelled = {0: "\n", 1: "width", 2: "width_px", 3: "with", 4: "("}
    answers: dict[tuple[int, ...], Answer] = {
        (): (np.array([1, 2, 3], np.int32), np.array([0.5, 0.25, 0.125])),
        (1,): (np.array([0, 4], np.int32), np.array([0.5, 0.25])),
    }

    def keys(half: str) -> dict[str, float]:
        return openings(lambda path: answers.get(tuple(path)), spelled.__getitem__, half)

    assert keys("wi") == {"d": 0.75, "t": 0.125}
    assert keys("width") == pytest.approx({"\n": 0.25, "(": 0.125, "_": 0.25})


def test_sums_that_are_kept_are_the_sums() -> None:
    weights = np.arange(FEATURES, dtype=np.float64)
    scorer = Scorer(weights)
    classes = Classes(1, 4, 5, 2, 5, 2, 1, 2, 3, 2, 3)
    features = features_of(classes)
    assert len(features) == len(set(features)) and max(features) < FEATURES
    assert scorer(classes) == scorer(classes) == weights[list(features)].sum()
