"""Which files of a folder the adaptive model reads."""

import os
from pathlib import Path

from foretype_client.adaptive.neighbours import learn_neighbours, neighbours_of


def names(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path, _ in neighbours_of(root)]


def test_sources_are_read_latest_first_and_everything_else_is_passed_over(tmp_path: Path) -> None:
    for number, name in enumerate(["old.py", "pkg/new.py", "web/app.ts"]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")
        os.utime(path, (number, number))
    for name in [".git/hook.py", "node_modules/a.js", ".env", "notes.txt", "venv/lib.py"]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")
    (tmp_path / "local.py").write_text("x = 1\n")
    (tmp_path / ".gitignore").write_text("local.py\n")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "huge.py").write_text("x = 1\n" * 20_000)
    (tmp_path / "empty.py").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link.py").symlink_to(tmp_path / "old.py")
    assert names(tmp_path) == ["web/app.ts", "pkg/new.py", "old.py"]


def test_a_folder_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert names(tmp_path / "gone") == []


async def test_the_latest_file_is_learned_last(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"{number}.py"
        path.write_text(f"x = {number}\n")
        os.utime(path, (number, number))
    learned: list[str] = []
    await learn_neighbours([tmp_path], lambda uri, text: learned.append(text))
    assert learned == ["x = 0\n", "x = 1\n", "x = 2\n"]
