"""How sure the model is of itself after it was right and wrong."""

from __future__ import annotations

import pytest
from foretype_client.adaptive.calibration import Calibration
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.local_model import LocalCandidate
from foretype_context.document import Document
from hypothesis import given
from hypothesis import strategies as st


def after(rights: list[bool], chance: float = 0.4) -> Calibration:
    found = Calibration()
    for right in rights:
        found.shown("a =", " b", chance)
        found.left(["a = b" if right else "a = c"])
    return found


def test_nothing_moves_before_anything_was_shown() -> None:
    assert Calibration().adjusted(0.3) == pytest.approx(0.3)


def test_what_was_wrong_more_often_than_it_said_is_believed_less() -> None:
    assert after([False] * 30).adjusted(0.4) < 0.35
    assert after([True] * 30).adjusted(0.4) > 0.5
    assert after([True, False, False, True, False] * 20).adjusted(0.4) == pytest.approx(0.4, abs=0.01)


def test_one_line_moves_little_and_a_thousand_no_further_than_the_limit() -> None:
    assert after([False]).adjusted(0.4) == pytest.approx(0.4, abs=0.005)
    assert 0.05 < after([False] * 1000, 0.9).adjusted(0.4) < 0.2


@given(st.lists(st.booleans(), max_size=60), st.floats(0, 1))
def test_raw_is_what_adjusted_comes_from(rights: list[bool], chance: float) -> None:
    found = after(rights)
    assert 0 <= found.adjusted(chance) <= 1
    assert found.raw(found.adjusted(chance)) == pytest.approx(chance, abs=1e-9)


def test_a_text_that_is_typed_as_offered_counts_once_and_other_lines_decide_nothing() -> None:
    found = Calibration()
    found.shown("a =", " b", 0.4)
    found.shown("a = ", "b", 0.5)
    found.left(["x = 1"])
    assert found.offset == 0
    found.left(["a = b"])
    assert found.offset == after([True]).offset
    found.left(["a = b"])
    assert found.offset == after([True]).offset


def ask(model: AdaptiveModel, text: str) -> LocalCandidate | None:
    snapshot = Document("file:///a.py", text, language="python").snapshot()
    found = model.suggest(snapshot, len(text))
    while model.unfinished:
        found = model.suggest(snapshot, len(text))
    return found


def test_a_model_whose_lines_never_came_is_less_sure_of_the_next() -> None:
    refuted = AdaptiveModel()
    for number in range(12):
        seen = "result = compute(first, second)\n" * 6
        assert ask(refuted, seen + "result = com") is not None
        ask(refuted, seen + f"result = computed{number}\n")
        refuted.forget_written()
    text = "total = add(one, two)\n" * 6 + "total = a"
    before, now = ask(AdaptiveModel(), text), ask(refuted, text)
    assert before is not None and now is not None
    assert before.text == now.text == "dd(one, two)"
    assert now.confidence < before.confidence - 0.01
