"""What the adaptive model is fitted with."""

import json

import numpy as np
import pytest
from foretype_client.adaptive.mixture import CELLS, FEATURES, TOLD, Weights, fitted_weights
from foretype_eval.replay.commits import Commit, Stretch
from foretype_lab.adaptive.fit import FitRow, Told, dump, fit, fit_templates, guess, rows_of, told_of

LINE = "result = compute(first, second)\n"


def test_fitting_finds_the_level_that_is_right() -> None:
    good, bad = 3, 700
    rows = [FitRow(np.array([bad, good]), np.array([0.0, 1.0])) for _ in range(90)]
    rows += [FitRow(np.array([bad, good]), np.array([1.0, 0.0])) for _ in range(10)]
    levels, mean = fit(rows)
    weights = Weights(levels, guess())
    assert levels[good] == pytest.approx(0.9, abs=0.03)
    assert levels[bad] > 0.8
    assert mean > -0.6
    assert len(json.loads(dump(weights, ["x"], 100, mean))["weights"]) == CELLS


@pytest.mark.slow
def test_weights_of_another_language_hold_where_few_places_speak_and_give_way_to_many() -> None:
    known = fitted_weights().levels
    cell, untouched = 3, 700
    few, _ = fit([FitRow(np.array([cell]), np.array([0.0]))], known)
    assert few[untouched] == known[untouched]
    assert 0.9 * known[cell] < few[cell] < known[cell]
    many, _ = fit([FitRow(np.array([cell]), np.array([0.0]))] * 2000, known)
    assert many[cell] < 0.02
    told = [Told((0, 1, 5), (-2.0, -2.0, 0.0, 0.0, 0.0), True)]
    templates = fitted_weights().templates
    assert np.abs(fit_templates(told, templates) - templates).max() < 0.2
    assert fit_templates([], templates).tolist() == templates.tolist()


def test_rows_come_from_what_commits_wrote() -> None:
    commit = Commit("c", (Stretch("a.py", LINE * 3, LINE, ""),))
    rows = list(rows_of([(commit, {"b.py": LINE})], None, places=100, seed=0))
    assert rows
    assert all(len(row.cells) == len(row.shares) and row.cells.max() < CELLS for row in rows)
    assert np.mean([row.shares[-1] for row in rows]) > 0.9


def test_what_templates_say_is_noted_until_one_is_right() -> None:
    block = "def get_width(self):\n    return self._width\n\n\n"
    commit = Commit("c", (Stretch("a.py", block * 2, block.replace("width", "height"), ""),))
    told = list(told_of([(commit, {})], None, fitted_weights(), places=100, seed=0))
    assert sum(one.right for one in told) > 5
    assert all(len(one.beside) == TOLD and max(one.features) < FEATURES for one in told)


@pytest.mark.slow
def test_fitting_templates_finds_the_feature_that_is_right_and_trusts_levels_at_first() -> None:
    unsure = (-2.0, -2.0, 0.0, 0.0, 0.0)
    told = [Told((0, 1, 5), unsure, True)] * 90 + [Told((0, 2, 5), unsure, False)] * 90
    weights = fit_templates(told)
    assert weights[1] > 1 > -1 > weights[2]
    assert fit_templates(told[:1])[FEATURES] == pytest.approx(1.0, abs=0.5)
