import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foretype_models import artifacts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(1000))
    (tmp_path / "t.json").write_bytes(b"{}")
    write_index(tmp_path)
    return tmp_path


def write_index(folder: Path, **changes: Any) -> None:
    def entry(file: str) -> dict[str, Any]:
        path = folder / file
        return {"file": file, "sha256": artifacts.digest_file(path), "bytes": path.stat().st_size}

    model = {
        "name": "m",
        **entry("m.gguf"),
        "tokenizer": entry("t.json"),
        "grammar": "foretype-1",
        "parameters": 5,
        "trained_tokens": 7,
        "version": "1",
        "licence": "Apache-2.0",
        **changes,
    }
    (folder / "index.json").write_text(json.dumps({"default": "m", "models": [model]}))


def test_an_intact_model_is_found_by_name_and_by_default(folder: Path) -> None:
    by_default = artifacts.locate(folder=folder)
    assert by_default == artifacts.locate("m", folder=folder)
    assert by_default.path == folder / "m.gguf"
    assert by_default.tokenizer_path == folder / "t.json"
    assert (by_default.grammar, by_default.parameters, by_default.size_bytes) == ("foretype-1", 5, 1004)


def test_a_truncated_file_is_named_with_both_sizes(folder: Path) -> None:
    (folder / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(artifacts.TruncatedArtifactError, match=r"m\.gguf has 4 bytes instead of 1004; restore"):
        artifacts.locate(folder=folder)


def test_a_changed_file_of_equal_size_is_refused_also_after_it_was_verified(folder: Path) -> None:
    artifacts.locate(folder=folder)
    status = (folder / "m.gguf").stat()
    (folder / "m.gguf").write_bytes(b"GGUX" + bytes(1000))
    os.utime(folder / "m.gguf", ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    with pytest.raises(artifacts.TamperedArtifactError, match=r"m\.gguf"):
        artifacts.locate(folder=folder)


def test_verify_looks_at_the_content_even_where_size_and_time_are_unchanged(folder: Path) -> None:
    artifacts.locate(folder=folder)
    status = (folder / "m.gguf").stat()
    (folder / "m.gguf").write_bytes(b"GGUX" + bytes(1000))
    os.utime(folder / "m.gguf", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(artifacts.TamperedArtifactError):
        artifacts.verify(folder)


def test_a_file_is_hashed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts.locate(folder=folder)

    def hashed_again(_path: Path) -> str:
        pytest.fail("hashed again")

    monkeypatch.setattr(artifacts, "digest_file", hashed_again)
    artifacts.locate(folder=folder)


@pytest.mark.parametrize("name", ["m.gguf", "t.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(artifacts.MissingArtifactError, match=name):
        artifacts.locate(folder=folder)


def test_an_unknown_name_lists_those_that_exist(folder: Path) -> None:
    with pytest.raises(artifacts.UnknownArtifactError, match=r"'x'; there are: m"):
        artifacts.locate("x", folder=folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"models": []}', '{"default": "m", "models": [{"name": "m"}]}'])
def test_a_broken_index_is_reported_as_such(folder: Path, text: str) -> None:
    (folder / "index.json").write_text(text)
    with pytest.raises(artifacts.BrokenIndexError, match=r"index\.json"):
        artifacts.locate(folder=folder)


@pytest.mark.parametrize("find", [artifacts.locate_embedder, artifacts.locate_table])
def test_an_index_that_is_no_object_is_reported_by_all_who_read_it(folder: Path, find: Callable[[Path], Any]) -> None:
    (folder / "index.json").write_text("[]")
    with pytest.raises(artifacts.BrokenIndexError, match=r"index\.json"):
        find(folder)


def test_a_missing_index_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(artifacts.BrokenIndexError, match="is missing"):
        artifacts.available(tmp_path)


@pytest.mark.parametrize("name", ["../m.gguf", "/etc/passwd", "a/b", "", ".."])
def test_the_index_cannot_point_out_of_its_folder(folder: Path, name: str) -> None:
    write_index(folder, file=name)
    with pytest.raises(artifacts.BrokenIndexError, match="no plain file name"):
        artifacts.locate(folder=folder)


def test_the_shipped_files_are_intact_small_and_of_our_grammar() -> None:
    models = artifacts.verify()
    assert models[0].grammar == "foretype-3"
    assert all(model.size_bytes <= 34_000_000 for model in models)
    total = sum(path.stat().st_size for path in artifacts.FOLDER.iterdir())
    assert total <= 40_000_000, "everything that ships stays below 40 MB"
    named = {model.adapter or model.path for model in models}
    assert {path for path in artifacts.FOLDER.iterdir() if path.suffix == ".gguf"} <= named, "an old model was left"


def test_locating_needs_the_standard_library_alone() -> None:
    code = "import sys; from foretype_models import artifacts; print(*sorted(sys.modules))"
    models = artifacts.FOLDER.parent.parent
    roots = [str(models), str(models.parent / "context")]
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {roots!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    ours = {one for one in done.stdout.split() if one.startswith("foretype_")}
    assert ours == {"foretype_models", "foretype_models.artifacts", "foretype_models.errors"} | {
        "foretype_context",
        "foretype_context.errors",
    }
    foreign = {one.partition(".")[0] for one in done.stdout.split()} - {*sys.stdlib_module_names, "__main__"}
    assert foreign == {"foretype_models", "foretype_context"}


def add_embedder(folder: Path, **changes: Any) -> None:
    (folder / "e.npz").write_bytes(b"PK" + bytes(200))
    index = json.loads((folder / "index.json").read_text())
    index["embedder"] = {
        "name": "e",
        "file": "e.npz",
        "sha256": artifacts.digest_file(folder / "e.npz"),
        "bytes": 202,
        "dimensions": 256,
        "tokenizer": index["models"][0]["tokenizer"],
        "version": "1",
        "licence": "Apache-2.0",
        **changes,
    }
    (folder / "index.json").write_text(json.dumps(index))


def test_the_embedder_is_found_and_needs_no_model(folder: Path) -> None:
    add_embedder(folder)
    (folder / "m.gguf").unlink()
    found = artifacts.locate_embedder(folder)
    assert (found.path, found.tokenizer_path, found.dimensions) == (folder / "e.npz", folder / "t.json", 256)


def test_a_release_without_an_embedder_says_so(folder: Path) -> None:
    with pytest.raises(artifacts.UnknownArtifactError, match="no embedder"):
        artifacts.locate_embedder(folder)


@pytest.mark.parametrize("name", ["../e.npz", "/etc/passwd", ""])
def test_an_embedder_outside_the_folder_is_refused(folder: Path, name: str) -> None:
    add_embedder(folder, file=name)
    with pytest.raises(artifacts.BrokenIndexError, match="plain file name"):
        artifacts.locate_embedder(folder)


def test_a_tampered_embedder_is_refused_and_verify_names_it(folder: Path) -> None:
    add_embedder(folder)
    (folder / "e.npz").write_bytes(b"PX" + bytes(200))
    with pytest.raises(artifacts.TamperedArtifactError, match=r"e\.npz"):
        artifacts.locate_embedder(folder)
    with pytest.raises(artifacts.TamperedArtifactError, match=r"e\.npz"):
        artifacts.verify(folder)


def test_an_entry_of_the_embedder_that_lacks_a_field_names_it(folder: Path) -> None:
    add_embedder(folder, tokenizer={})
    with pytest.raises(artifacts.BrokenIndexError, match="embedder"):
        artifacts.locate_embedder(folder)


@pytest.fixture
def adapted(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shipped files whose default is made of an adapter; what was made of it lies in the folder that comes back."""
    data = tmp_path / "data"
    monkeypatch.setattr(artifacts, "models_folder", lambda: data)
    (folder / "a.gguf").write_bytes(b"adapter")
    index = json.loads((folder / "index.json").read_text())
    adapter = {"file": "a.gguf", "sha256": artifacts.digest_file(folder / "a.gguf"), "bytes": 7}
    index["models"][0] = {
        key: index["models"][0][key] for key in ("grammar", "parameters", "trained_tokens", "licence")
    } | {"name": "n", "version": "2", "adapter": adapter, "profile": {"layout": "spm"}}
    index["default"] = "n"
    (folder / "index.json").write_text(json.dumps(index))
    return data / "n"


def make_it(folder: Path, adapted: Path) -> None:
    adapted.mkdir(parents=True)
    (adapted / "m.gguf").write_bytes(b"made of it")
    (adapted / "t.json").write_bytes(b"{}")
    write_index(adapted)
    (adapted / "origin.json").write_text(json.dumps({"adapter_sha256": artifacts.digest_file(folder / "a.gguf")}))


def test_a_model_that_ships_as_an_adapter_is_not_there_until_it_is_made(folder: Path, adapted: Path) -> None:
    with pytest.raises(
        artifacts.UnmadeArtifactError, match=r"^n is not made .*`foretype models fetch` makes it, once$"
    ):
        artifacts.locate(folder=folder)
    (listed,) = artifacts.verify(folder)
    assert (listed.made, listed.name, listed.adapter) == (False, "n", folder / "a.gguf")
    make_it(folder, adapted)
    found = artifacts.locate(folder=folder)
    assert (found.made, found.path, found.tokenizer_path) == (True, adapted / "m.gguf", adapted / "t.json")
    assert (found.name, found.version, found.profile) == ("n", "2", {"layout": "spm"})


def test_what_was_made_of_another_adapter_does_not_serve(folder: Path, adapted: Path) -> None:
    make_it(folder, adapted)
    (adapted / "origin.json").write_text(json.dumps({"adapter_sha256": "00" * 32}))
    with pytest.raises(artifacts.UnmadeArtifactError):
        artifacts.locate(folder=folder)


@pytest.mark.parametrize("index", ["{", "[]", '{"models": []}', '{"models": [{}]}'])
def test_a_damaged_index_of_what_was_made_counts_as_none(folder: Path, adapted: Path, index: str) -> None:
    make_it(folder, adapted)
    (adapted / "index.json").write_text(index)
    with pytest.raises(artifacts.UnmadeArtifactError):
        artifacts.locate(folder=folder)


def test_a_damaged_file_that_was_made_names_its_own_remedy(folder: Path, adapted: Path) -> None:
    make_it(folder, adapted)
    (adapted / "m.gguf").write_bytes(b"made of xx")
    with pytest.raises(artifacts.TamperedArtifactError, match=r"make it again with `foretype models fetch`"):
        artifacts.locate(folder=folder)


def test_an_adapter_that_is_not_the_index_s_is_refused(folder: Path, adapted: Path) -> None:
    assert artifacts.locate_adapter(folder) == folder / "a.gguf"
    (folder / "a.gguf").write_bytes(b"ADAPTER")
    with pytest.raises(artifacts.TamperedArtifactError, match=r"a\.gguf does not match"):
        artifacts.verify(folder)


def test_a_model_that_ships_whole_has_no_adapter(folder: Path) -> None:
    assert artifacts.locate_adapter(folder) is None


def test_a_model_that_shows_nothing_by_itself_says_so(folder: Path) -> None:
    assert artifacts.locate(folder=folder).shown
    write_index(folder, profile={"min_mean_logprob": {"mid_line": 0.0, "line": 0.0, "block": 0.0}})
    assert not artifacts.locate(folder=folder).shown
    write_index(folder, profile={"min_mean_logprob": {"mid_line": 0.0, "line": -1.0, "block": 0.0}})
    assert artifacts.locate(folder=folder).shown
