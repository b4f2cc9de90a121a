"""`bench footprint` and `bench large-file`: real language servers, sizes too small to judge by."""

from __future__ import annotations

import json
from typing import Any

import pytest
from foretype_lab.commands import bench
from foretype_lab.editor_side.footprint import FootprintOptions, measure_footprint
from foretype_lab.editor_side.large_file import LargeFileOptions, measure_large_file
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
async def test_memory_and_idling_are_those_of_the_server_and_of_the_gateway_with_its_engine() -> None:
    found = await measure_footprint(FootprintOptions(imports=0, settle_s=0.5, idle_s=1.0))
    assert 20 < found["memory_mib"]["server"] < found["memory_mib"]["gateway"], "the engine's weights are counted"
    assert set(found["idle_ms_per_s"]) == {"server", "gateway"} and min(found["idle_ms_per_s"].values()) >= 0


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_each_file_has_one_first_key_and_the_others_after_it() -> None:
    found = await measure_large_file(LargeFileOptions(files=2, lines=300, keys=4, rest_s=0.05))
    counts = {name: row["n"] for name, row in found.items() if name.endswith("_ms")}
    assert counts["open_ms"] == counts["first_key_ms"] == 2 and counts["key_ms"] == counts["change_ms"] == 6
    assert found["first_key_work_ms"]["p50"] > 0 and found["lines"] == 300
