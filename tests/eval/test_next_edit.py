"""`foretype eval next-edit`: what is counted as right, on scored fixtures, in a recording and in commits; and what cannot be read."""

import itertools
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from e2e.edit_model_support import edit_model
from e2e.lsp_support import gateway
from foretype_context.edits.followed import applied
from foretype_context.syntax.document import Edit
from foretype_eval.cli import app
from foretype_eval.next_edit.changes import edits_between, leads_to
from foretype_eval.next_edit.developer import Developer, File
from foretype_eval.next_edit.named_changes import met, renames, signatures
from foretype_eval.next_edit.offers import Offer
from foretype_eval.next_edit.tally import ClusterTally, figures
from foretype_eval.replay.edit_events import Changed
from foretype_eval.replay.edit_recording import load_recording
from git_repo import git, history
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

CASES = Path(__file__).parent / "next_edit_cases"
AREA = "def area(width, height):\n    if width < 0:\n        return 0\n    return width * height\n"
CALLS = AREA + "\n\nprint(area(1, 2))\nprint(area(3, 4))\n"


def run(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["next-edit", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def in_sequence(edits: Sequence[Edit]) -> list[Edit]:
    """Each in the coordinates that the one before it left."""
    shift, found = 0, list[Edit]()
    for start, end, text in edits:
        found.append(Edit(start + shift, end + shift, text))
        shift += len(text) - (end - start)
    return found


def recording(path: Path, steps: Sequence[tuple[float, str | tuple[int, int, str]]], text: str = AREA) -> Path:
    """Changes of one Python file; a step of text is the reason that an editor gives for the change before it."""
    log: list[dict[str, Any]] = [
        {"kind": "documentEncountered", "id": 0, "time": 0, "relativePath": "area.py"},
        {"kind": "setContent", "id": 0, "time": 0, "content": text},
    ]
    for at_s, step in steps:
        time_ms = round(1000 * at_s)
        if isinstance(step, str):
            data = {"sourceId": "TextModel.setChangeReason", "source": step, "v": 2}
            log.append({"kind": "documentEvent", "id": 0, "time": time_ms, "data": data})
        else:
            log.append({"kind": "changed", "id": 0, "time": time_ms, "edit": [list(step)]})
    path.write_text(json.dumps({"log": log}), "utf-8")
    return path


# What is right


@given(st.text("ab \n(", max_size=60), st.text("ab \n(", max_size=60))
def test_edits_between_two_texts_lead_from_one_to_the_other(old: str, new: str) -> None:
    edits = edits_between(old, new)
    assert applied(old, in_sequence(edits)) == new
    assert all(one.end < other.start for one, other in itertools.pairwise(edits))


def test_what_changed_is_told_word_by_word() -> None:
    assert edits_between(AREA, AREA.replace("width", "size")) == [Edit(at, at + 5, "size") for at in (9, 32, 71)]


@pytest.mark.parametrize(
    ("edit", "wanted", "right"),
    [
        (Edit(2, 7, "size"), "f(size)\n", True),
        (Edit(2, 7, "size"), "f(size, 3)\n", True),  # a part of what was wanted
        (Edit(2, 7, "size, 3"), "f(size)\n", False),  # more than that
        (Edit(2, 7, "size"), "f(width)\n", False),
        (Edit(2, 7, "size"), "g(other)\n", False),
        (Edit(2, 7, "size"), "\n", False),
        (Edit(2, 7, "width"), "f(size)\n", False),  # changes nothing
    ],
)
def test_an_edit_is_right_that_is_a_step_on_a_shortest_way(edit: Edit, wanted: str, right: bool) -> None:
    assert leads_to("f(width)\n", edit, wanted) is right


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("from .a import _old, other\n\nx = 1\n", "from .a import other, old\n\nx = 1\n"),
        ("from .a import (  # noqa: X1\n    _old,\n    other,\n)\n", "from .a import (  # noqa: X1\n    other,\n    old,\n)\n"),
        ("import {_old, other} from './a';\n", "import { other, old } from './a';\n"),
        ("from a import _old\nfrom a import other\n", "from a import other\nfrom a import old\n"),
        ("from a import b\nfrom a import c\nfrom a import _old\nfrom a import x\n", "from a import a\nfrom a import b\nfrom a import c\nfrom a import old\n"),
    ],
)  # fmt: skip
def test_the_order_of_imported_names_is_a_formatters(text: str, wanted: str) -> None:
    at = text.index("_old")
    assert leads_to(text, Edit(at, at + 4, "old"), wanted)
    assert not leads_to(text, Edit(at, at + 4, "older"), wanted)
    for other in ("f(b, a)\n", "import os\nb, a\n", "from a import *\nb, a\n"):
        assert not leads_to(other, Edit(0, 0, "x"), other.replace("b, a", "a, b"))
        assert edits_between(other, other.replace("b, a", "a, b"))


