"""Cuts of held-out files, and what is said of the answers there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from shutil import which

import pytest
from foretype_eval.fim.grade import harms
from foretype_lab import model_commands
from foretype_lab.corpus.store import Store, build_store
from foretype_lab.quality.behave import KINDS, Answer, Cut, cuts_of, judged
from foretype_lab.quality.behaviour import loops, taken
from foretype_models import artifacts
from foretype_wire.messages import Finish
from typer.testing import CliRunner

PYTHON = (
    "import os\n\n\ndef first(path):\n    # a comment\n    for name in sorted(os.listdir(path)):\n        return name\n"
)
GO = "package a\n\nfunc first(path string) string {\n\tname := path + path\n\treturn name\n}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = [
        ("one", "one/a.py", PYTHON),
        ("one", "one/b.go", GO),
        ("two", "two/c.py", PYTHON * 2),
        ("two", "two/d.py", ""),
    ]
    rows = ({"repo": repo, "path": path, "text": text} for repo, path, text in files)
    build_store(rows, tmp_path / "validation")
    return tmp_path


def test_cuts_are_the_same_again_spread_over_projects_and_never_comments(folder: Path) -> None:
    store = Store(folder / "validation")
    drawn = list(cuts_of(store, 20, seed=3))
    assert drawn == list(cuts_of(store, 20, seed=3))
    assert Counter((language, cut.kind) for language, cut in drawn) == {
        (language, kind): 20 for language in ("python", "go") for kind in KINDS
    }
    assert {cut.path for language, cut in drawn if language == "python"} == {"one/a.py", "two/c.py"}
    for _, cut in drawn:
        line = cut.text[cut.text.rfind("\n", 0, cut.start) + 1 : cut.end]
        assert cut.start < cut.end and "\n" not in line and not line.strip().startswith("#")
        if cut.kind == "next_line":
            assert not line[: len(line) - (cut.end - cut.start)].strip()
    assert {language for language, _ in cuts_of(store, 2, seed=3, languages=["go"])} == {"go"}


def test_an_answer_is_judged_by_its_first_line_and_by_what_ended_it() -> None:
    start = PYTHON.index("return name")
    cut = Cut("next_line", "a.py", PYTHON, start, start + len("return name"))

    def said(text: str, finish: Finish | None = Finish.END_OF_MIDDLE) -> dict[str, bool | None]:
        return judged(cut, Answer(text, finish, shown=(text.partition("\n")[0], 0)), lambda text: list(text.encode()))

    assert said("return name") == {
        "exact": True,
        "first_word": True,
        "ends_in_line": True,
        "loops": False,
        "harm": False,
        "parses": True,
    }
    longer = said("return name\n        more", Finish.LENGTH)
    assert (longer["exact"], longer["ends_in_line"]) == (True, False)
    assert said("return other", Finish.LENGTH)["first_word"] and not said("return other")["exact"]
    assert said("return ((name")["harm"]
    assert said("")["harm"] is None and said("")["ends_in_line"]
    assert said("ab" * 9)["loops"]
    assert said("if name:")["parses"] is True, "half of what will be written"
    assert said("")["parses"] is None


def test_what_does_not_begin_as_the_prompt_wants_is_seen_by_nobody() -> None:
    cut = Cut("next_line", "a.py", "x = 1\ny = 2\n", 6, 11)
    told = judged(cut, Answer("", Finish.END_OF_MIDDLE, garbled=True), lambda text: list(text.encode()))
    assert told == {
        "exact": False,
        "first_word": False,
        "ends_in_line": None,
        "loops": None,
        "harm": None,
        "parses": None,
    }


def test_a_loop_is_a_unit_again_and_again_at_the_end() -> None:
    assert loops([1, 2, 3] * 4) and loops([9, 9, *[1, 2] * 4]) and loops([5] * 8)
    assert not loops([1, 2, 3] * 3) and not loops([5] * 7) and not loops([*[1, 2] * 9, 7]) and not loops([])


def test_harm_is_told_in_each_language_that_has_a_syntax() -> None:
    assert harms("x = 1\n", "f(1", "\n", "python") and not harms("x = 1\n", "f(1)", "\n", "python")
    assert harms("package a\n", "var x = f(1", "\n", "go") and not harms("package a\n", "var x = f(1)", "\n", "go")
    assert harms("x = ", "f(", "", "no-such-language") is None


@pytest.mark.slow
def test_the_command_asks_the_embedded_engine_and_prints_each_language(folder: Path) -> None:
    asked = ["behave", str(artifacts.locate().path), "--store", str(folder), "--cuts", "1", "--json"]
    done = CliRunner().invoke(model_commands.app, asked)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert set(told["languages"]) == {"python", "go"} and told["all"]["cuts"] == 4
    assert told["sha256"] == artifacts.locate().sha256


def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(model_commands.app, ["behave", "m.gguf", "--store", str(tmp_path / "none")])
    assert done.exit_code == 1 and "none" in done.output


def test_a_languages_own_checker_is_asked() -> None:
    assert taken("x = 1\n", "python") and not taken("x = \n", "python")
    assert taken("x", "no-such-language") is None
    if which("bash"):
        assert taken("if true; then :; fi\n", "shellscript") and not taken("if true; then\n", "shellscript")
    if which("node"):
        assert taken("import a from 'b';\n", "javascript") and not taken("const a = ;\n", "javascript")
