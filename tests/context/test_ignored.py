"""Which files `.gitignore` and the user leave out, asked one by one: as git itself says."""

import logging
import os
import subprocess
from pathlib import Path

import pytest
from foretype_context.folder.ignored import Ignored

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
