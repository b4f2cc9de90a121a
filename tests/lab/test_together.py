"""The network and the adaptive model as one: what is asked of the network, what rules are fitted, and how they are reported."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from foretype_client.adaptive.model import AdaptiveModel
from foretype_context.text.document import Document, Snapshot
from foretype_eval.replay.commits import Commit, Stretch
from foretype_lab.adaptive.typed import Counts, typed
from foretype_lab.together import __main__ as command
from foretype_lab.together.network_says import Said, summed_up
from foretype_lab.together.places import Places, Ruled, told_of
from foretype_lab.together.rules import RULES, Place, fit_rule, log_loss
from typer.testing import CliRunner

LINES = "".join(f"value_{i} = compute(first, second, third)\n" for i in range(6))
COMMIT = Commit("c", (Stretch("a.py", LINES, LINES.rstrip(), ""),))
SURE = Said(-0.1, -0.2, -0.1, greedy=True)
DOUBTS = Said(-5.0, -9.0, -4.0, greedy=False)


class Network:
    """Finds every text likely, or none; remembers what it was asked."""

    def __init__(self, said: Said = SURE) -> None:
        self.said = said
        self.asked: list[tuple[str, str]] = []

    def __call__(self, path: str, snapshot: Snapshot, offset: int, text: str) -> Said:
        assert path == "a.py"
        self.asked.append((snapshot.text[:offset], text))
        return self.said


def place(chance: float, said: Said = SURE, text: str = "compute(first)") -> Place:
    return Place(text, chance, chance, said)


def test_a_text_is_summed_up_without_its_end() -> None:
    said = summed_up(np.array([-1.0, -3.0, -0.5]), np.array([True, True, False]))
    assert said == Said(-2.0, -3.0, -0.5, greedy=True)
    assert not summed_up(np.array([-1.0, -0.5]), np.array([False, True])).greedy


def test_a_text_that_goes_on_as_it_was_typed_is_asked_about_once() -> None:
    network = Network()
    text = LINES + "value_6 = compute(first, second, third)"
    places = Places(AdaptiveModel(), network)
    begin = len(LINES) + len("value_6 = ")
    for offset in range(begin, begin + 8):
        snapshot = Document("a.py", text[:offset], language="python").snapshot()
        found = places.at(snapshot, offset)
        assert found is not None and found.text == text[offset:]
        assert places.at(snapshot, offset) is found
    assert [said for _, said in network.asked] == ["compute(first, second, third)"]


def test_what_is_told_is_right_where_the_line_says_it_and_the_end_of_a_line_is_looked_at_too() -> None:
    network = Network()
    places = Places(AdaptiveModel(), network)
    told = list(told_of([(COMMIT, {})], places, keys_max=1000))
    assert 0 < sum(one.right for one in told) <= len(told) == len(network.asked)
    asked = len(network.asked)
    for chance in (0.0, 1.0):
        typed((COMMIT, {}), Ruled(places, lambda _, chance=chance: chance), keys_max=1000, knows=places.model)
    assert len(network.asked) == asked, "rules judge what was asked about, and ask nothing"


def test_a_rule_shows_by_its_own_chance() -> None:
    def keys(chance: float) -> Counts:
        places = Places(AdaptiveModel(), Network())
        return typed((COMMIT, {}), Ruled(places, lambda _: chance), keys_max=1000, knows=places.model)

    assert keys(0.0).shown == 0 and keys(0.0).keys == keys(0.0).without
    assert keys(1.0).right > 0 and keys(1.0).keys < keys(0.0).keys


def test_where_only_the_network_knows_only_its_rules_learn() -> None:
    told = [place(0.4, SURE)] * 60 + [place(0.4, DOUBTS)] * 60
    right = [True] * 55 + [False] * 5 + [False] * 58 + [True] * 2
    rules = {name: fit_rule(name, told, right) for name in RULES}
    losses = {name: log_loss([rule.chance(one) for one in told], right) for name, rule in rules.items()}
    assert losses["scored"] < losses["agreement"] + 0.02 < losses["adaptive_again"] - 0.2
    assert rules["scored"].chance(place(0.4, SURE)) > 0.8
    assert rules["scored"].chance(place(0.4, DOUBTS)) < 0.2
    assert rules["adaptive_again"].chance(place(0.4, SURE)) == rules["adaptive_again"].chance(place(0.4, DOUBTS))


@pytest.mark.parametrize("name", RULES)
def test_without_anything_to_learn_from_a_rule_trusts_the_adaptive_model(name: str) -> None:
    rule = fit_rule(name, [place(0.5)], [True])
    assert abs(math.log(rule.chance(place(0.9)) / (1 - rule.chance(place(0.9)))) - math.log(9)) < 2.0


def test_keys_saved_are_compared_commit_by_commit() -> None:
    one, other = [Counts(100, 80, 0, 0, 0), Counts(100, 90, 0, 0, 0)], [Counts(100, 90, 0, 0, 0)] * 2
    assert command.paired(one, other) == [0.05, 0.0, 0.1]
    assert command.paired(other, other) == [0.0, 0.0, 0.0]


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=folder, check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    for number in range(4):
        (tmp_path / "a.py").write_text(LINES * (number + 1))
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", f"{number}")
    return tmp_path


@pytest.mark.slow
def test_the_command_fits_on_some_repositories_and_reports_on_others(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "NetworkScorer", lambda *_, **__: Network())
    arguments = ["w.gguf", "--fit", str(repository), "--report", str(repository), "--commits", "3"]
    done = CliRunner().invoke(command.app, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["commits"] == 3 and set(found["over_adaptive"]) == set(RULES) == set(found["rules"])
    assert found["places"]["fit"] > 0 and found["places"]["report"] > 0
    assert found["adaptive"]["saved"][0] > 0


def test_weights_that_are_none_are_refused_by_name(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    arguments = [str(tmp_path / "none.gguf"), "--fit", str(repository), "--report", str(repository)]
    done = CliRunner().invoke(command.app, arguments)
    assert done.exit_code != 0 and "none.gguf" in done.output
