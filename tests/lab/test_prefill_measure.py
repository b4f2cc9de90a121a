"""Tokens a prefix cache computes, layout by layout: against figures that can be worked out by hand."""

import json
from pathlib import Path

import pytest
from foretype_context.syntax.document import Edit
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_eval.replay.edit_events import Changed, Event, Loaded, Moved, Recording
from foretype_lab.commands import bench
from foretype_lab.prefill.asking_moments import Cause, moments_of
from foretype_lab.prefill.measure import LAYOUTS, MeasureOptions, measure
from foretype_models.artifacts import FOLDER
from typer.testing import CliRunner

TEXT = "".join(f"def function_{n}(value):\n    return value * {n} + offset_{n}\n\n\n" for n in range(12))
HOLE = TEXT.index("def function_6")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(FOLDER / "tokenizer.json")


def session(*, keys: str = "value = 1\nother", gap_s: float = 0.2) -> Recording:
    """Types `keys` on an empty line in the middle of a file."""
    text = TEXT[:HOLE] + "\n" + TEXT[HOLE:]
    events: list[Event] = [Loaded(0.0, "src/a.py", text), Moved(0.0, "src/a.py", HOLE)]
    events += [Changed(1 + n * gap_s, "src/a.py", (Edit(HOLE + n, HOLE + n, key),)) for n, key in enumerate(keys)]
    return Recording("session", tuple(events))


def test_the_report_has_the_keys_that_were_agreed(tokenizer: Tokenizer) -> None:
    result = measure(moments_of(session()), tokenizer, MeasureOptions())
    assert result == measure(moments_of(session()), tokenizer, MeasureOptions())
    assert list(result) == ["requests", "new_tokens", "typed_tokens", "default", "layouts"]
    assert set(result["layouts"]) == set(LAYOUTS) and result["default"] in LAYOUTS
    for row in result["layouts"].values():
        assert list(row) == [
            "prompt_tokens",
            "computed_tokens",
            "ratio",
            "ratio_typed",
            "cached_share_session",
            "by_cause",
        ]
        assert set(row["by_cause"]) == {cause.value for cause in Cause}
        assert sum(one["requests"] for one in row["by_cause"].values()) == result["requests"]
        assert sum(one["computed_tokens"] for one in row["by_cause"].values()) == row["computed_tokens"]
        assert row["ratio"] == round(row["computed_tokens"] / result["new_tokens"], 3)
        assert 0 <= row["cached_share_session"] < 1


def test_keys_on_one_line_append_with_the_typed_part_last_and_recompute_the_suffix_in_the_classic_order(
    tokenizer: Tokenizer,
) -> None:
    result = measure(moments_of(session(keys="value = 1 + two")), tokenizer, MeasureOptions(block_tokens=1))
    suffix_tokens = tokenizer.count(TEXT[HOLE:])
    rows = {name: row["by_cause"]["in_line"] for name, row in result["layouts"].items()}
    for name in ("psm_line_last", "psm_growing", "spm"):
        # One token a key at most, and sometimes the one before it merges with it.
        assert rows[name]["computed_tokens"] <= 3 * rows[name]["requests"], name
    assert rows["psm_classic"]["computed_tokens"] >= suffix_tokens * rows["psm_classic"]["requests"]


def test_enter_appends_in_growing_alone_and_recomputes_the_suffix_where_the_line_is_last(tokenizer: Tokenizer) -> None:
    result = measure(moments_of(session(keys="value = 1\n")), tokenizer, MeasureOptions(block_tokens=1))
    suffix_tokens = tokenizer.count(TEXT[HOLE:])
    enter = {name: row["by_cause"]["enter"]["computed_tokens"] for name, row in result["layouts"].items()}
    assert enter["psm_growing"] <= 3
    assert enter["psm_line_last"] >= suffix_tokens


def test_blocks_round_what_is_found_again_down(tokenizer: Tokenizer) -> None:
    computed = {
        block: measure(moments_of(session()), tokenizer, MeasureOptions(block_tokens=block))["layouts"]["psm_growing"]
        for block in (1, 16, 32)
    }
    assert computed[1]["computed_tokens"] < computed[16]["computed_tokens"] < computed[32]["computed_tokens"]
    assert computed[1]["prompt_tokens"] == computed[32]["prompt_tokens"]


def test_nothing_typed_gives_no_ratio(tokenizer: Tokenizer) -> None:
    gone = Recording("gone", (*session(keys="").events, Changed(1.0, "src/a.py", (Edit(HOLE - 1, HOLE, ""),))))
    result = measure(moments_of(gone), tokenizer, MeasureOptions())
    assert result["requests"] == 1 and result["layouts"]["spm"]["ratio"] is None


def test_the_command_prints_one_object(tmp_path: Path) -> None:
    entries = [
        {"kind": "documentEncountered", "id": 0, "time": 0, "relativePath": "a.py"},
        {"kind": "setContent", "id": 0, "time": 0, "content": TEXT},
        {"kind": "selectionChanged", "id": 0, "time": 5, "selection": [[HOLE - 1, HOLE - 1]]},
        {"kind": "changed", "id": 0, "time": 1000, "edit": [[HOLE - 1, HOLE - 1, "x"]]},
        {"kind": "changed", "id": 0, "time": 2000, "edit": [[HOLE, HOLE, "y"]]},
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(map(json.dumps, entries)))
    done = CliRunner().invoke(bench, ["prefill", str(path), "--block", "32", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["requests"], result["block_tokens"]) == (2, 32)
    table = CliRunner().invoke(bench, ["prefill", str(path)])
    assert table.exit_code == 0 and "psm_growing" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl"),
        (["--layout", "best", "."], "--layout"),
        (["--prompt-tokens", "70", "--suffix-tokens", "0", "BROKEN"], "line 1"),
    ],
)
def test_bad_input_ends_with_status_2_and_says_what_is_wrong(tmp_path: Path, arguments: list[str], told: str) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{")
    done = CliRunner().invoke(bench, ["prefill", *(str(broken) if one == "BROKEN" else one for one in arguments)])
    assert done.exit_code == 2 and told in done.output.replace("\n", "")
