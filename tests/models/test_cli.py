import json
import subprocess
import sys
from pathlib import Path

import pytest
from foretype_models import artifacts, cli
from typer.testing import CliRunner

RUN = CliRunner()


def test_list_names_the_default_model_first() -> None:
    done = RUN.invoke(cli.app, ["list", "--json"])
    assert done.exit_code == 0
    model = json.loads(done.stdout.splitlines()[0])
    assert model["name"] == artifacts.locate().name
    assert Path(model["path"]).is_file()
    assert model["grammar"] == "foretype-1"


def test_verify_says_ok_for_each_file() -> None:
    done = RUN.invoke(cli.app, ["verify"])
    assert done.exit_code == 0
    assert done.stdout.count("ok ") == len(artifacts.available())


def test_verify_fails_with_the_file_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: Path) -> list[artifacts.Artifact]:
        raise artifacts.TruncatedArtifactError("m.gguf has 1 bytes instead of 2; restore it")

    monkeypatch.setattr(artifacts, "verify", broken)
    done = RUN.invoke(cli.app, ["verify"])
    assert done.exit_code == 1
    assert "m.gguf has 1 bytes instead of 2; restore it" in done.output


def test_an_unknown_export_format_is_refused(tmp_path: Path) -> None:
    done = RUN.invoke(cli.app, ["export", str(tmp_path / "last.pt"), "--to", "onnx"])
    assert done.exit_code == 1
    assert "there are gguf and safetensors" in done.output


def test_a_checkpoint_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for path in (tmp_path / "missing.pt", tmp_path / "broken.pt"):
        (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04 half of a file")
        done = RUN.invoke(cli.app, ["export", str(path), "--out", str(tmp_path)])
        assert done.exit_code == 1
        assert path.name in done.output
        assert "unchanged" in done.output


def test_importing_the_commands_loads_nothing_heavy() -> None:
    code = "import sys; import foretype_models.cli; print(*{m.split('.')[0] for m in sys.modules})"
    root = str(artifacts.FOLDER.parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"torch", "numpy", "gguf", "openvino", "transformers"} & set(done.stdout.split())
