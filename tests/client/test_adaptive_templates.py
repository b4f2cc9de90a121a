"""Lines copied with this place's names, and what a line's surroundings keep between keys."""

import math

import numpy as np
import pytest
from foretype_client.adaptive.lexemes import LINE_END, Vocabulary, lex, shape_of
from foretype_client.adaptive.mixture import TEMPLATE_WEIGHTS, beside, fitted_weights, with_proposals
from foretype_client.adaptive.model import AdaptiveModel, Spot
from foretype_client.adaptive.renaming import renamed
from foretype_client.adaptive.templates import TemplateProposal
from foretype_client.adaptive.threshold import ShowRule
from foretype_context.syntax.document import Document, Snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

LINES = st.lists(
    st.sampled_from(["a = 1", "b = 2", "  b(c, a)", "", "\t", "x.y.z  # é", "return a", "return b", "for a in b:"]),
    max_size=10,
)


def snapshot(text: str, uri: str = "file:///a.py") -> Snapshot:
    return Document(uri, text, language="python").snapshot()


def at_cursor(model: AdaptiveModel, text: str) -> str | None:
    """The likeliest answer at the mark `|`."""
    offset = text.index("|")
    found = model.candidate(snapshot(text.replace("|", "")), offset)
    return None if found is None else found.text


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("_width", "get_width", "get_height", "_height"),
        ("WidthError", "get_width", "get_height", "HeightError"),
        ("MAX_WIDTH", "width", "height", "MAX_HEIGHT"),
        ("setWidth", "getWidth", "getHeight", "setHeight"),
        ("widths", "width", "height", None),
        ("other", "get_width", "get_height", None),
        ("name", "name", "name", None),
        ("ab", "a", "b", None),
        ("stdout", "stdout_bytes", "stderr_bytes", "stderr"),
    ],
)
def test_a_name_follows_the_parts_that_another_changed(name: str, old: str, new: str, expected: str | None) -> None:
    assert renamed(name, old, new) == expected


@settings(deadline=None)
@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
def test_any_names_can_be_renamed(name: str, old: str, new: str) -> None:
    found = renamed(name, old, new)
    assert found is None or (found and old != new)


def test_lines_that_differ_in_names_and_numbers_alone_have_one_shape() -> None:
    vocabulary = Vocabulary()

    def shape(line: str) -> int:
        return shape_of(vocabulary.classes(vocabulary.ids(lex(line))))

    assert shape("self.a = b(1)") == shape("self.width = compute(22)")
    assert shape("return a") != shape("assert a")
    assert shape("a = b") != shape("a = 1")
    assert shape("a=b") != shape("a = b")
    assert shape("x") != 0


PROPERTY = """
    @property
    def width(self):
        return self._width

    @property
    def depth(self):
        return self._depth

"""


def test_a_block_is_repeated_with_another_name() -> None:
    text = PROPERTY + "    @property\n    def height(self):\n        return |\n"
    assert at_cursor(AdaptiveModel(), text) == "self._height"


def test_a_substitution_on_the_line_itself_is_carried_on() -> None:
    seen = "    width = config.read(width_name, 'width')\n    height = config.read(height_name, 'height')\n"
    assert at_cursor(AdaptiveModel(), seen + "    depth = config.read(depth_name|") == ", 'depth')"


def test_a_template_may_stand_in_another_file() -> None:
    model = AdaptiveModel()
    text = "import x\n\n    @property\n    def height(self):\n        return self."

    def said() -> list[int]:
        return [proposal.id for proposal in model.proposals(model.spot(snapshot(text), len(text)), [])]

    assert said() == []
    model.learn("file:///b.py", PROPERTY)
    assert said() == [model.id_of("_height")]


class Forgetful(AdaptiveModel):
    """Follows every key, and keeps nothing that it found at the key before."""

    def spot(self, snapshot: Snapshot, offset: int) -> Spot:
        self._around = None
        return super().spot(snapshot, offset)


