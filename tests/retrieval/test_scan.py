import os
from pathlib import Path

import pytest
from foretype_retrieval.errors import WorkspaceGoneError
from foretype_retrieval.scan import MAX_CODE_BYTES, read_source, scan
from retrieval.workspace import FILES, write_files


def found(root: Path, globs: list[str] | None = None) -> list[str]:
    return sorted(scan(root, globs or []).files)


def test_source_files_are_found_by_relative_path(tmp_path: Path) -> None:
    assert found(write_files(tmp_path)) == sorted(FILES)


def test_links_are_not_followed_so_no_loop_forms(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "shop" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "self.py").symlink_to("self.py")
    (tmp_path / "twin.py").symlink_to(tmp_path / "shop" / "cart.py")
    assert found(tmp_path) == sorted(FILES)
    assert read_source(tmp_path, "twin.py") is None and read_source(tmp_path, "self.py") is None


@pytest.mark.parametrize(
    "path",
    [
        "node_modules/a/index.js",
        ".venv/lib/x.py",
        "build/out.py",
        "secrets.json",
        "app.min.js",
        "proto_pb2.py",
        "notes.bin",
        "package-lock.json",
    ],
)
def test_what_is_excluded_by_name_is_not_found(tmp_path: Path, path: str) -> None:
    write_files(tmp_path, {"kept.py": "x = 1\n", path: "x = 1\n"})
    assert found(tmp_path) == ["kept.py"]


def test_gitignore_holds_for_its_folder_and_inner_ones_overrule(tmp_path: Path) -> None:
    files = dict.fromkeys(
        ["a.py", "gen/b.py", "pkg/c.py", "pkg/gen/d.py", "pkg/tmp/e.py", "pkg/tmp_keep.py"], "x = 1\n"
    )
    files |= {".gitignore": "/gen/\ntmp*\n", "pkg/.gitignore": "!tmp_keep.py\n"}
    assert found(write_files(tmp_path, files)) == ["a.py", "pkg/c.py", "pkg/gen/d.py", "pkg/tmp_keep.py"]


def test_a_folder_of_a_repository_has_the_rules_from_above_it(tmp_path: Path) -> None:
    rules = {".gitignore": "customers.py\n/app/gen/\nout/\n!kept.py\n", ".git/info/exclude": "kept.py\nsecret.py\n"}
    names = ("customers.py", "main.py", "gen/a.py", "kept.py", "secret.py", "out/b.py")
    repo = write_files(tmp_path, {**rules, ".git/HEAD": "", **{f"app/{name}": "x = 1\n" for name in names}})
    for root in (repo, repo / "app"):
        assert [path.removeprefix("app/") for path in found(root)] == ["kept.py", "main.py"]
    assert found(repo / "app", ["/main.py"]) == ["kept.py"]
    assert found(repo / "app" / "out") == [], "left out itself"


def test_globs_of_the_user_are_left_out(tmp_path: Path) -> None:
    assert found(write_files(tmp_path), ["shop/*", "*.ts"]) == []


def test_a_broken_gitignore_breaks_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "x = 1\n"})
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe[\n!\n\\\n")
    assert found(tmp_path) == ["a.py"]


def test_a_folder_that_cannot_be_listed_is_named_and_the_rest_found(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "x = 1\n", "deep/b.py": "x = 1\n"})
    # What no user can list, not even root: a folder that is gone when its turn comes.
    calls = iter([False])

    def asked() -> bool:
        if next(calls, True):
            (tmp_path / "deep" / "b.py").unlink(missing_ok=True)
            if (tmp_path / "deep").is_dir():
                (tmp_path / "deep").rmdir()
        return False

    result = scan(tmp_path, cancelled=asked)
    assert list(result.files) == ["a.py"] and result.unreadable == ["deep"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_folders_and_files_are_passed_over(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "x = 1\n", "shut/b.py": "x = 1\n", "c.py": "x = 1\n"})
    (tmp_path / "shut").chmod(0)
    (tmp_path / "c.py").chmod(0)
    result = scan(tmp_path)
    assert result.unreadable == ["shut"] and read_source(tmp_path, "c.py") is None
    (tmp_path / "shut").chmod(0o700)


def test_a_workspace_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceGoneError, match="not a folder"):
        scan(tmp_path / "gone")


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "big.py").open("wb") as stream:
        stream.truncate(100_000_000)
    assert found(tmp_path) == [] and read_source(tmp_path, "big.py") is None


def test_a_file_that_grows_while_it_is_read_is_not_taken_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"x = 1\n" * (MAX_CODE_BYTES // 6))
    read = read_source(tmp_path, "a.py")
    assert read is not None and len(read[0]) <= MAX_CODE_BYTES


def test_a_change_after_the_read_is_seen_as_one(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    read = read_source(tmp_path, "a.py")
    path.write_text("x = 22\n")
    assert read is not None and scan(tmp_path).files["a.py"] != read[1]


def test_invalid_utf8_is_read_with_replacements(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"name = '\xff\xfe caf\xe9'\ndef f():\n    pass\n")
    read = read_source(tmp_path, "a.py")
    assert read is not None and "def f():" in read[0] and "�" in read[0]


def test_binary_and_generated_content_is_remembered_as_empty(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "b.go").write_bytes(b"// Code generated by x. DO NOT EDIT.\npackage a\n")
    for path in ("a.py", "b.go"):
        read = read_source(tmp_path, path)
        assert read is not None and read[0] == ""


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert found(tmp_path) == [] and read_source(tmp_path, "pipe.py") is None


def test_a_name_that_is_no_utf8_is_passed_over(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9.py", "wb") as stream:
        stream.write(b"x = 1\n")
    write_files(tmp_path, {"a.py": "x = 1\n"})
    assert found(tmp_path) == ["a.py"]


def test_a_scan_can_be_cancelled_and_says_so(tmp_path: Path) -> None:
    assert scan(write_files(tmp_path), cancelled=lambda: True).complete is False
