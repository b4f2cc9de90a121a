"""Case studies and published measurements beside the formulas; docs/capacity.md shows what these say."""

from pathlib import Path

import pytest
from foretype_plan.measured import measured
from foretype_plan.reference import TOLERANCE, reference

ROWS = reference()
PAGE = Path(__file__).parents[2] / "docs/capacity.md"


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['case']} {row['quantity']}" for row in ROWS])
def test_a_case_study_is_met(row):
    assert 1 - TOLERANCE <= row["ratio"] <= 1 + TOLERANCE


def test_every_case_study_is_there():
    assert len(ROWS) >= 15 and {row["case"] for row in ROWS} == {"S0", "S1", "S2", "S3", "S4"}


def test_measurements_have_a_source_and_most_are_met():
    rows = measured()
    assert len({row["source"] for row in rows}) >= 4 and len(rows) >= 5
    assert all(row["source"].startswith(("https://", "measurements/")) for row in rows)
    near = [row for row in rows if 1 - TOLERANCE <= row["ratio"] <= 1 + TOLERANCE]
    assert len(near) >= len(rows) - 1


def table(rows, heads, cells):
    lines = [
        f"| {' | '.join(heads)} |",
        "|"
        + "|".join("--:" if head in ("expected", "got", "measured", "predicted", "ratio") else "---" for head in heads)
        + "|",
    ]
    return "\n".join(lines + [f"| {' | '.join(cells(row))} |" for row in rows])


def test_the_page_shows_them():
    cases = table(
        ROWS,
        ("case", "quantity", "expected", "got", "ratio", "remark"),
        lambda row: (
            row["case"],
            row["quantity"],
            f"{row['expected']:,.4g}",
            f"{row['got']:,.4g}",
            f"{row['ratio']:.2f}",
            row["remark"],
        ),
    )
    runs = table(
        measured(),
        ("what", "measured", "predicted", "ratio", "remark"),
        lambda row: (
            f"[{row['what']}]({row['source']})",
            f"{row['measured']:,.4g}",
            f"{row['predicted']:,.4g}",
            f"{row['ratio']:.2f}",
            row["remark"],
        ),
    )
    page = PAGE.read_text("utf-8")
    for made in (cases, runs):
        assert made in page, f"docs/capacity.md is to hold:\n{made}"
