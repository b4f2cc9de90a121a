"""What needs no vLLM of `bench engine`: the verdict on speculation, the refusals, and an environment that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from foretype_backend.engines.draft_acceptance import Guesses
from foretype_lab.commands import bench
from foretype_lab.engine_bench.speculation import Generated, SpeculationRun, figures, lossless
from typer.testing import CliRunner

GAPS = [1.0, 0.0005, 2.0]


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ([1, 2, 3], "equal"),
        ([1, 9, 9], "tie"),  # what follows a tie is another text, and no error
        ([1, 2, 9], "different"),
        ([9, 2, 3], "different"),
        ([1, 2], "different"),
    ],
)
def test_texts_may_part_only_where_two_tokens_are_as_good_as_equal(other: list[int], verdict: str) -> None:
    assert lossless([1, 2, 3], GAPS, other) == verdict


def test_speculation_breaks_even_where_a_token_takes_the_time_it_takes_without() -> None:
    base = SpeculationRun({"go": [Generated([1] * 41, [1.0] * 41, 41, 0.4)]}, 0.41, Guesses())
    # 20 steps of twice the time give as many tokens: one guess of four accepted in each.
    even = SpeculationRun({"go": [Generated([1] * 41, [1.0] * 41, 21, 0.4)]}, 0.41, Guesses(80, 20))
    found = figures(base, even)
    assert (found["times_off"], found["step_times_off"], found["guesses_per_step"]) == (1.0, 2.0, 4.0)
    assert found["accepted_share"] == found["break_even_share"] == 0.25
    assert figures(base, base)["break_even_share"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "other"], "--engine"),
        (["--parts", "serving,all"], "all is none of"),
        *((["--batch", given], "--batch") for given in ("0", "9", "4,4", "1,", "x")),
        ([], "vllm-env"),
    ],
)
def test_what_cannot_be_measured_is_said(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FORETYPE_VLLM_PYTHON", str(tmp_path / "none"))
    result = CliRunner().invoke(bench, ["engine", *arguments])
    assert result.exit_code == 2
    assert message in result.output
