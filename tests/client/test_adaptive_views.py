"""What is known of candidates, and the network that has the last word on them."""

import math

import numpy as np
import pytest
from foretype_client.adaptive.lexemes import LINE_END
from foretype_client.adaptive.mixture import Weights, fitted_weights
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.network import UNITS, Network, reranked
from foretype_client.adaptive.views import CANDIDATES, VIEW_FEATURES, CandidateView
from foretype_context.syntax.document import Document
from foretype_lab.adaptive.fit_network import Viewed, fit_network, mean_logprob
from hypothesis import given, settings
from hypothesis import strategies as st

SEEN = "total = add(first, second)\nprint(total)\ntotal = add(first, third)\n"
OPEN_AT_END = VIEW_FEATURES - 4 - 15 + 6
"""Column of what is a line end where a bracket is open."""
SILENT = Network(np.zeros((VIEW_FEATURES + 1, UNITS)), np.zeros(UNITS))


def view_at(model: AdaptiveModel, text: str) -> CandidateView | None:
    """At the mark `|`."""
    offset = text.index("|")
    return model.view(
        model.spot(Document("file:///a.py", text.replace("|", ""), language="python").snapshot(), offset), []
    )


def made(chance: list[float], features: np.ndarray) -> CandidateView:
    chances = np.array(chance)
    rest = 1 - float(chances.sum())
    ids = np.arange(len(chance), dtype=np.int32)
    return CandidateView(ids, chances, np.arange(len(chance)), rest, np.log(np.append(chances, rest)), features, 1.0)


def test_a_network_that_says_nothing_changes_nothing() -> None:
    view = view_at(AdaptiveModel(), SEEN + "total = |")
    assert reranked(view, SILENT) == pytest.approx(view.chance, abs=2e-3)


def test_in_a_file_that_has_just_begun_a_correction_counts_little() -> None:
    views = [view_at(AdaptiveModel(), SEEN * times + "total = |") for times in (1, 4)]
    short, long = [view.trust for view in views if view is not None]
    assert 0 < short < long == 1


def test_what_is_not_looked_at_keeps_its_proportions_and_all_stay_chances() -> None:
    names = "".join(f"call(name_{number})\n" * (number // 4 + 1) for number in range(24))
    view = view_at(AdaptiveModel(), names + "call(|")
    assert len(view.at) == CANDIDATES < len(view.ids)
    loud = Network(np.random.default_rng(0).normal(size=SILENT.inner.shape), np.ones(UNITS))
    found = reranked(view, loud)
    others = np.setdiff1d(np.arange(len(view.ids)), view.at)
    assert ((found >= 0) & (found <= 1)).all() and found.sum() <= 1 + 1e-6
    assert found[others] / found[others].sum() == pytest.approx(view.chance[others] / view.chance[others].sum())


def test_a_line_end_where_a_bracket_is_open_is_told_from_others() -> None:
    model = AdaptiveModel()
    closed, opened = view_at(model, SEEN + "print(total)|"), view_at(model, SEEN + "print((total)|")
    assert closed is not None and opened is not None
    ends = [view.features[view.ids[view.at].tolist().index(LINE_END)] for view in (closed, opened)]
    assert ends[1][OPEN_AT_END] and not ends[0][OPEN_AT_END]
    assert np.isfinite(closed.features).all() and closed.features.shape == (len(closed.at), VIEW_FEATURES)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["a = (", "b(c, a)", "", "x.y]", "  return 'a'", "\t", "é"]), max_size=5), st.data())
def test_every_place_of_any_text_can_be_looked_at(lines: list[str], data: st.DataObject) -> None:
    model = AdaptiveModel()
    model.learn("file:///b.py", "a = 1\nb(c)\n")
    text = "\n".join(lines)
    at = data.draw(st.integers(0, len(text)))
    spot = model.spot(Document("file:///a.py", text, language="python").snapshot(), at)
    view = model.view(spot, [])
    assert view is None or np.isfinite(view.features).all()


def test_fitting_raises_what_a_feature_gives_away_and_nothing_else() -> None:
    rng = np.random.default_rng(3)
    places: list[Viewed] = []
    for _ in range(800):
        features = rng.normal(size=(3, VIEW_FEATURES))
        right = int(rng.integers(4))
        features[:, 7] = [float(row == right) for row in range(3)]
        places.append(Viewed(made([0.25, 0.25, 0.25], features), right))
    network = fit_network(places)
    assert mean_logprob(places, None) == pytest.approx(math.log(0.25), abs=1e-6)
    assert mean_logprob(places, network) > -1.0
    assert np.array_equal(fit_network(places[:200]).outer, fit_network(places[:200]).outer)
    again = fit_network(places[:40], network)
    assert mean_logprob(places, again) > mean_logprob(places, fit_network(places[:40])), "what many taught is not lost"


def test_the_weights_that_ship_have_a_network_that_fits() -> None:
    weights = fitted_weights()
    assert weights.network is not None and weights.network.fits
    assert np.isfinite(weights.network.inner).all()


def test_without_a_network_chances_are_those_of_levels_and_templates() -> None:
    weights = fitted_weights()
    model = AdaptiveModel(weights=Weights(weights.levels, weights.templates))
    text = SEEN + "total = add("
    snapshot = Document("file:///a.py", text, language="python").snapshot()
    found = model.candidate(snapshot, len(text))
    assert found is not None and found.text.startswith("first")
