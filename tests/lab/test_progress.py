"""Quality over tokens: rows of checkpoints, and the table that the card prints of them."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from foretype_lab import model_commands
from foretype_lab.model_files import export
from foretype_lab.quality import measure_progress, progress
from foretype_models import artifacts
from typer.testing import CliRunner

RUN = CliRunner()


def kind(exact: float, loops: float) -> dict[str, float]:
    return {
        "exact_match": exact,
        "first_word_match": 0.375,
        "loop_rate": loops,
        "no_harm_rate": 0.9375,
        "end_in_line_rate": 0.5,
    }


def row(sha256: str = "a", tokens: int = 84_000_000, **fields: Any) -> progress.Measured:
    fill = {"rows": {"next_line": kind(0.0312, 0.25), "line_fill": kind(0.0725, 0.125)}}
    made = progress.Measured(
        sha256=sha256, tokens=tokens, run_tokens=62_000_000, rate_share=0.9373, layout="psm_growing", fill=fill
    )
    return msgspec.structs.replace(made, **fields)


def printed(rows: list[progress.Measured]) -> list[str]:
    return [line for line in progress.lines(msgspec.to_builtins(rows)) if line.startswith("|")]


def test_a_row_stands_beside_what_the_end_is_to_reach() -> None:
    fim = {"n": 300, "pass_at_1": 0.1033, "ci": [0.07, 0.14]}
    head, _, only, aims = printed([row(fim=fim, prefill={"recording": 4.13, "commits": 11.1})])
    assert head.startswith("| tokens, layout | fim | line_fill exact")
    assert only == (
        "| 84.0 M, `psm_growing`, 62.0 M in its run, rate 94% | 10.3 % of 300 | 7.2 % | 3.1 % | 37.5 % | 12.5 to 25.0 % "
        "| 6.2 to 6.2 % | 50.0 to 50.0 % | 4.13 | 11.10 |"
    )
    assert aims.startswith("| aim | ≥ 18 %") and aims.count("|") == only.count("|")


def test_what_was_not_measured_is_empty_and_not_nought() -> None:
    (line,) = (line for line in printed([row(run_tokens=None, rate_share=None)]) if "84.0" in line)
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert (cells[0], cells[1], cells[-2:]) == ("84.0 M, `psm_growing`", "", ["", ""])


def test_a_checkpoint_measured_again_takes_the_place_of_its_row_and_rows_stand_by_tokens(tmp_path: Path) -> None:
    path = tmp_path / "results" / "progress.json"
    progress.add(path, row("b", 150_000_000))
    progress.add(path, row("a"))
    progress.add(path, row("a", layout="spm"))
    kept = progress.add(path, row("a", rate_share=0.5))
    assert [(one.sha256, one.layout, one.rate_share) for one in kept] == [
        ("a", "psm_growing", 0.5),
        ("a", "spm", 0.9373),
        ("b", "psm_growing", 0.9373),
    ]
    assert progress.read(path) == kept


def test_a_file_of_rows_that_is_broken_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "progress.json").write_text("[{]")
    done = RUN.invoke(model_commands.app, ["progress", "--store", str(tmp_path / "none"), "--results", str(tmp_path)])
    assert done.exit_code == 1
    assert "progress.json cannot be read" in done.output and "git checkout" in done.output


def test_a_checkpoint_is_measured_in_a_folder_that_goes_and_what_ships_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = {path.name: path.stat().st_mtime_ns for path in artifacts.FOLDER.iterdir()}
    seen: list[Path] = []
    state = export.Checkpoint({"w": np.zeros(3, np.float32)}, {}, {}, {"tokens": 1000}, 0.25)

    def exported(_checkpoint: Path, folder: Path, *_: Any, trained_before: int, layout: str) -> Path:
        weights = folder / "checkpoint-q8_0.gguf"
        weights.write_bytes(b"weights")
        export.write_index(folder, "checkpoint", weights.name, 3, trained_before + 1000, "1", layout=layout)
        return weights

    def filled(path: Path, *_: Any) -> dict[str, Any]:
        seen.append(path)
        assert path.read_bytes() == b"weights"
        return row().fill

    monkeypatch.setattr(measure_progress, "read_checkpoint", lambda _: state)
    monkeypatch.setattr(measure_progress, "export_shipped", exported)
    monkeypatch.setattr(measure_progress, "Store", lambda path: path)
    monkeypatch.setattr(measure_progress.evaluate, "fill", filled)
    asked = measure_progress.Asked(store=tmp_path, layout="psm_growing")
    found = measure_progress.measure(tmp_path / "last.pt", asked, trained_before=50)
    assert (found.tokens, found.run_tokens, found.rate_share, found.fim) == (1050, 1000, 0.25, None)
    assert not seen[0].exists()
    assert shipped == {path.name: path.stat().st_mtime_ns for path in artifacts.FOLDER.iterdir()}


def test_a_checkpoint_says_at_which_share_of_its_rate_it_was_taken(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state: dict[str, Any] = {"model": {}, "config": {}, "train": {}, "progress": {"tokens": 1}}
    torch.save(state, tmp_path / "a.pt")
    assert export.read_checkpoint(tmp_path / "a.pt").rate_share is None
    torch.save(state | {"optimizers": [{"param_groups": [{"lr": 0.003, "peak": 0.004}]}]}, tmp_path / "b.pt")
    assert export.read_checkpoint(tmp_path / "b.pt").rate_share == 0.75


def test_the_rows_that_are_kept_are_those_that_the_card_prints() -> None:
    models = Path(__file__).parents[2] / "models"
    rows = json.loads((models / "results" / "progress.json").read_text("utf-8"))
    card = (models / "MODEL_CARD.md").read_text("utf-8")
    assert all(line in card for line in progress.lines(rows))
