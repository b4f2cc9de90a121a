"""`foretype bench context`: its keys, and that a document keeps little memory."""

from __future__ import annotations

import json

import pytest
from foretype_lab.commands import bench
from typer.testing import CliRunner


@pytest.mark.slow
def test_the_command_prints_one_object_with_the_agreed_keys() -> None:
    done = CliRunner().invoke(bench, ["context", "--lines", "2000", "--keys", "60", "--snippets", "5", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    for name in ("didchange", "syntax", "assembly"):
        for clock in ("ms", "cpu_ms"):
            assert set(result[f"{name}_{clock}"]) == {"p50", "p95", "p99", "max"}
    assert (result["lines"], result["keys"], result["snippets"]) == (2000, 60, 5)
    memory = result["memory"]
    assert 1 <= memory["opened_per_byte"] < memory["used_per_byte"] < 20
    assert result["keys_without_tree"] == 0
    table = CliRunner().invoke(bench, ["context", "--lines", "200", "--keys", "20", "--snippets", "0"])
    assert table.exit_code == 0 and "didChange" in table.stdout
