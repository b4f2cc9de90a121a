"""Whole runs: baselines without a model, and a run through a real gateway process with the scripted engine."""

import json
from pathlib import Path
from typing import Any

import pytest
from foretype_eval.cli import app
from foretype_eval.fim.ask import AskOptions, first_line
from foretype_eval.fim.baselines import Baseline
from foretype_eval.fim.run import FimOptions, run_fim
from foretype_eval.gateway import GatewayOptions
from foretype_wire.errors import GatewayGoneError
from typer.testing import CliRunner


@pytest.mark.parametrize(
    ("text", "line"),
    [("x = 1\ny", "x = 1"), ("\n  x\n", "\n  x"), ("", ""), ("  \n", ""), ("    return", "    return")],
)
def test_the_first_line_ends_at_the_newline_after_a_non_blank(text: str, line: str) -> None:
    assert first_line(text) == line


async def test_the_reference_row_passes_and_says_how_it_was_confined(write_rows: Any, single_line_rows: Any) -> None:
    data = write_rows("lines.jsonl.gz", single_line_rows)
    summary = await run_fim(FimOptions(data=data, baseline=Baseline.REFERENCE))
    assert summary["pass_at_1"] == summary["exact_match"] == 1.0
    assert summary["n"] == len(single_line_rows)
    assert summary["clusters"] == 3
    assert set(summary["isolation"]) == {"network", "files", "processes"}


async def test_items_whose_reference_fails_are_left_out_and_counted(write_rows: Any, safim_rows: Any) -> None:
    data = write_rows("safim.jsonl", safim_rows)
    summary = await run_fim(FimOptions(data=data, baseline=Baseline.EMPTY))
    assert summary["data"]["reference_failures"] == 1
    assert summary["n"] == 2
    assert summary["executed"] == 1


async def test_a_limit_is_spread_over_the_file(write_rows: Any, single_line_rows: Any) -> None:
    data = write_rows("lines.jsonl", single_line_rows)
    summary = await run_fim(FimOptions(data=data, baseline=Baseline.REFERENCE, limit=3))
    assert (summary["n"], summary["clusters"]) == (3, 3)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("layout", [None, "psm_classic"])
async def test_a_run_through_the_gateway_writes_rows_without_text(
    write_rows: Any, single_line_rows: Any, random_span_rows: Any, tmp_path: Path, layout: str | None
) -> None:
    rows = random_span_rows if layout is None else single_line_rows
    data = write_rows("data.jsonl", rows)
    out = tmp_path / "run"
    options = FimOptions(
        data=data, out=out, layout=layout, ask=AskOptions(max_tokens=16), gateway=GatewayOptions(engine="scripted")
    )
    summary = await run_fim(options)
    assert summary["errors"] == {}
    assert summary["system"]["layout"] == (layout or "psm_line_last")
    assert summary["ttft_ms"]["n"] > 0
    assert json.loads((out / "summary.json").read_text()) == summary
    written = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert [row["id"] for row in written] == [row["task_id"] for row in rows]
    assert all(row["prompt_tokens"] > 10 and row["text"] is None for row in written)
    text = (out / "items.jsonl").read_text()
    assert not any(
        row["canonical_solution"].strip() in text for row in rows if len(row["canonical_solution"].strip()) > 10
    )
    if layout is not None:
        assert all(row["finish"] in {"stop", "length", "end_of_middle"} for row in written)


async def test_a_gateway_that_is_not_there_ends_the_run(write_rows: Any, single_line_rows: Any) -> None:
    data = write_rows("lines.jsonl", single_line_rows)
    options = FimOptions(data=data, execute=False, gateway=GatewayOptions(url="ws://127.0.0.1:9/v1/stream"))
    with pytest.raises(GatewayGoneError):
        await run_fim(options)


def test_json_is_one_object_and_nothing_else(write_rows: Any, single_line_rows: Any) -> None:
    data = write_rows("lines.jsonl", single_line_rows)
    result = CliRunner().invoke(
        app, ["fim", "--data", str(data), "--baseline", "reference", "--layout", "spm", "--limit", "2", "--json"]
    )
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert {"n", "pass_at_1", "exact_match", "ci", "empty_rate"} <= set(summary)
    people = CliRunner().invoke(app, ["fim", "--data", str(data), "--baseline", "empty", "--no-execute"])
    assert people.exit_code == 0
    assert "exact match" in people.stdout


def test_bad_data_is_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("{}\n")
    result = CliRunner().invoke(app, ["fim", "--data", str(path), "--baseline", "empty", "--json"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "bad.jsonl:1" in result.stderr