def test_a_line_that_is_being_edited_is_left_alone_by_who_waits_longer_than_most_pauses_in_a_line() -> None:
    before = "".join(f"call{n}(old{n}, same, same, same, old{n})\n" for n in range(40))
    wanted = before.replace("old", "new")

    class Patient:
        clock = staticmethod(lambda: 0.0)

        def __init__(self, in_line_s: float) -> None:
            self.in_line_s = in_line_s
            self.asked = 0

        def opened(self, path: str, text: str) -> None: ...
        def changed(self, path: str, edits: object, at_s: float, *, accepted: bool = False) -> None: ...
        def refused(self, offer: Offer) -> None: ...

        def wait_s(self, *, in_line: bool) -> float:
            return self.in_line_s if in_line else 0.4

        def next(self, path: str, cursor: int) -> Offer | None:
            self.asked += 1
            return None

    asked = dict[float, int]()
    for in_line_s in (0.0, 1.0, 2.0):
        predictor = Patient(in_line_s)
        Developer(predictor, [File("a.py", before, wanted)], ClusterTally("")).work()
        asked[in_line_s] = predictor.asked
    assert asked == {0.0: 80, 1.0: 60, 2.0: 50}  # in the line after all, half, and a quarter of its 40 first edits


def test_nothing_wrong_in_few_keys_is_no_certainty() -> None:
    row = figures([ClusterTally("a", opportunities=2, met=1, keys=1000, right={"rename": 1})])
    assert (row["precision"], row["recall"], row["wrong_per_1000_keys"]) == (1.0, 0.5, 0.0)
    assert row["ci"]["precision"] == [0.025, 1.0] and row["ci"]["wrong_per_1000_keys"] == [0.0, 3.69]
    assert row["by_evidence"]["rename"]["shown"] == 1


# Renames and signatures, found by the texts


def test_a_rename_is_undone_alone_with_its_declaration_first() -> None:
    new = "import math\n" + AREA.replace("width", "size").replace("return 0", "raise ValueError")
    (found,) = renames("area.py", AREA, new)
    assert (found.kind, found.name) == ("parameter", "width → size")
    assert found.file.before == new.replace("size", "width") and found.file.wanted == new
    assert found.file.first == (Edit(new.index("size"), new.index("size") + 5, "size"),)
    assert len(found.wanted) == 2 and met(found, found.file.before) == 0 and met(found, new) == 2
    assert met(found, found.file.before.replace("if width", "if size")) == 1


def test_a_name_that_only_took_anothers_place_in_uses_is_no_rename() -> None:
    new = CALLS.replace("print", "log")
    assert renames("area.py", CALLS, new) == [] and signatures("area.py", CALLS, new) == []


def test_a_changed_signature_is_undone_with_the_calls_that_followed_it() -> None:
    new = CALLS.replace("height):", "height, deep):").replace("(1, 2)", "(1, 2, 3)").replace("(3, 4)", "(3, 4, 3)")
    (found,) = signatures("area.py", CALLS, new)
    assert (found.kind, found.name) == ("signature", "area")
    assert found.file.before == CALLS and applied(CALLS, found.file.first or ()).startswith(
        "def area(width, height, deep)"
    )
    assert [found.file.wanted[start:end] for start, end in found.wanted] == ["(1, 2, 3)", "(3, 4, 3)"]


def test_a_parameter_that_got_a_type_is_no_changed_signature() -> None:
    new = CALLS.replace("(width, ", "(width: int, ").replace("area(1, 2)", "area(1, 5)")
    assert signatures("area.py", CALLS, new) == []


# Fixtures


def test_fixtures_are_compared_by_the_texts_that_come_of_them() -> None:
    found = run("--cases", str(CASES))
    assert found["fixtures"] == {"deleted-line": "silent", "like-edits": "valid", "renamed-parameter": "nextEdit"}
    assert (found["kind"], found["cases"], found["shown"], found["right"], found["wrong"]) == ("fixtures", 3, 2, 2, 0)
    assert {name: row["shown"] for name, row in found["by_evidence"].items()} == {"declaration": 1, "like_edits": 1}
    assert found["ms"]["n"] == 3 and set(found["floors"]) == {"copy", "replace"}


