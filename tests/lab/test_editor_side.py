"""`bench footprint`, `large-file` and `context`: real language servers, sizes too small to judge by."""

import json
from typing import Any

import pytest
from foretype_lab.commands import bench
from foretype_lab.editor_side.large_file import measure_large_file
from typer.testing import CliRunner


def test_the_import_is_that_of_the_whole_language_server() -> None:
    answer = CliRunner().invoke(bench, ["footprint", "--imports", "2", "--idle-s", "0", "--json"])
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    assert set(found) == {"import_ms", "import_cpu_ms"}
    assert found["import_ms"]["n"] == 2
    assert found["import_cpu_ms"]["p50"] > 20, "less than any interpreter with an event loop takes"


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_each_file_has_one_first_key_and_the_others_after_it() -> None:
    found = await measure_large_file(files=2, lines=300, keys=4, rest_s=0.05)
    counts = {name: row["n"] for name, row in found.items() if name.endswith("_ms")}
    assert counts["open_ms"] == counts["first_key_ms"] == 2 and counts["key_ms"] == counts["change_ms"] == 6
    assert found["first_key_work_ms"]["p50"] > 0 and found["lines"] == 300


@pytest.mark.slow
def test_a_key_s_cost_is_told_on_both_clocks() -> None:
    answer = CliRunner().invoke(bench, ["context", "--lines", "2000", "--keys", "60", "--snippets", "5", "--json"])
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    for name in ("didchange", "syntax", "assembly"):
        for clock in ("ms", "cpu_ms"):
            assert set(found[f"{name}_{clock}"]) == {"p50", "p95", "p99", "max"}
    assert (found["lines"], found["keys"], found["snippets"], found["keys_without_tree"]) == (2000, 60, 5, 0)
