"""The door to git: what a repository says is read, what it configures is not."""

import os
from pathlib import Path

import pytest
from foretype_context.errors import GitError
from foretype_context.folder.git import Repository, repository_at
from git_repo import git


def make(root: Path, *more: str) -> Path:
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main", *more)
    for name in ("one", "two", "three"):
        (root / "a.py").write_text(f"{name} = 1\n")
        git(root, "add", "-A")
        git(root, "commit", "-qm", name)
    return root


def at(folder: Path) -> Repository:
    found = repository_at(folder)
    assert found is not None
    return found


def root_commit(folder: Path) -> str:
    return at(folder).run("rev-list", "--max-parents=0", "HEAD").decode().strip()


@pytest.mark.parametrize("format", ["sha1", "sha256"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_name_of_a_commit_is_what_git_says(tmp_path: Path, format: str, packed: bool) -> None:
    root = make(tmp_path / "r", "--object-format", format)
    git(root, "tag", "-am", "x", "v1.0", "HEAD~1")
    git(root, "branch", "feature/x.y", "HEAD~2")
    git(root, "update-ref", "refs/remotes/origin/main", "HEAD~1")
    git(root, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    if packed:
        git(root, "pack-refs", "--all")
        git(root, "gc", "-q")
    (root / "inner").mkdir()
    found = at(root / "inner")
    names = ("HEAD", "@", "main", "v1.0", "feature/x.y", "heads/main", "refs/tags/v1.0", "origin/main", "origin")
    for name in (*names, "HEAD~1", "main^", "v1.0^{commit}", git(root, "rev-parse", "HEAD")[:9]):
        said = found.run("rev-parse", "--verify", found.commit(name)).decode().strip()
        assert said == git(root, "rev-parse", "--verify", name), name
    span = found.revisions("v1.0..main")
    assert found.run("rev-list", span).decode().strip() == git(root, "rev-list", "v1.0..main")


@pytest.mark.parametrize(
    "name", ["nowhere", "HEAD@{1}", ":/one", "../../HEAD", "refs/heads/../../config", "HEAD^{/x}", "-n1"]
)
def test_a_name_that_is_not_read_is_told(tmp_path: Path, name: str) -> None:
    found = at(make(tmp_path / "r"))
    with pytest.raises(GitError):
        found.commit(name)


def test_linked_trees_submodules_shallow_clones_alternates_and_bare_ones_are_read(tmp_path: Path) -> None:
    root = make(tmp_path / "r")
    first = root_commit(root)
    assert first == git(root, "rev-list", "--max-parents=0", "HEAD")
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    outer = make(tmp_path / "outer")
    git(outer, "submodule", "--quiet", "add", root.as_uri(), "inner")
    git(tmp_path, "clone", "-q", "--bare", str(root), "bare.git")
    git(tmp_path, "clone", "-q", "--shared", str(root), "shared")
    for folder in (tmp_path / "tree", outer / "inner", tmp_path / "bare.git", tmp_path / "shared"):
        assert root_commit(folder) == first, folder
    git(tmp_path, "clone", "-q", "--depth", "1", root.as_uri(), "shallow")
    # The history that is there ends at its boundary, as git has it.
    assert root_commit(tmp_path / "shallow") == git(root, "rev-parse", "HEAD")


def test_neither_the_repositorys_configuration_nor_the_users_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "r")
    (root / ".git" / "config").write_text("[core\nthis is no configuration\n")
    (tmp_path / ".gitconfig").write_text("nor is this\n")
    for name, value in (("HOME", tmp_path), ("GIT_DIR", tmp_path), ("GIT_CONFIG_GLOBAL", tmp_path / ".gitconfig")):
        monkeypatch.setenv(name, str(value))
    assert len(at(root).run("rev-list", "HEAD").split()) == 3


def test_what_is_missing_is_none_and_nothing_is_fetched(tmp_path: Path) -> None:
    root = make(tmp_path / "r")
    ids = [git(root, "rev-parse", f"HEAD{step}:a.py") for step in ("", "~1", "~2")]
    (root / ".git" / "objects" / ids[1][:2] / ids[1][2:]).unlink()
    assert list(at(root).blobs(ids)) == [b"three = 1\n", None, b"one = 1\n"]


def test_time_and_output_are_bounded(tmp_path: Path) -> None:
    root = make(tmp_path / "r")
    with pytest.raises(GitError, match="printed more than 10 bytes"):
        at(root).run("rev-list", "HEAD", limit_bytes=10)
    # A pipe among the objects: git waits for somebody who writes to it.
    id = git(root, "rev-parse", "HEAD")
    file = root / ".git" / "objects" / id[:2] / id[2:]
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(GitError, match="took longer than"):
        at(root).run("cat-file", "-p", id, time_s=0.5)


@pytest.mark.parametrize(
    "name", ["HEAD", "packed-refs", "refs/heads/main", "shallow", "commondir", "objects/info/alternates"]
)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    root = make(tmp_path / "r")
    file = root / ".git" / name
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    try:
        at(root).run("rev-list", "HEAD")
    except GitError:
        pass


def test_no_program_of_the_repository_is_taken_for_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make(tmp_path / "r")
    bin = root / "bin"
    bin.mkdir()
    (bin / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (bin / "git").chmod(0o755)
    (tmp_path / "link").symlink_to(bin)
    real = os.environ["PATH"]
    monkeypatch.chdir(bin)
    for path in (f"{bin}:{real}", f".:{real}", f":{real}", f"{tmp_path}/link:{real}"):
        monkeypatch.setenv("PATH", path)
        assert len(at(root).run("rev-list", "HEAD").split()) == 3
    monkeypatch.setenv("PATH", str(bin))
    with pytest.raises(GitError, match="no git outside"):
        at(root).run("rev-list", "HEAD")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("place", ["//host/share", r"\\host\share"])
def test_another_machine_is_never_touched(tmp_path: Path, place: str) -> None:
    """Windows would log in there with the user's name."""
    root = make(tmp_path / "r")
    (root / ".git" / "objects" / "info" / "alternates").write_text(f"{place}\n")
    with pytest.raises(GitError, match="another machine"):
        at(root).run("rev-list", "HEAD")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / ".git").write_text(f"gitdir: {place}\n")
    assert repository_at(tmp_path / "s") is None
