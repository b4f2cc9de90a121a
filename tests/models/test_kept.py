"""What is kept of a model: made once, moved to its place whole, the newest few, one maker at a time."""

import os
from pathlib import Path

import filelock
import pytest
from foretype_models.kept import KEPT_MAX, discard, keep, name_of


def write(target: Path) -> None:
    target.write_bytes(b"y")


def test_a_file_or_a_folder_is_made_once_and_moved_whole(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(target: Path) -> None:
        made.append(target)
        target.mkdir()
        (target / "part").write_bytes(b"x")
        assert not (tmp_path / "kept" / "a").exists()

    for _ in range(2):
        assert keep(tmp_path / "kept" / "a", 1, make) == tmp_path / "kept" / "a"
    assert len(made) == 1 and (tmp_path / "kept" / "a" / "part").read_bytes() == b"x"
    assert keep(tmp_path / "kept" / "b", 1, write).read_bytes() == b"y"
    assert sorted(one.name for one in (tmp_path / "kept").iterdir()) == ["a", "b", "making.lock"]


def test_what_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    def make(target: Path) -> None:
        target.write_bytes(b"half")
        raise RuntimeError("refused")

    with pytest.raises(RuntimeError):
        keep(tmp_path / "a", 1, make)
    with pytest.raises(OSError, match=r"MB are needed"):
        keep(tmp_path / "a", 1 << 60, make)
    assert [one.name for one in tmp_path.iterdir()] == ["making.lock"]


def test_what_was_used_longest_ago_goes_and_so_does_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / "making-left").mkdir()
    for at in range(KEPT_MAX + 2):
        keep(tmp_path / str(at), 1, Path.mkdir)
        os.utime(tmp_path / str(at), (at, at))
        keep(tmp_path / "0", 1, Path.mkdir)  # used each time
    names = {one.name for one in tmp_path.iterdir()}
    assert names == {"0", str(KEPT_MAX), str(KEPT_MAX + 1), "making.lock"}
    discard(tmp_path / "0")
    discard(tmp_path / "0")
    assert not (tmp_path / "0").exists()


def test_somebody_impatient_does_not_wait_for_another_maker_but_takes_what_is_there(tmp_path: Path) -> None:
    keep(tmp_path / "there", 1, Path.mkdir)
    with filelock.FileLock(tmp_path / "making.lock"):
        assert keep(tmp_path / "there", 1, Path.mkdir, patient=False) == tmp_path / "there"
        with pytest.raises(OSError, match=r"lock"):
            keep(tmp_path / "new", 1, Path.mkdir, patient=False)


def test_the_name_is_another_for_each_file_change_and_maker(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.write_bytes(b"model")
        os.utime(path, (1, 1))
    names = {name_of(one, "1"), name_of(other, "1"), name_of(one, "2")}
    os.utime(one, (2, 2))
    names.add(name_of(one, "1"))
    assert len(names) == 4 and all(len(name) == 32 for name in names)
    with pytest.raises(OSError):
        name_of(tmp_path / "none", "1")
