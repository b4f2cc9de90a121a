"""`foretype bench growth`: exponents of ten times as much, and each figure where its part reports it."""

import json

import pytest
from foretype_lab.commands import bench
from foretype_lab.growth import command
from foretype_lab.growth.command import GROWN, row_of
from foretype_lab.growth.parts import PARTS
from typer.testing import CliRunner


@pytest.mark.parametrize(
    ("values", "exponent"), [((2.0, 20.0), 1.0), ((3.0, 3.0), 0.0), ((1.0, 100.0), 2.0), ((0.0, 5.0), None)]
)
def test_ten_times_as_much_is_one(values: tuple[float, float], exponent: float | None) -> None:
    row = row_of("r", (5, 50), values)
    assert row["exponent"] == exponent and row["numbers"] == [5, 50]


def test_real_parts_have_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(PARTS) == set(GROWN)
    for name, few in (("tenants", 4), ("files", 20)):
        monkeypatch.setitem(command.GROWN, name, GROWN[name]._replace(few=few))
    answer = CliRunner().invoke(bench, ["growth", "--only", "tenants,files", "--json"])
    assert answer.exit_code == 0, answer.output
    rows = json.loads(answer.stdout)["rows"]
    assert len(rows) == sum(len(GROWN[name].figures) for name in ("tenants", "files"))
    assert {tuple(row["numbers"]) for row in rows} == {(4, 40), (20, 200)}


def test_what_is_none_of_them_is_named() -> None:
    answer = CliRunner().invoke(bench, ["growth", "--only", "files,users"])
    assert answer.exit_code == 2 and "'users' is none of files, sessions" in " ".join(answer.output.split())
