import subprocess
import sys
from pathlib import Path

import pytest
from foretype_lab import model_commands
from foretype_lab.processes import environment
from foretype_models import artifacts
from typer.testing import CliRunner

RUN = CliRunner()


@pytest.mark.parametrize("command", ["evaluate", "calibrate", "layouts"])
def test_a_layout_to_measure_in_is_checked_before_anything_runs(command: str, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    done = RUN.invoke(model_commands.app, [command, "--store", str(tmp_path), "--layout", "copilot"])
    assert done.exit_code == 1
    assert "--layout: 'copilot' is not one of psm_line_last, psm_growing, psm_classic, spm of foretype-1" in done.output


def test_the_layout_of_the_model_before_is_checked_before_anything_runs(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    before = ["--previous", str(artifacts.locate().path), "--previous-layout", "copilot"]
    done = RUN.invoke(model_commands.app, ["evaluate", "--store", str(tmp_path), *before])
    assert done.exit_code == 1
    assert "--previous-layout: 'copilot' is not one of psm_line_last" in done.output


def test_a_checkpoint_without_its_log_is_refused(tmp_path: Path) -> None:
    done = RUN.invoke(model_commands.app, ["evaluate", str(tmp_path / "last.pt"), "--store", str(tmp_path)])
    assert done.exit_code == 1
    assert "go together" in done.output


def test_an_unknown_export_format_is_refused(tmp_path: Path) -> None:
    done = RUN.invoke(model_commands.app, ["export", str(tmp_path / "last.pt"), "--to", "onnx"])
    assert done.exit_code == 1
    assert "there are gguf and safetensors" in done.output


def test_a_checkpoint_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for path in (tmp_path / "missing.pt", tmp_path / "broken.pt"):
        (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04 half of a file")
        done = RUN.invoke(model_commands.app, ["export", str(path), "--out", str(tmp_path)])
        assert done.exit_code == 1
        assert path.name in done.output
        assert "unchanged" in done.output


def test_importing_the_commands_loads_nothing_heavy() -> None:
    code = "import sys; import foretype_lab.model_commands; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert not {"torch", "numpy", "gguf", "openvino", "transformers"} & set(done.stdout.split())
