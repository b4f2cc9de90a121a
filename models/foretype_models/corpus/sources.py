"""Where source text comes from: wheels from the package index, and the standard library of the running Python.

Nothing of a package is ever executed: wheels only (``pip download --only-binary``), read as zip archives in memory and
never unpacked, so no build step runs and no path of an archive is followed.
"""

from __future__ import annotations

import email
import email.message
import hashlib
import platform
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from foretype_models.corpus.filters import MAX_FILE_BYTES
from foretype_models.corpus.never import normalise


@dataclass(frozen=True)
class Plan:
    """The declarative source list, ``models/corpus/sources.toml``.

    Attributes:
        projects: PyPI projects, each name or ``name==version``.
        validation: projects held out whole.
        project_bytes: most text taken from one project, so that no giant sets the style.
        standard_library: whether the running Python's library is taken.
        standard_library_skip: its folders that are left out.
    """

    projects: tuple[str, ...]
    validation: frozenset[str]
    project_bytes: int
    standard_library: bool
    standard_library_skip: frozenset[str]

    @classmethod
    def load(cls, path: Path) -> Plan:
        """Reads the source list."""
        data = tomllib.loads(path.read_text("utf-8"))
        return cls(
            projects=tuple(data["pypi"]["projects"]),
            validation=frozenset(normalise(name) for name in data["pypi"]["validation"]),
            project_bytes=int(data["limits"]["project_bytes"]),
            standard_library=bool(data["standard_library"]["use"]),
            standard_library_skip=frozenset(data["standard_library"]["skip"]),
        )


@dataclass(frozen=True)
class Source:
    """One project as it lies on disk.

    Attributes:
        name: normalised project name.
        version: its version.
        origin: file name of the wheel, or ``standard library``.
        sha256: of the wheel; empty for the standard library.
        metadata: core metadata, None for the standard library.
        location: the wheel, or the library's folder.
    """

    name: str
    version: str
    origin: str
    sha256: str
    metadata: email.message.Message | None
    location: Path


def download(projects: tuple[str, ...], folder: Path, *, workers: int = 6) -> list[str]:
    """Downloads wheels that are not there yet.

    Returns:
        The projects that have no wheel or could not be had, each with pip's last line. They are reported in the
        manifest; one missing project is no reason to stop.
    """
    folder.mkdir(parents=True, exist_ok=True)
    present = {normalise(path.name.split("-")[0]) for path in folder.glob("*.whl")}
    wanted = [project for project in projects if normalise(project.split("==")[0]) not in present]

    def fetch(project: str) -> str | None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run([*command, "--dest", str(folder), project], capture_output=True, text=True, check=False)
        return f"{project}: {(done.stderr.strip().splitlines() or ['?'])[-1]}" if done.returncode else None

    with ThreadPoolExecutor(workers) as pool:
        return [failure for failure in pool.map(fetch, wanted) if failure]


def open_wheels(folder: Path) -> Iterator[Source]:
    """Opens the wheels of a folder in name order."""
    for path in sorted(folder.glob("*.whl"), key=lambda path: path.name.lower()):
        with zipfile.ZipFile(path) as archive:
            names = [
                name for name in archive.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1
            ]
            if len(names) != 1:
                raise ValueError(
                    f"{path}: a wheel has exactly one METADATA, this one has {len(names)}; download it again"
                )
            metadata = email.message_from_bytes(archive.read(names[0]))
        yield Source(
            name=normalise(str(metadata["Name"])),
            version=str(metadata["Version"]),
            origin=path.name,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            metadata=metadata,
            location=path,
        )


def standard_library() -> Source:
    """The library of the Python that runs this."""
    return Source(
        name="cpython",
        version=platform.python_version(),
        origin="standard library",
        sha256="",
        metadata=None,
        location=Path(sysconfig.get_paths()["stdlib"]),
    )


def files(source: Source, skip: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    """Yields (path, bytes) of a source's Python files in path order.

    Files over the size limit come as their first ``MAX_FILE_BYTES + 1`` bytes, which is enough to be refused.
    """
    if source.location.is_dir():
        for path in sorted(source.location.rglob("*.py")):
            relative = path.relative_to(source.location)
            if not skip.intersection(relative.parts):
                with path.open("rb") as stream:
                    yield relative.as_posix(), stream.read(MAX_FILE_BYTES + 1)
        return
    with zipfile.ZipFile(source.location) as archive:
        for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
            if entry.filename.endswith(".py"):
                with archive.open(entry) as stream:
                    yield entry.filename, stream.read(MAX_FILE_BYTES + 1)
