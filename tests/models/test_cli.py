import dataclasses
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
    assert model["grammar"] == artifacts.locate().grammar


def test_verify_says_ok_for_each_file(tmp_path: Path) -> None:
    done = RUN.invoke(cli.app, ["verify", "--out", str(tmp_path)])
    assert done.exit_code == 0
    assert done.stdout.count("ok ") == len(artifacts.available())


def test_verify_fails_with_the_file_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: Path) -> list[artifacts.Artifact]:
        raise artifacts.TruncatedArtifactError("m.gguf has 1 bytes instead of 2; restore it")

    monkeypatch.setattr(artifacts, "verify", broken)
    done = RUN.invoke(cli.app, ["verify"])
    assert done.exit_code == 1
    assert "m.gguf has 1 bytes instead of 2; restore it" in done.output


@pytest.mark.parametrize("layout", ["psm_line_lost", "", 5, ["spm"]])
def test_a_layout_that_the_grammar_lacks_is_a_fault_of_the_entry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, layout: object
) -> None:
    shipped = artifacts.locate()
    wrong = dataclasses.replace(shipped, profile={"layout": layout}, path=tmp_path / "m.gguf")

    def read(_folder: Path) -> list[artifacts.Artifact]:
        return [wrong]

    monkeypatch.setattr(artifacts, "verify", read)
    done = RUN.invoke(cli.app, ["verify"])
    assert done.exit_code == 1
    assert f"index.json: {shipped.name}: profile.layout: {layout!r} is not one of" in done.output
    assert f"of {shipped.grammar}" in done.output


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