@settings(max_examples=30, deadline=None)
@given(
    LINES, LINES, st.lists(st.sampled_from(["a = 1", "b = 2", " b(c, a)", "return b"]), min_size=1, max_size=3), LINES
)
def test_what_is_kept_between_keys_changes_no_answer(
    before: list[str], after: list[str], typed: list[str], other: list[str]
) -> None:
    show = ShowRule(chance_min=0.01, floor=0.01, patience=math.inf)
    model, forgetful = AdaptiveModel(show=show, looks_max=99), Forgetful(show=show, looks_max=99)
    for one in (model, forgetful):
        one.learn("file:///b.py", "\n".join(other))
    head, tail = "".join(line + "\n" for line in before), "".join("\n" + line for line in after)
    text = "\n".join(typed)
    for count in range(len(text) + 1):
        whole, offset = head + text[:count] + tail, len(head) + count
        expected, found = (one.suggest(snapshot(whole), offset) for one in (forgetful, model))
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert found.confidence == pytest.approx(expected.confidence)


def test_a_search_that_is_cut_short_goes_on_at_the_next_key() -> None:
    line = "return self.width * self.height + self.depth"
    head = f"def a(self):\n    {line}\n\ndef b(self):\n    "
    hurried, patient = (AdaptiveModel(show=ShowRule(patience=math.inf), looks_max=count) for count in (3, 99))
    found = [
        [model.suggest(snapshot(head + line[:count]), len(head) + count) for count in range(1, len(line) - 4)]
        for model in (hurried, patient)
    ]
    first = [next(number for number, one in enumerate(row) if one is not None) for row in found]
    assert first[0] > first[1]
    assert found[0][-1] == found[1][-1] is not None


def test_a_search_that_is_cut_short_ends_where_a_patient_one_does_when_nobody_types() -> None:
    line = "return self.width * self.height + self.depth"
    head = f"def a(self):\n    {line}\n\ndef b(self):\n    re"
    hurried, patient = (AdaptiveModel(show=ShowRule(patience=math.inf), looks_max=count) for count in (3, 99))
    asked, found = 1, hurried.suggest(snapshot(head), len(head))
    while hurried.unfinished:
        assert found is None
        asked, found = asked + 1, hurried.suggest(snapshot(head), len(head))
    assert 1 < asked < 20
    assert found == patient.suggest(snapshot(head), len(head))
    assert not patient.unfinished


def test_proposals_take_their_part_and_leave_the_rest_in_proportion() -> None:
    weights = np.zeros(TEMPLATE_WEIGHTS)
    told = (np.array([1, 2, 3], np.int32), np.array([0.4, 0.2, 0.1]))
    ids, chance = (
        with_proposals(told, [TemplateProposal(2, (0,), 0.0), TemplateProposal(9, (0,), 0.0)], weights) or told
    )
    found = dict(zip(ids.tolist(), chance.tolist(), strict=True))
    assert found[2] == pytest.approx(0.5)
    assert found[9] == pytest.approx(0.25)
    assert found[1] / found[3] == pytest.approx(4)
    assert sum(found.values()) < 1
    assert with_proposals(told, [], weights) is told
    alone = with_proposals(None, [TemplateProposal(LINE_END, (0,), 0.0)], weights)
    assert alone[1].tolist() == [0.5]


def test_levels_that_say_the_same_raise_a_proposal() -> None:
    ids = np.array([1, 2], np.int32)
    agreeing, against = (ids, np.array([0.8, 0.1])), (ids, np.array([0.1, 0.8]))
    weights = fitted_weights().templates
    chances = [
        dict(
            zip(
                *map(list, with_proposals(told, [TemplateProposal(1, (0,), float(weights[0]))], weights) or told),
                strict=True,
            )
        )[1]
        for told in (agreeing, against)
    ]
    assert chances[0] > chances[1]
    assert beside(None, TemplateProposal(1, (0,), 0.0), 0)[:3] == (
        *beside(agreeing, TemplateProposal(7, (0,), 0.0), 0)[:1] * 2,
        0.0,
    )
