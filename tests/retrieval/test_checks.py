import re
from pathlib import Path

import pytest
import typer
from foretype_retrieval import checks as module
from foretype_retrieval.checks import checks
from foretype_retrieval.cli import index
from foretype_retrieval.indexing import update_workspace
from foretype_retrieval.store import folder_of
from retrieval.workspace import write_files
from typer.main import get_command


def test_a_missing_embedder_says_what_goes_on_and_what_to_do(tmp_path: Path) -> None:
    name, good, detail, remedy = next(iter(checks(tmp_path, tmp_path / "none.npz")))
    assert (name, good) == ("embedder", False) and "none.npz" in detail and "found by words alone" in remedy
    app = typer.Typer()
    app.command()(index)
    known = {name for option in get_command(app).params for name in option.opts}
    assert {*re.findall(r"--[a-z-]+", remedy)} <= known and "--embedder" in remedy


def test_an_embedder_that_works_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Good:
        dimensions, digest = 8, "ab" * 16

    monkeypatch.setattr(module, "default_embedder", lambda *_, **__: Good())
    assert next(iter(checks(tmp_path))) == ("embedder", True, "8 dimensions, abababababab", "")


def test_the_index_is_counted(tmp_path: Path) -> None:
    assert "no folder is indexed yet" in list(checks(tmp_path / "cache"))[1][2]
    root = write_files(tmp_path / "w")
    update_workspace(root, folder_of(tmp_path / "cache", root), None)
    name, good, detail, _ = list(checks(tmp_path / "cache"))[1]
    assert (name, good) == ("index", True) and detail.startswith("1 folder indexed, ")


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index").mkdir()
    monkeypatch.setattr(Path, "iterdir", lambda self: (_ for _ in ()).throw(PermissionError("denied")))
    name, good, detail, remedy = list(checks(tmp_path))[1]
    assert (name, good) == ("index", False) and "denied" in detail and "readable" in remedy
