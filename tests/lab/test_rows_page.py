"""`foretype bench rows-page`: the tables of a page are what the generator makes of what was measured; so are this repository's."""

import json
from pathlib import Path
from typing import Any

import pytest
from foretype_lab.all_rows.sides import HERE
from foretype_lab.commands import bench
from typer.testing import CliRunner

TABLE = """
[[bench]]
name = "first"
command = ["x"]
minutes = 0.1
row = [
    { name = "kept", pick = "ms", unit = "ms", aim = 5 },
    { name = "late", pick = "ms", unit = "ms", aim = 5, record = "docs/limit.md" },
    { name = "reported", pick = "ms", unit = "ms" },
]

[[bench]]
name = "peer"
command = ["x"]
minutes = 0.1
row = [
    { front = true, name = "beside it", pick = "ms", peer = "theirs", unit = "", aim = 1, of = "peer" },
    { name = "elsewhere", pick = "ms", unit = "ms", aim = 1 },
]
"""
PAGE = "# Title\n\n<!-- rows -->\nFormer rows\n<!-- end of rows -->\nBetween.\n<!-- rows peer -->\n<!-- end of rows -->\nEnd.\n"
MACHINE = {"cores": 2, "processor": "a processor", "load_1min": 0.5}


def row(name: str, value: float | None, **more: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("unit", "against", "ratio", "low", "high", "aim", "met", "record"))
    return {"name": name} | empty | {"unit": "ms", "value": value} | more


ROWS = [
    row("kept", 4.567),
    row("late", 1234.5, against=1000, ratio=1.2345, low=1.2, high=1.3),
    row("reported", 7),
    row("beside it", 3, against=4, ratio=0.75),
    row("elsewhere", None, record="not on this machine: emacs"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.toml").write_text(TABLE)
    (tmp_path / "README.md").write_text(PAGE)
    (tmp_path / "docs" / "measurements").mkdir(parents=True)
    measured(tmp_path, "a", ROWS)
    return tmp_path


def measured(folder: Path, name: str, rows: list[dict[str, Any]], at: str = "2026-11-23T10:00+00:00") -> None:
    facts = {"at": at, "commit": "0123456789abcdef", "against": None, "machine": MACHINE, "minutes": 1.0, "rows": rows}
    (folder / "docs" / "measurements" / f"{name}.json").write_text(json.dumps(facts))


def run(folder: Path, *arguments: str) -> Any:
    files = sorted(map(str, (folder / "docs" / "measurements").glob("*.json")))
    places = ["--page", str(folder / "README.md"), "--table", str(folder / "rows.toml")]
    return CliRunner().invoke(bench, ["rows-page", *files, *places, *arguments])


def test_each_place_of_the_page_has_its_rows_with_today_s_aims(folder: Path) -> None:
    answer = run(folder)
    assert answer.exit_code == 0, answer.output
    page = (folder / "README.md").read_text()
    first, _, second = page.partition("Between.\n")
    assert "| kept | 4.57 ms |  |  | ≤ 5 | met |" in first
    assert "| late | 1,234 ms | 1,000 | 1.23 (1.2 to 1.3) | ≤ 5 | missed: [why](" in first
    assert "/docs/limit.md) |" in first
    assert "| reported | 7 ms |  |  |  |  |" in first
    assert "- [a.json](docs/measurements/a.json): 2026-11-23, commit 01234567; 2 cores, a processor, load 0.5" in first
    assert "| beside it | 3 | 4 | 0.75 | ≤ 1 of the peer's | met |" in second and "beside it" not in first
    assert "| elsewhere | – | | | ≤ 1 | not measured: not on this machine: emacs |" in second
    assert first.startswith("# Title\n") and second.endswith("End.\n") and "Former rows" not in page


def test_a_front_page_has_the_rows_that_are_marked_so(folder: Path) -> None:
    (folder / "README.md").write_text("<!-- rows front -->\n<!-- end of rows -->\n")
    assert run(folder).exit_code == 0
    page = (folder / "README.md").read_text()
    assert "| beside it | 3 |" in page
    assert "kept" not in page and "elsewhere" not in page and "a.json" not in page


def test_a_page_that_is_another_is_told_and_left(folder: Path) -> None:
    refused = run(folder, "--check")
    assert refused.exit_code == 2 and "rows-page" in refused.output
    assert (folder / "README.md").read_text() == PAGE
    assert run(folder).exit_code == 0
    assert run(folder, "--check").exit_code == 0


def test_a_later_file_wins_where_it_has_a_figure(folder: Path) -> None:
    measured(folder, "0", [row("kept", 3), row("late", None, record="failed")], at="2026-11-23T11:00+00:00")
    measured(folder, "z", [row("kept", 2)], at="2026-11-22T11:00+00:00")
    assert run(folder).exit_code == 0
    page = (folder / "README.md").read_text()
    assert "| kept | 3 ms |" in page and "| late | 1,234 ms |" in page


def test_a_miss_without_a_record_is_refused_by_name(folder: Path) -> None:
    measured(folder, "b", [row("kept", 6)])
    refused = run(folder)
    assert refused.exit_code == 2 and "kept" in refused.output and "late" not in refused.output


def test_a_page_without_a_place_or_with_an_unknown_bench_is_refused(folder: Path) -> None:
    (folder / "README.md").write_text(PAGE.replace("rows peer", "rows pear"))
    assert "pear" in run(folder).output
    (folder / "README.md").write_text("# Title\n")
    assert "no place" in run(folder).output


def test_a_file_that_is_none_is_refused(folder: Path) -> None:
    (folder / "docs" / "measurements" / "c.json").write_text('{"rows": 5}')
    assert run(folder).exit_code == 2


def test_a_row_whose_rounds_lie_more_than_a_fifth_apart_is_not_published(folder: Path) -> None:
    measured(folder, "a", [row("kept", 4.0, spread=0.2), row("late", 9.0, spread=0.21)])
    page = folder / "README.md"
    answer = CliRunner().invoke(
        bench, ["rows-page", str(folder / "docs/measurements/a.json"), "--page", str(page), "--table", str(folder / "rows.toml")]
    )  # fmt: skip
    assert answer.exit_code == 0, answer.output
    text = page.read_text()
    assert "| kept | 4 ms |  |  | ≤ 5 | met |" in text
    assert "| late | – | | | ≤ 5 | not published: its rounds lie 21% apart |" in text


def test_the_pages_are_what_the_generator_makes_of_what_was_measured() -> None:
    answer = CliRunner().invoke(bench, ["rows-page", "--check"])
    assert answer.exit_code == 0, answer.output
    assert list((HERE / "docs" / "measurements").glob("*.json")), "nothing that was measured is in the repository"