def test_what_was_scored_bad_is_wrong_and_told_with_its_line(tmp_path: Path) -> None:
    shutil.copytree(CASES / "renamed-parameter", tmp_path / "one")
    scored = tmp_path / "one" / "scoredEdits.w.json"
    scored.write_text(scored.read_text("utf-8").replace('"bad"', '"valid"').replace('"nextEdit"', '"bad"'), "utf-8")
    found = run("--cases", str(tmp_path), "--wrong", str(tmp_path / "wrong.jsonl"))
    assert (found["fixtures"], found["wrong"], found["precision"]) == ({"one": "bad"}, 1, 0.0)
    (line,) = (tmp_path / "wrong.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["evidence"] == "declaration"


# A recording


def test_an_edit_that_was_offered_before_it_was_made_is_right(tmp_path: Path) -> None:
    first, second = AREA.index("width", 20) - 1, AREA.index("width", 60) - 2
    path = recording(
        tmp_path / "r.json", [(1, (9, 14, "size")), (4, (first, first + 5, "size")), (7, (second, second + 5, "size"))]
    )
    found = run("--cases", str(path))
    assert found["at_opportunities"] == {"right": 2, "wrong": 0, "silent": 0}
    assert (found["opportunities"], found["shown"], found["right"], found["wrong"]) == (2, 2, 2, 0)
    assert (found["keys"], found["keys_saved"], found["recall"]) == (3, 8, 1.0)


def test_an_offer_that_nobody_follows_is_wrong_and_counted_once(tmp_path: Path) -> None:
    text = "def area(width):\n    return width\n"
    end = len(text) - 1
    steps = [(1, (9, 14, "size")), (4, (end, end, "\n")), (6, (end + 1, end + 1, "x"))]
    path = recording(tmp_path / "r.json", steps, text)
    found = run("--cases", str(path))
    assert (found["shown"], found["right"], found["wrong"]) == (1, 0, 1)
    assert found["at_opportunities"] == {"right": 0, "wrong": 1, "silent": 0}
    assert found["wrong_per_1000_keys"] == 333.3333


def test_what_nobody_had_time_to_see_was_not_shown(tmp_path: Path) -> None:
    path = recording(tmp_path / "r.json", [(1, (9, 14, "siz")), (2.05, (12, 12, "e")), (3.05, (13, 13, "s"))])
    assert run("--cases", str(path))["ms"]["n"] == 1  # after the last key


def test_a_suggestion_that_was_taken_is_known_by_the_reason_behind_it(tmp_path: Path) -> None:
    path = recording(
        tmp_path / "r.json", [(1, (9, 14, "size")), (1, "inlineSuggestion.accept"), (2, (9, 13, "s")), (2, "snippet")]
    )
    changes = [event for event in load_recording(path).events if isinstance(event, Changed)]
    assert [change.accepted for change in changes] == [True, False]


# Commits


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    renamed = CALLS.replace("width", "size")
    return history(tmp_path / "repo", "area.py", CALLS, renamed, renamed + "\nprint(area(5, 6))\n")


def test_commits_are_typed_and_what_is_offered_is_held_against_the_rest(repo: Path) -> None:
    found = run("--repo", str(repo))
    assert (found["kind"], found["commits"]) == ("commits", 3)
    assert (found["opportunities"], found["right"], found["wrong"]) == (2, 2, 0)
    assert (found["renames"]["opportunities"], found["renames"]["recall"]) == (2, 1.0)
    assert found["by_kind"]["parameter"]["right"] == 2 and found["signatures"]["opportunities"] == 0
    assert found["keys"] == 4 + 1 + len("\nprint(area(5, 6))\n")
    assert found["floors"]["replace"]["right"] == 2 and found["floors"]["copy"]["shown"] == 0


def test_several_repositories_are_one_table(repo: Path) -> None:
    one, both = run("--repo", str(repo)), run("--repo", str(repo), "--repo", str(repo))
    assert (
        both["commits"] == 2 * one["commits"] and both["right"] == 2 * one["right"] and both["source"] == "repo, repo"
    )


def test_a_range_and_other_endings_can_be_asked_for(repo: Path) -> None:
    assert run("--repo", str(repo), "--commits", "HEAD~1..HEAD")["commits"] == 1
    done = CliRunner().invoke(app, ["next-edit", "--repo", str(repo), "--suffix", ".rs"])
    assert done.exit_code == 2 and "--suffix" in done.output


def test_commits_may_be_chosen_for_what_they_contain(repo: Path) -> None:
    found = run("--repo", str(repo), "--holding", "rename", "--holding", "signature")
    assert (found["commits"], found["searched"], found["renames"]["opportunities"]) == (1, 3, 2)
    done = CliRunner().invoke(app, ["next-edit", "--repo", str(repo), "--holding", "signature"])
    assert done.exit_code == 2 and "--holding signature: none of 3 commits contains one; raise --commits" in " ".join(
        done.output.split()
    )


# What cannot be used


BROKEN = {
    "give one of both": "",
    "give a folder of scored fixtures": "--cases nowhere",
    "no folder with `recording.w.json`": "--cases empty",
    "log[0]: field `id`": "--cases broken.json",
    "field `scoreCategory`: expected one of nextEdit, valid, bad": "--cases score",
    "field `edit[0][1]`: expected an offset": "--cases offset",
    "is not a git repository": "--repo score",
    "has no commits yet; give a repository with commits": "--repo empty",
    "--engine: 'magic' is none of rules": "--repo empty --engine magic",
}


@pytest.mark.parametrize("message", BROKEN)
def test_what_cannot_be_used_is_told_in_one_sentence_with_field_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    git(Path("empty"), "init", "-q")
    Path("broken.json").write_text('{"log": [{"kind": "changed", "id": 4, "time": 1, "edit": []}]}', "utf-8")
    for name, scored in {
        "score": [{"edit": None, "scoreCategory": "nice"}],
        "offset": [{"edit": [[0, 900, ""]], "scoreCategory": "bad"}],
    }.items():
        shutil.copytree(CASES / "deleted-line", Path(name) / "one")
        (Path(name) / "one" / "scoredEdits.w.json").write_text(json.dumps({"edits": scored}), "utf-8")
    done = CliRunner().invoke(app, ["next-edit", *BROKEN[message].split(), "--json"])
    assert done.exit_code == 2 and not done.stdout
    assert message in done.stderr and "Traceback" not in done.stderr


LIMITS = "limit = 1\nleast = 2\n\n\ndef fits(size):\n    return size < limit\n"


def raised(window: str) -> str:
    """What a model says that knows how this developer goes on."""
    return window.replace("least = 2\n", "least = 20\n") if "limit = 10" in window else window


def test_a_gateways_model_is_asked_where_the_rules_are_silent_and_its_part_is_told(tmp_path: Path) -> None:
    at = LIMITS.index("2") + 1
    steps = [(1.0, (9, 9, "0")), (9.0, (at + 1, at + 1, "0")), (20.0, (0, 0, "# all\n"))]
    file = recording(tmp_path / "s.json", steps, LIMITS)
    with edit_model(raised) as model:
        found = run("--cases", str(file), "--engine", "model", "--gateway", model.url)
    assert (found["engine"], found["by_evidence"]["model"]["right"], found["wrong"]) == ("model", 1, 0)
    assert found["model"]["answers"]["edit"] >= 1 and found["model"]["name"] == "scripted"
    assert run("--cases", str(file))["shown"] == 0


def test_the_rules_go_first_with_a_model_too(repo: Path) -> None:
    rules = run("--repo", str(repo), "--suffix", ".py")
    with edit_model(lambda window: window) as model:
        both = run("--repo", str(repo), "--suffix", ".py", "--engine", "model", "--gateway", model.url)
    assert both["by_evidence"] == rules["by_evidence"] and both["right"] == rules["right"] > 0
    assert set(both["model"]["answers"]) == {"nothing"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--engine", "model"), "--gateway"),
        (("--engine", "model", "--gateway", "ws://127.0.0.1:9/v1/stream", "--eagerness", "low"), "--eagerness"),
        (("--gateway", "ws://127.0.0.1:9/v1/stream"), "--engine model"),
        (("--engine", "guess"), "rules, model"),
    ],
)
def test_what_an_engine_needs_and_what_it_does_not_is_named(arguments: Sequence[str], said: str) -> None:
    done = CliRunner().invoke(app, ["next-edit", "--cases", str(CASES), *arguments])
    assert done.exit_code == 2 and said in done.output


def test_a_gateway_without_such_a_model_is_told_apart(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        arguments = ["next-edit", "--cases", str(CASES), "--engine", "model", "--gateway", running.url]
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2 and "model.next_edit" in done.output
