"""A version stands in one place, and what carries a copy of it agrees."""

import json
import shutil
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest
from loading import loaded
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
COPIES = (
    "editors/vscode/package.json",
    "editors/emacs/foretype.el",
    "editors/jupyter/pyproject.toml",
    "editors/jupyter/package.json",
)

GATE = "models/results/gate.json"
INDEX = "models/foretype_models/artifacts/index.json"


@pytest.fixture
def release(tmp_path: Path) -> ModuleType:
    """The release's script, on a copy of the files that it compares."""
    module = loaded(ROOT / ".ci/release", "release")
    for name in ("pyproject.toml", "CHANGELOG.md", GATE, INDEX, *COPIES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    module.ROOT, module.EDITORS = tmp_path, tmp_path / "editors"  # pyright: ignore[reportAttributeAccessIssue]
    return module


def version() -> str:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))


def test_every_copy_of_the_version_agrees(release: ModuleType) -> None:
    assert release.mistakes(version()) == []


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_that_was_forgotten_is_named(release: ModuleType, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(path.read_text().replace(version(), "0.0.7", 1))
    (mistake,) = release.mistakes(version())
    assert name in mistake and "0.0.7" in mistake


def test_a_version_without_a_changelog_is_not_released(release: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.0.7\n")
    assert release.mistakes(version()) == [f"CHANGELOG.md has no section '## {version()}'"]


def test_weights_that_did_not_pass_the_gate_are_not_released(release: ModuleType, tmp_path: Path) -> None:
    passed = json.loads((tmp_path / GATE).read_text())
    for told in (
        json.dumps(passed | {"passes": False, "reason": "worse by the margin or more"}),
        json.dumps(passed | {"sha256": {"baseline": None, "candidate": "0" * 64}}),
        None,
    ):
        (tmp_path / GATE).unlink() if told is None else (tmp_path / GATE).write_text(told)
        (mistake,) = release.mistakes(version())
        assert GATE in mistake and "foretype eval gate" in mistake


def test_two_archives_of_equal_files_are_equal(release: ModuleType, tmp_path: Path) -> None:
    for number in (1, 2):
        source = tmp_path / f"source{number}"
        source.write_text("one text")
        release.archive(tmp_path / f"{number}.tar.gz", "folder", {"file": source}, when=1_700_000_000)
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()


def test_every_pin_can_be_installed_with_the_oldest_python() -> None:
    """Debian's 3.11.2 is one of those that README promises; a pin for a later 3.11 ends `make test` before it begins."""
    pins = [
        line.split("==")[0] for line in (ROOT / "requirements" / "lock.txt").read_text().splitlines() if "==" in line
    ]
    installed = {canonicalize_name(one.name): one for one in distributions()}
    refused = {
        name: asked
        for name in map(canonicalize_name, pins)
        if name in installed
        and (asked := installed[name].metadata.get("Requires-Python"))
        and not SpecifierSet(asked).contains("3.11.0")
    }
    assert refused == {}
