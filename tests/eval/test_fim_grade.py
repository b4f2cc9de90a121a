from collections.abc import Iterator
from typing import Any

import pytest
from foretype_eval.fim.baselines import Baseline, baseline
from foretype_eval.fim.grade import GradedRow, error_nodes, execute, grade, no_harm, repeats
from foretype_eval.fim.items import Item, StopRule, load_items
from foretype_eval.fim.summary import summarise
from foretype_eval.sandbox import ProgramLimits, Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ProgramLimits(wall_s=2.0)) as opened:
        yield opened


def item_of(prefix: str, reference: str, suffix: str, **options: Any) -> Item:
    return Item(
        id="x",
        cluster="x",
        prefix=prefix,
        suffix=suffix,
        reference=reference,
        language="python",
        stop=StopRule.END_OF_MIDDLE,
        **options,
    )


def test_references_pass_and_wrong_answers_fail(sandbox: Sandbox, write_rows: Any, single_line_rows: Any) -> None:
    items = load_items(write_rows("lines.jsonl", single_line_rows))
    outcomes = list(execute(sandbox, [(item, item.reference) for item in items]))
    assert outcomes == [(True, "passed")] * len(items)
    empty = list(execute(sandbox, [(item, "") for item in items]))
    assert {outcome for _, outcome in empty} <= {"failed", "syntax_error"}
    assert len(empty) == len(items)


def test_items_without_a_test_keep_their_place(sandbox: Sandbox, write_rows: Any, safim_rows: Any) -> None:
    first, wrong_reference, java = load_items(write_rows("safim.jsonl", safim_rows))
    pairs = [(item, item.reference) for item in (java, first, java, wrong_reference, java)]
    assert [outcome for _, outcome in execute(sandbox, pairs)] == [None, "passed", None, "wrong_answer", None]
    assert list(execute(sandbox, [])) == []


def test_output_is_compared_by_words_and_every_case_counts(sandbox: Sandbox, write_rows: Any, safim_rows: Any) -> None:
    first = load_items(write_rows("safim.jsonl", safim_rows))[0]
    completions = ["total = '6  \\n'\ntotal = sum(range(n+1))", "total = 6", "raise ValueError", "while True: pass"]
    outcomes = list(execute(sandbox, [(first, completion) for completion in completions]))
    assert outcomes == [(True, "passed"), (False, "wrong_answer"), (False, "failed"), (False, "timed_out")]


def test_exact_match_ignores_blanks_at_the_end_only() -> None:
    item = item_of("x = ", "1 + 2", "\n")
    assert grade(item, "1 + 2 \n", completion_hash="").exact
    assert not grade(item, " 1 + 2", completion_hash="").exact


@pytest.mark.parametrize(
    ("reference", "brace_only"), [("}", True), ("  ])\n", True), ("", False), ("  ", False), ("})x", False)]
)
def test_brace_only_references_are_told_apart(reference: str, brace_only: bool) -> None:
    assert item_of("", reference, "").brace_only is brace_only


def test_repetition_looks_back_five_lines() -> None:
    assert repeats("a = 1\nb = 2\n", "a = 1")
    assert not repeats("a = 1\n" + "".join(f"b{n}\n" for n in range(5)), "a = 1")
    assert repeats("", "x()\nx()")
    assert not repeats("a = 1\n", "")


def test_no_harm_counts_errors_against_the_file_with_its_hole() -> None:
    hole = item_of("def f(a):\n    if ", "a > 1", ":\n        return a\n")
    assert no_harm(hole, "a > 1")
    assert no_harm(hole, "")
    assert not no_harm(item_of("x = 1\n", "y = 2", "\nz = 3\n"), "y = ((2")
    assert error_nodes("x = 1\n") == 0
    assert error_nodes("x = (1\n")
    assert error_nodes("x = '\ud800'\n") is not None, "a lone surrogate does not stop the parser"


def test_baselines_are_what_they_say(write_rows: Any, single_line_rows: Any) -> None:
    items = load_items(write_rows("lines.jsonl", single_line_rows))
    assert {baseline(Baseline.EMPTY)(item) for item in items} == {""}
    assert [baseline(Baseline.REFERENCE)(item) for item in items] == [item.reference for item in items]


def test_copy_line_copies_the_rest_of_a_line_that_begins_alike() -> None:
    copy = baseline(Baseline.COPY_LINE)
    assert copy(item_of("total = count(a, b)\nother = 1\ntotal = ", "", "\n")) == "count(a, b)"
    assert copy(item_of("if a:\n    go()\nx = 1\nif a:\n", "", "\n")) == "    go()"
    assert copy(item_of("", "", "")) == ""


def test_the_summary_has_the_contract_and_its_intervals_contain_the_estimates() -> None:
    rows: list[GradedRow] = []
    for cluster in range(20):
        for number in range(3):
            item = item_of("x = ", "1" if number else "}", "\n")
            row = grade(item, "1", completion_hash="")
            row.id, row.cluster = f"{cluster}/{number}", str(cluster)
            row.passed, row.outcome, row.finish = (cluster + number) % 2 == 0, "passed", "end_of_middle"
            rows.append(row)
    summary = summarise(rows)
    assert summary["n"] == 60
    assert summary["pass_at_1"] == 0.5
    assert summary["exact_match"] == pytest.approx(40 / 60, abs=1e-4)
    assert summary["empty_rate"] == 0.0
    assert summary["brace_only"]["n"] == 20
    assert summary["without_brace_only"]["exact_match"] == 1.0
    for name, interval in summary["ci"].items():
        if interval is not None:
            assert interval[0] <= summary[name] <= interval[1]
    assert summary["ci"]["empty_rate"][1] > 0, "no empty answer in 20 clusters is no proof that there are none"


def test_a_run_without_execution_has_no_pass_rate() -> None:
    row = grade(item_of("", "x", ""), "x", completion_hash="")
    summary = summarise([row])
    assert summary["pass_at_1"] is None
    assert summary["ci"]["pass_at_1"] is None
    assert summary["exact_match"] == 1.0


def test_rows_hold_no_text_unless_asked() -> None:
    item = item_of("secret = ", "1", "\n")
    assert grade(item, "completion", completion_hash="h").text is None
    assert grade(item, "completion", completion_hash="h", keep_text=True).text == "completion"
