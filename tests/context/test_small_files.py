"""Small files that somebody else wrote."""

import os
from pathlib import Path

import pytest
from foretype_context.errors import NotSmallError
from foretype_context.folder.small_files import read_small


def test_a_regular_file_is_read_whole_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x" * 100)
    assert read_small(file, 100) == b"x" * 100
    with pytest.raises(NotSmallError, match="larger than 99"):
        read_small(file, 99)
    with pytest.raises(FileNotFoundError):
        read_small(tmp_path / "none", 1)
    with pytest.raises(NotSmallError):
        read_small("a\0b", 1)


def test_links_pipes_devices_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "zero", "loop", "pipe", "."):
        with pytest.raises(OSError):
            read_small(tmp_path / name, 1_000)
    with pytest.raises(NotSmallError):
        read_small(tmp_path, 1_000)
    assert read_small(tmp_path / "link", 1_000, links=True) == b"x"
    for name in ("zero", "loop", "pipe"):
        with pytest.raises(OSError):
            read_small(tmp_path / name, 1_000, links=True)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's list of what is open")
def test_what_is_refused_stays_open_nowhere(tmp_path: Path) -> None:
    """A folder by the name of a settings file cost a descriptor at each look."""
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for name in (".", "pipe"):
        for _ in range(5):
            with pytest.raises(NotSmallError):
                read_small(tmp_path / name, 1_000)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_says_to_be_empty_and_is_not_is_bounded() -> None:
    assert read_small("/proc/self/status", 1 << 20)
    with pytest.raises(NotSmallError):
        read_small("/proc/self/status", 10)
