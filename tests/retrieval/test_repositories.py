"""Repositories inside of a workspace: submodules, and linked work trees of the same repository."""

from pathlib import Path, PurePosixPath

import pytest
from foretype_context.folder.ignored import Ignored
from foretype_retrieval.git import GitState
from foretype_retrieval.scan import is_scanned, scan
from git_repo import git
from retrieval.workspace import write_files


def commit(root: Path, files: dict[str, str]) -> Path:
    write_files(root, files)
    if not (root / ".git").exists():
        git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "x")
    return root


@pytest.mark.parametrize("name", ["inner", "libs/inner"])
def test_an_update_of_a_submodule_is_seen(tmp_path: Path, name: str) -> None:
    inner = commit(tmp_path / "inner", {"a.py": "x = 1\n"})
    commit(inner, {"a.py": "x = 2\n"})
    root = commit(tmp_path / "outer", {"b.py": "y = 1\n"})
    git(root, "submodule", "--quiet", "add", str(inner), name)
    git(root, "commit", "-qm", "with it")
    git(root / name, "checkout", "-q", "HEAD~1")
    git(root, "commit", "-qam", "back")
    git(root, "checkout", "-q", "HEAD~1")
    state = GitState(root)
    assert not state.moved() and not state.moved()
    git(root, "submodule", "--quiet", "update")
    assert (root / name / "a.py").read_text() == "x = 2\n"
    assert state.moved() and not state.moved()


def test_rules_end_where_a_repository_begins_and_the_users_do_not(tmp_path: Path) -> None:
    rules = {".gitignore": "*.gen.py\nlib/\n", "a.gen.py": "x = 1\n", "pkg/lib/a.py": "x = 1\n", "mine.py": "x = 1\n"}
    root = commit(tmp_path / "outer", {**rules, "kept.py": "x = 1\n"})
    inner = {"a.gen.py": "x = 1\n", "lib/b.py": "x = 1\n", "mine.py": "x = 1\n", ".gitignore": "own.py\n", "own.py": ""}
    commit(root / "sub", inner)
    own = ["mine.py"]
    listed = git(root / "sub", "ls-files").split()
    expected = sorted(["kept.py", *(f"sub/{name}" for name in listed if name.endswith(".py") and name != "mine.py")])
    assert expected == ["kept.py", "sub/a.gen.py", "sub/lib/b.py"]
    assert sorted(scan(root, own).files) == expected
    every = [path.relative_to(root) for path in root.rglob("*.py")]
    ignored = Ignored(root, own)
    assert sorted(path.as_posix() for path in every if not ignored(root / path)) == expected
    assert is_scanned(root, PurePosixPath("sub/lib/b.py"), ignored)
    assert not is_scanned(root, PurePosixPath("pkg/lib/a.py"), ignored)


def test_a_file_that_only_looks_like_a_repository_ends_no_rules(tmp_path: Path) -> None:
    write_files(tmp_path, {".gitignore": "a.py\n", "sub/a.py": "x = 1\n", "sub/.git": "gitdir: nowhere\n"})
    assert not scan(tmp_path).files


def test_a_linked_work_tree_inside_is_not_indexed_beside_its_own_repository(tmp_path: Path) -> None:
    root = commit(tmp_path / "r", {"a.py": "x = 1\n", "pkg/b.py": "x = 1\n"})
    git(root, "worktree", "add", "-q", "pkg/feature", "-b", "feature")
    commit(root / "other", {"c.py": "x = 1\n"})
    assert git(root, "status", "--short").split() == ["??", "other/", "??", "pkg/feature/"]
    assert sorted(scan(root).files) == ["a.py", "other/c.py", "pkg/b.py"]
    ignored = Ignored(root)
    assert not is_scanned(root, PurePosixPath("pkg/feature/a.py"), ignored)
    assert is_scanned(root, PurePosixPath("other/c.py"), ignored)
    assert sorted(scan(root / "pkg").files) == ["b.py"]
    assert sorted(scan(root / "pkg" / "feature").files) == ["a.py", "pkg/b.py"]


def test_work_trees_of_a_repository_without_files_of_its_own_are_all_there_is(tmp_path: Path) -> None:
    origin = commit(tmp_path / "origin", {"a.py": "x = 1\n"})
    root = tmp_path / "r"
    git(tmp_path, "clone", "-q", "--bare", str(origin), str(root / ".bare"))
    (root / ".git").write_text("gitdir: ./.bare\n")
    git(root, "worktree", "add", "-q", "one", "main")
    git(root, "worktree", "add", "-q", "two", "-b", "two")
    assert sorted(scan(root).files) == ["one/a.py", "two/a.py"]
