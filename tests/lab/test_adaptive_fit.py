"""What the adaptive model is measured and fitted with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from foretype_client.adaptive.candidates import CopyLine, LocalCandidate
from foretype_client.adaptive.mixture import CELLS, FEATURES, TOLD, Weights, fitted_weights
from foretype_client.adaptive.model import AdaptiveModel
from foretype_context.text.document import Snapshot
from foretype_eval.replay.commits import Commit, Stretch
from foretype_lab.adaptive.command import report
from foretype_lab.adaptive.cuts import CutAnswer, SourceFile, answers
from foretype_lab.adaptive.fit import FitRow, Told, dump, fit, fit_templates, guess, rows_of, told_of
from foretype_lab.adaptive.typed import report as report_typed
from foretype_lab.adaptive.typed import typed
from foretype_lab.commands import evaluate
from foretype_lab.training.data import build_store
from typer.testing import CliRunner

LINE = "result = compute(first, second)\n"
FILE = "".join(f"def name_{i}(first, second):\n    {LINE}    return result\n\n" for i in range(20))


def test_cuts_are_answered_with_what_repeats_and_nothing_is_known_of_the_rest_itself() -> None:
    found = list(answers([SourceFile("r", "a.py", FILE)], None, cuts=40, seed=1))
    assert len(found) == 40
    assert sum(row.right["adaptive"] for row in found) > 10
    assert not any(row.right["empty"] for row in found)
    unique = "".join(f"{chr(97 + i % 26)}{i * 7919} = q{i * 104729}\n" for i in range(200))
    lonely = list(answers([SourceFile("r", "b.py", unique)], None, cuts=30, seed=1))
    assert not any(row.right["adaptive"] for row in lonely)


def answer(repository: str, confidence: float, right: bool) -> CutAnswer:
    shown = {"adaptive": confidence, "adaptive_without_table": 0.0, "copy_line": 0.0, "empty": 0.0}
    hits = dict.fromkeys(shown, False) | {"adaptive": right}
    return CutAnswer(repository, "rest_of_line", shown, hits, 5.0)


def test_the_report_finds_the_least_threshold_of_a_precision() -> None:
    rows = [answer("a", 0.9, True), answer("b", 0.8, True), answer("a", 0.5, False), answer("b", 0.4, False)]
    kind = report(rows, seed=0)["kinds"]["rest_of_line"]
    assert kind["exact"]["adaptive"][0] == 0.5
    assert kind["at_precision"]["0.7"] == {"threshold": 0.8, "precision": 1.0, "show_rate": 0.5}
    assert kind["at_precision"]["0.5"] == {"threshold": 0.4, "precision": 0.5, "show_rate": 1.0}
    assert sum(step["n"] for step in kind["by_confidence"]) == 4


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


def test_lines_are_typed_until_a_right_text_was_visible_long_enough() -> None:
    text = "".join(f"value_{i} = compute(first, second, third)\n" for i in range(12))
    commit = Commit("c", (Stretch("a.py", text, text.rstrip(), ""),))
    adaptive, copied = AdaptiveModel(), typed((commit, {}), CopyLine(), keys_max=10_000)
    counts = typed((commit, {}), adaptive, keys_max=10_000)
    assert counts.without == copied.without == len(text)
    assert counts.keys < counts.without
    assert 0 < counts.right <= counts.sessions <= counts.shown
    assert typed((commit, {}), adaptive, keys_max=10).without < counts.without
    found = report_typed({"adaptive": [counts] * 3, "copy_line": [copied] * 3})
    assert found["commits"] == 3
    assert found["adaptive"]["saved"] == pytest.approx([1 - counts.keys / counts.without] * 3, abs=1e-3)


class Turns:
    """Knows every line, and says so in the turn of that number at each place."""

    def __init__(self, text: str, turn: int) -> None:
        self._text = text
        self._turn = turn
        self._asked: tuple[int, int] = (-1, 0)

    @property
    def unfinished(self) -> bool:
        return self._asked[1] < self._turn

    def suggest(self, snapshot: Snapshot, offset: int) -> LocalCandidate | None:
        at, turn = self._asked
        self._asked = (offset, turn + 1 if at == offset else 1)
        rest = self._text[offset:].partition("\n")[0]
        return None if self.unfinished or not rest else LocalCandidate(rest, 0.9)

    def learn(self, uri: str, text: str) -> None:
        pass

    def prepare(self, uri: str) -> None:
        pass


def test_a_search_that_was_cut_short_goes_on_until_the_next_key() -> None:
    text = "".join(f"value_{i} = compute(first, second, third)\n" for i in range(12))
    commit = Commit("c", (Stretch("a.py", "", text.rstrip(), ""),))
    keys = [typed((commit, {}), Turns(text, turn), keys_max=10_000).keys for turn in (1, 4, 10_000)]
    assert keys[0] <= keys[1] < keys[2] == len(text)


def test_the_command_prints_one_object(tmp_path: Path) -> None:
    build_store([{"repo": f"r{i}", "path": "a.py", "text": FILE} for i in range(2)], tmp_path)
    result = CliRunner().invoke(
        evaluate, ["adaptive", "--store", str(tmp_path), "--cuts", "10", "--keys", "20", "--json"]
    )
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert set(data["kinds"]) == {"rest_of_line", "next_line"}
    assert data["suggest_ms"]["n"] == 19


def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(evaluate, ["adaptive", "--store", str(tmp_path / "none")])
    assert result.exit_code == 2
