"""Models that are kept as the library made them: found again, made again, and never in the way."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from foretype_backend.engines.embedded import prepared_models
from foretype_backend.engines.embedded.prepared_models import PreparedModels
from foretype_backend.errors import PipelineError


class Opened(NamedTuple):
    """What a pipeline was opened from."""

    path: Path
    saved: bool


class Library:
    """Opens model files and folders, and writes two files when it is told to save."""

    def __init__(self) -> None:
        self.opened: list[Opened] = []
        self.fails: Exception | None = None

    def __call__(self, path: Path, save: bool) -> str:
        self.opened.append(Opened(path, save))
        if path.is_dir():
            if (path / "model.bin").read_bytes() != b"made of gguf":
                raise PipelineError("incorrect weights")
            return "ready"
        if save:
            (path.parent / "model.xml").write_text("<net/>")
            if self.fails is not None:
                raise self.fails
            (path.parent / "model.bin").write_bytes(b"made of " + path.read_bytes())
        return "made"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"gguf")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "engine"


def open_(folder: Path, model: Path, library: Library, made_by: str = "1") -> str:
    return PreparedModels(folder, made_by).open(model, library)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_was_made_once_is_ready_the_next_time(folder: Path, model: Path) -> None:
    library = Library()
    assert open_(folder, model, library) == "made"
    (kept,) = folder.iterdir()
    assert names(kept) == ["digests.json", "model.bin", "model.xml"], "no link to the model stays"
    assert open_(folder, model, library) == "ready"
    assert library.opened[1:] == [(kept, False)]
    assert not (model.parent / "model.xml").exists()


def test_another_file_under_the_same_name_and_another_library_are_made_anew(folder: Path, model: Path) -> None:
    library = Library()
    open_(folder, model, library)
    model.write_bytes(b"gguf")
    assert open_(folder, model, library) == "ready"
    assert open_(folder, model, library, made_by="2") == "made"
    model.write_bytes(b"GGUF")
    assert open_(folder, model, library) == "made"
    assert len(names(folder)) == 3


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "no digests", "digests", "another name", "empty"])
def test_a_damaged_one_is_made_again_with_one_line(
    folder: Path, model: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    library = Library()
    open_(folder, model, library)
    (kept,) = folder.iterdir()
    weights, digests = kept / "model.bin", kept / "digests.json"
    match damage:
        case "flip":
            weights.write_bytes(b"made of gguF")
        case "truncate":
            weights.write_bytes(b"made")
        case "remove":
            weights.unlink()
        case "no digests":
            digests.unlink()
        case "digests":
            digests.write_text("[")
        case "another name":
            digests.write_text('{"../a": "0"}')
        case _:
            shutil.rmtree(kept)
            kept.mkdir()
    assert open_(folder, model, library) == "made"
    (line,) = warnings(caplog)
    assert str(kept) in line and "made again" in line
    assert open_(folder, model, library) == "ready"


def test_one_that_its_own_library_refuses_is_made_again(folder: Path, model: Path) -> None:
    class Picky(Library):
        refuses = True

        def __call__(self, path: Path, save: bool) -> str:
            if path.is_dir() and self.refuses:
                self.refuses = False
                raise PipelineError("not for this processor")
            return super().__call__(path, save)

    library = Picky()
    open_(folder, model, library)
    assert open_(folder, model, library) == "made"
    assert open_(folder, model, library) == "ready"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), PipelineError("cannot write")])
def test_a_disk_that_gets_full_costs_the_keeping_alone(
    folder: Path, model: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    library = Library()
    library.fails = error
    assert open_(folder, model, library) == "made"
    assert library.opened[-1] == (model, False), "the model's own file, and nothing is written beside it"
    assert names(folder) == []
    (line,) = warnings(caplog)
    assert "not kept" in line


def test_a_disk_without_room_is_not_filled(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.disk_usage

    def nearly_full(path: Path) -> object:
        return real(path)._replace(free=11)

    monkeypatch.setattr("shutil.disk_usage", nearly_full)
    library = Library()
    assert open_(folder, model, library) == "made"
    assert library.opened == [(model, False)]


def test_a_folder_that_cannot_be_made_costs_the_keeping_alone(
    folder: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.parent.write_text("a file stands in the way")
    library = Library()
    assert open_(folder, model, library) == "made"
    assert library.opened == [(model, False)]
    assert len(warnings(caplog)) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes wherever it likes")
def test_a_folder_that_is_only_read_still_serves_what_it_has(folder: Path, model: Path) -> None:
    library = Library()
    open_(folder, model, library)
    (kept,) = folder.iterdir()
    for path in (kept / "digests.json", kept, folder):
        path.chmod(path.stat().st_mode & ~0o222)
    assert open_(folder, model, library) == "ready"
    assert open_(folder, model, library, made_by="2") == "made"


def test_a_model_that_is_bad_itself_says_so_and_leaves_nothing(folder: Path, model: Path) -> None:
    def refuse(path: Path, save: bool) -> str:
        raise PipelineError(f"{path.name} is no model")

    with pytest.raises(PipelineError, match=r"^a\.gguf is no model"):
        PreparedModels(folder, "1").open(model, refuse)
    assert names(folder) == []


def test_a_large_model_is_not_kept_twice(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_models, "MODEL_BYTES_MAX", 3)
    library = Library()
    assert open_(folder, model, library) == "made"
    assert library.opened == [(model, False)] and not folder.exists()


def test_the_oldest_and_the_abandoned_go(folder: Path, model: Path) -> None:
    library = Library()
    for number in range(4):
        open_(folder, model, library, made_by=str(number))
        (newest,) = (path for path in folder.iterdir() if (path / "digests.json").stat().st_mtime > 1e9)
        os.utime(newest / "digests.json", (number + 1, number + 1))
    oldest = min(folder.iterdir(), key=lambda path: (path / "digests.json").stat().st_mtime)
    abandoned, working = folder / "making-old", folder / "making-new"
    abandoned.mkdir()
    working.mkdir()
    os.utime(abandoned, (1, 1))
    open_(folder, model, library, made_by="4")
    assert working.exists() and not abandoned.exists() and not oldest.exists()
    assert len([path for path in folder.iterdir() if path != working]) == 4


def test_two_that_make_the_same_do_not_mind(folder: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Library):
        def __call__(self, path: Path, save: bool) -> str:
            said = super().__call__(path, save)
            if save and len(self.opened) == 1:
                assert open_(folder, model, Library()) == "made"
            return said

    library = Slow()
    assert open_(folder, model, library) == "made"
    assert len(library.opened) == 1, "what was made is used, whoever keeps it"
    assert len(names(folder)) == 1 and warnings(caplog) == []
    assert open_(folder, model, library) == "ready"
