"""An adapter among the shipped files: the default from then on, of which the rest stays as it was."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from foretype_lab.adapter.ship import ship
from foretype_lab.errors import LabError
from foretype_models import artifacts
from foretype_models.fetch import place

from models import networks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped files, with a tiny base in place of the public one."""
    monkeypatch.setattr(artifacts, "models_folder", lambda: tmp_path / "data")
    shutil.copytree(artifacts.FOLDER, tmp_path / "shipped")
    network = networks.write_base(tmp_path / "tiny.gguf")
    wheel, base = networks.write_wheel(tmp_path, network)
    index = json.loads((tmp_path / "shipped" / "index.json").read_text())
    index["base"] |= {"sha256": base.sha256, "bytes": base.size, "member": base.member, "wheel": wheel.name}
    (tmp_path / "shipped" / "index.json").write_text(json.dumps(index))
    return tmp_path / "shipped"


def adapter(folder: Path, **said: Any) -> Path:
    return networks.write_adapter(folder.parent / "a.gguf", folder.parent / "tiny.gguf", **said)


def test_it_is_the_default_once_it_is_made_and_what_else_ships_stays(folder: Path) -> None:
    before = {model.name for model in artifacts.available(folder)}
    ship(adapter(folder), folder, {"local_min_confidence": 0.4})
    default = artifacts.available(folder)[0]
    assert (default.name, default.made, default.grammar) == ("foretype-tiny", False, "foretype-2")
    assert default.profile == {"layout": "spm", "local_min_confidence": 0.4}
    assert {model.name for model in artifacts.available(folder)} == before | {"foretype-tiny"}
    assert artifacts.locate_embedder(folder) and artifacts.locate_table(folder)
    made = place.make_shipped(source=folder.parent / "tiny.gguf", shipped=folder)
    assert made.new
    found = artifacts.locate(folder=folder)
    assert (found.path, found.sha256) == (made.artifact.path, made.artifact.sha256)
    assert found.profile["local_min_confidence"] == 0.4
    assert not place.make_shipped(shipped=folder).new


def test_the_next_one_takes_its_place_and_has_to_be_made(folder: Path) -> None:
    ship(adapter(folder), folder, {"local_min_confidence": 0.4})
    place.make_shipped(source=folder.parent / "tiny.gguf", shipped=folder)
    ship(adapter(folder, seed=2, general__version="0.3.1"), folder)
    default = artifacts.available(folder)[0]
    assert (default.version, default.made, default.profile) == ("0.3.1", False, {"layout": "spm"})
    assert place.make_shipped(source=folder.parent / "tiny.gguf", shipped=folder).new
    assert artifacts.locate(folder=folder).version == "0.3.1"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"foretype__base_sha256": "00" * 32}, "was made for another base"),
        ({"foretype__grammar": "nope"}, "nope"),
        ({"foretype__layout": "nope"}, "nope"),
        ({"general__type": "model"}, "is no adapter"),
    ],
)
def test_one_that_cannot_serve_is_refused_and_nothing_changes(
    folder: Path, said: dict[str, str], sentence: str
) -> None:
    before = sorted(path.name for path in folder.iterdir()), (folder / "index.json").read_text()
    with pytest.raises(LabError, match=f"{sentence}.*nothing was changed"):
        ship(adapter(folder, **said), folder)
    assert (sorted(path.name for path in folder.iterdir()), (folder / "index.json").read_text()) == before
