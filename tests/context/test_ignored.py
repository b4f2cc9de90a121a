"""Which files `.gitignore` and the user leave out, asked one by one: as git itself says."""

import logging
import os
import random
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from foretype_context.folder.ignore_rules import is_ignore_file
from foretype_context.folder.ignored import Ignored
from foretype_context.folder.user_excludes import user_excludes
from git_repo import git

FILES = ("a.py", "local.py", "gen/b.py", "pkg/tmp_a.py", "pkg/tmp_keep.py", "pkg/deep/local.py", "build/keep.py")
RULES = {
    ".gitignore": "local.py\n/gen/\ntmp*\nbuild/\n",
    "pkg/.gitignore": "!tmp_keep.py\n",
    "build/.gitignore": "!keep.py\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path in (*FILES, *RULES):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(RULES.get(path, "x = 1\n"))
    return tmp_path


def test_it_says_what_git_says(root: Path) -> None:
    subprocess.run(["git", "init", "-q", root], check=True)
    told = subprocess.run(["git", "-C", root, "check-ignore", *FILES], capture_output=True, text=True, check=False)
    ignored = Ignored(root)
    assert {path for path in FILES if ignored(root / path)} == set(told.stdout.split()) != set()


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for git and for us, with nothing in it."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return folder


def git_ignores(root: Path, files: list[str]) -> set[str]:
    """By git, asked in the very folder."""
    command = ["git", "-C", root, "check-ignore", "-z", "--no-index", "--stdin"]
    told = subprocess.run(command, input="\0".join(files).encode(), capture_output=True, check=False)
    assert told.returncode in (0, 1), told.stderr
    return set(filter(None, told.stdout.decode().split("\0")))


def ours(root: Path, files: list[str]) -> set[str]:
    ignored = Ignored(root)
    return {file for file in files if ignored(root / file)}


@pytest.mark.parametrize("seed", range(40))
def test_a_folder_of_a_repository_has_the_rules_that_git_has_there(tmp_path: Path, home: Path, seed: int) -> None:
    """Random rules in all files that git reads, seen from each folder of the repository and of one inside of it."""
    chance = random.Random(seed)
    repo = tmp_path / "r"
    names, folders = ("a.py", "b.py", "ab.py"), ("", "a", "b", "a/b", "b/a", "sub", "sub/a")
    files = [f"{folder}/{name}".lstrip("/") for folder in folders for name in names]
    for file in files:
        (repo / file).parent.mkdir(parents=True, exist_ok=True)
        (repo / file).write_text("x = 1\n")
    for folder in ("", "sub"):
        git(repo / folder, "init", "-q")
    places = [repo / folder / ".gitignore" for folder in folders]
    places += [repo / ".git/info/exclude", repo / "sub/.git/info/exclude", home / ".config/git/ignore"]
    for place in chance.sample(places, chance.randint(1, len(places))):
        place.parent.mkdir(parents=True, exist_ok=True)
        pieces = ("a.py", "b.py", "a", "b/", "*b.py", "/a.py", "/a/b.py", "a/b", "/sub/a.py", "**/a/*", "*.py", "/a/")
        lines = [chance.choice(("", "", "!")) + chance.choice(pieces) for _ in range(chance.randint(1, 4))]
        place.write_text("".join(f"{line}\n" for line in lines))
    for folder in folders:
        prefix = f"{folder}/" if folder else ""
        below = [file[len(prefix) :] for file in files if file.startswith(prefix)]
        # Git does not answer for the files of one repository in another.
        here = [file for file in below if folder.startswith("sub") or not file.startswith("sub/")]
        assert ours(repo / folder, here) == git_ignores(repo / folder, here), folder
    inner = [file for file in files if file.startswith("sub/")]
    assert ours(repo, inner) == {f"sub/{file}" for file in git_ignores(repo / "sub", [file[4:] for file in inner])}


CONFIGS = {
    "default": ({".config/git/ignore": "a.py\n"}, {"a.py"}),
    "named": (
        {".gitconfig": "[core]\n\texcludesFile = ~/mine\n", "mine": "a.py\n", ".config/git/ignore": "b.py\n"},
        {"a.py"},
    ),
    "the last one": (
        {".gitconfig": "[Core]\nexcludesfile=~/old\n[core] EXCLUDESFILE = ~/mine # so\n", "mine": "b.py\n"},
        {"b.py"},
    ),
    "quoted": (
        {".config/git/config": '[core]\n\texcludesFile = "~/my \\\\ \\"rules\\" #1"\n', 'my \\ "rules" #1': "a.py\n"},
        {"a.py"},
    ),
    "continued": (
        {".gitconfig": "# [core]\\\n[core]\n  excludesFile = ~/mi\\\nne  ; mine\n", "mine": "a.py\n"},
        {"a.py"},
    ),
    "included": (
        {".gitconfig": "[include]\n\tpath = more\n", "more": "[core]\n\texcludesFile = ~/mine\n", "mine": "a.py\n"},
        {"a.py"},
    ),
    "another section": (
        {".gitconfig": '[core "x"]\n\texcludesFile = ~/mine\n[cored]\nexcludesFile = ~/mine\n', "mine": "a.py\n"},
        set[str](),
    ),
    "none": ({".gitconfig": "[core]\n\texcludesFile =\n", ".config/git/ignore": "a.py\n"}, set[str]()),
    "no file": ({".gitconfig": "[core]\n\texcludesFile = /dev/null\n", ".config/git/ignore": "a.py\n"}, set[str]()),
    "not there": (
        {".gitconfig": "[core]\n\texcludesFile = ~/mine\n[include]\npath = ~/gone\n"},
        set[str](),
    ),
    "in the work tree": ({".gitconfig": "[core]\n\texcludesFile = rules\n"}, {"pkg/deep/local.py"}),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_users_file_is_the_one_that_the_configuration_names(tmp_path: Path, home: Path, name: str) -> None:
    written, left_out = CONFIGS[name]
    for file, text in written.items():
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(text)
    files = ["a.py", "b.py", "pkg/deep/local.py"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x = 1\n")
    (tmp_path / "rules").write_text("/pkg/deep/local.py\n")
    assert not ours(tmp_path, files), "no repository"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert git_ignores(tmp_path, files) == left_out
    assert ours(tmp_path, files) == left_out


def test_every_file_that_says_where_it_is_is_told(home: Path) -> None:
    (home / ".gitconfig").write_text("[include]\npath = more\n[core]\nexcludesFile = ~/mine\n")
    told: list[Path] = []
    assert user_excludes(told.append) == home / "mine"
    assert told == [home / ".config/git/config", home / ".gitconfig", home / "more"]


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        (".gitignore", True),
        ("a/.gitignore", True),
        ("/r/.git/info/exclude", True),
        ("/h/.config/git/ignore", True),
        ("exclude", False),
        ("a/.gitignore/b", False),
        ("docs/ignore", False),
    ],
)
def test_a_file_of_rules_is_known_by_its_name(path: str, is_one: bool) -> None:
    assert is_ignore_file(PurePosixPath(path)) is is_one


def test_a_configuration_that_includes_itself_is_read_once(tmp_path: Path, home: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (home / ".gitconfig").write_text("[include]\n" + "path = ~/.gitconfig\n" * 100 + "[core]\nexcludesFile = ~/mine\n")
    (home / "mine").write_text("a.py\n")
    assert ours(tmp_path, ["a.py", "b.py"]) == {"a.py"}


def test_a_repositorys_own_configuration_names_no_file(tmp_path: Path, home: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    git(tmp_path, "config", "core.excludesFile", str(home / "mine"))
    (home / "mine").write_text("a.py\n")
    assert not ours(tmp_path, ["a.py"])


def test_work_trees_and_submodules_have_their_rules_where_their_git_folder_is(tmp_path: Path, home: Path) -> None:
    inner, repo = tmp_path / "inner", tmp_path / "r"
    for folder in (inner, repo):
        git(tmp_path, "init", "-q", str(folder))
        (folder / "kept.py").write_text("x = 1\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "x")
    git(repo, "submodule", "--quiet", "add", str(inner), "sub")
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    (repo / ".git/info/exclude").write_text("b.py\n")
    (repo / ".git/modules/sub/info/exclude").write_text("a.py\n")
    files = ["a.py", "b.py"]
    for root, left_out in ((repo, {"b.py"}), (tmp_path / "tree", {"b.py"}), (repo / "sub", {"a.py"})):
        assert ours(root, files) == git_ignores(root, files) == left_out
    assert ours(repo, ["sub/a.py", "sub/b.py"]) == {"sub/a.py"}


def test_of_a_folder_that_git_leaves_out_nothing_is_let_in(tmp_path: Path, home: Path) -> None:
    """Also where it was opened by itself, and whatever its own rules say; a repository of its own ends that."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "out/deep").mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("out/\n")
    (tmp_path / "out/.gitignore").write_text("!*\n")
    for folder in ("out", "out/deep"):
        assert ours(tmp_path / folder, ["a.py"]) == git_ignores(tmp_path / folder, ["a.py"]) == {"a.py"}
    ignored = Ignored(tmp_path / "out/deep")
    assert ignored(tmp_path / "out/deep/a.py")
    subprocess.run(["git", "init", "-q", tmp_path / "out"], check=True)
    assert not ignored(tmp_path / "out/deep/a.py") and not git_ignores(tmp_path / "out/deep", ["a.py"])


def test_rules_above_and_of_the_user_hold_as_soon_as_they_stand_there_and_as_long(tmp_path: Path, home: Path) -> None:
    (tmp_path / "app").mkdir()
    ignored = Ignored(tmp_path / "app", ["/mine.py"])
    file = tmp_path / "app" / "a.py"
    assert not ignored(file) and ignored(tmp_path / "app/mine.py")
    rules = tmp_path / ".gitignore"
    rules.write_text("a.py\n")
    assert not ignored(file), "no repository"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert ignored(file)
    rules.write_text("/a.py\n")
    assert not ignored(file)
    for place in (tmp_path / ".git/info/exclude", home / ".config/git/ignore"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("/app/a.py\n")
        assert ignored(file)
        rules.write_text("!a.py\n")  # stronger than both
        assert not ignored(file)
        rules.unlink()
        assert ignored(file)
        place.unlink()
        assert not ignored(file) and ignored(tmp_path / "app/mine.py")


def test_globs_of_the_user_count_as_well(root: Path) -> None:
    ignored = Ignored(root, ["a.*", "!local.py"])
    assert ignored(root / "a.py") and ignored(root / "local.py") and not Ignored(root)(root / "a.py")


def test_rules_hold_as_soon_as_they_stand_there_and_as_long(root: Path) -> None:
    ignored = Ignored(root)
    assert not ignored(root / "a.py") and not ignored(root / "pkg" / "b.py")
    (root / ".gitignore").write_text("a.py\n")
    assert ignored(root / "a.py") and not ignored(root / "pkg" / "b.py")
    (root / "pkg" / ".gitignore").write_text("b.py\n")
    assert ignored(root / "pkg" / "b.py")
    (root / ".gitignore").unlink()
    assert not ignored(root / "a.py")
    assert ignored.changes == 3


def test_what_is_elsewhere_or_unreadable_is_not_left_out(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    ignored = Ignored(root, ["*.py"])
    assert not ignored(tmp_path_factory.mktemp("other") / "a.py")
    (root / ".gitignore").unlink()
    (root / ".gitignore").mkdir()
    assert not Ignored(root)(root / "local.py")
    (root / "pkg" / ".gitignore").write_bytes(b"\xff\xfe[\n***\n!\n\\\n")
    assert Ignored(root)(root / "pkg" / "tmp_a.py") in (True, False)


@pytest.mark.parametrize("kind", ["link", "device", "pipe", "large", "folder"])
def test_an_ignore_file_is_a_small_regular_file_or_says_nothing(
    root: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = root / ".gitignore"
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "large":
        file.write_text("local.py\n" + "#\n" * 100_000)
    else:
        (root / "rules").write_text("local.py\n")
        file.symlink_to("/dev/zero" if kind == "device" else "rules")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not Ignored(root)(root / "local.py") and Ignored(root)(root / "pkg" / "deep" / "local.py") is False
    assert len(caplog.records) <= 1, "one notice"


def test_patterns_beyond_the_bounds_are_left_out_with_one_notice(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The bound is of all the files that a path meets: depth does not add up."""
    (root / ".gitignore").write_text("*a*a*a*a*b\n" + "*" * 16_000 + "\n" + "".join(f"n{at}\n" for at in range(990)))
    (root / "pkg" / ".gitignore").write_text("".join(f"m{at}\n" for at in range(30)))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            ignored = Ignored(root)
            assert ignored(root / "n989") and ignored(root / "pkg" / "m9") and not ignored(root / "pkg" / "m10")
    assert [record.getMessage().split(":")[1].split(" of ")[0].strip() for record in caplog.records] == ["2", "20"]
