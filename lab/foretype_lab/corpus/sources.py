"""Where source text comes from: wheels, sdists, Debian and npm packages, commits, the standard library.

Nothing of a package is ever executed here: archives are read in memory and never unpacked (see ``readers``). Downloads go
through each registry's ordinary client. Of these only pip's sdist download runs something: pip asks the package's build
backend for its metadata; wheels, ``npm pack``, ``apt-get source --download-only`` and ``git fetch`` run nothing.
"""

from __future__ import annotations

import email
import email.message
import platform
import re
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretype_models.artifacts import digest_file

from foretype_lab.corpus import readers, terms
from foretype_lab.corpus.languages import PYTHON, language_of
from foretype_lab.corpus.never_train import normalise
from foretype_lab.errors import LabError

KINDS = ("wheel", "library", "sdist", "npm", "debian", "git")


@dataclass(frozen=True)
class Commit:
    """A public repository at a commit; ``languages`` are what is taken of it, all where empty."""

    url: str
    commit: str
    languages: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Owner and name, as in the URL."""
        return "/".join(self.url.removesuffix(".git").rstrip("/").split("/")[-2:])


@dataclass(frozen=True)
class Plan:
    """The declarative source list, such as ``lab/corpus/sources.toml``.

    Attributes:
        projects: PyPI projects, each name or ``name==version``.
        validation: sources held out whole, whatever their kind.
        project_bytes: most text taken from one project and language, so that no giant sets the style.
        standard_library: whether the running Python's library is taken.
        standard_library_skip: its folders that are left out.
        skip_folders: folders left out in sources of other kinds than wheels.
        sdists, npm, debian, commits: sources of the other kinds.
        never_train: repositories whose text the content check is made from, beside the projects of ``never_train.toml``.
    """

    projects: tuple[str, ...]
    validation: frozenset[str]
    project_bytes: int
    standard_library: bool
    standard_library_skip: frozenset[str]
    skip_folders: frozenset[str] = frozenset()
    sdists: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    commits: tuple[Commit, ...] = ()
    never_train: tuple[Commit, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Plan:
        """Reads the source list."""
        data = tomllib.loads(path.read_text("utf-8"))
        limits = data["limits"]
        held_out = [*data["pypi"]["validation"], *data.get("held_out", {}).get("names", ())]
        return cls(
            projects=tuple(data["pypi"]["projects"]),
            validation=frozenset(name if "/" in name else normalise(name) for name in held_out),
            project_bytes=int(limits["project_bytes"]),
            standard_library=bool(data["standard_library"]["use"]),
            standard_library_skip=frozenset(data["standard_library"]["skip"]),
            skip_folders=frozenset(limits.get("skip_folders", ())),
            sdists=tuple(data.get("sdist", {}).get("projects", ())),
            npm=tuple(data.get("npm", {}).get("packages", ())),
            debian=tuple(data.get("debian", {}).get("sources", ())),
            commits=_commits(data.get("git", ())),
            never_train=_commits(data.get("never_train", ())),
        )


def _commits(items: Any) -> tuple[Commit, ...]:
    return tuple(Commit(item["url"], item["commit"], frozenset(item.get("languages", ()))) for item in items)


@dataclass(frozen=True)
class Source:
    """One project as it lies on disk.

    Attributes:
        name: normalised project name; ``owner/name`` for a repository.
        version: its version or commit.
        origin: file name of the archive, URL of the repository, or ``standard library``.
        sha256: of the archive; empty for the standard library and for commits, whose name is a digest.
        metadata: core metadata of a Python package, else None.
        location: the archive or folder.
        kind: one of :data:`KINDS`.
        languages: what is taken of it; all where empty.
    """

    name: str
    version: str
    origin: str
    sha256: str
    metadata: email.message.Message | None
    location: Path
    kind: str = "wheel"
    languages: frozenset[str] = field(default_factory=lambda: frozenset({PYTHON}))


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
        name = normalise(str(metadata["Name"]))
        yield Source(name, str(metadata["Version"]), path.name, digest_file(path), metadata, path)


def open_sdists(folder: Path) -> Iterator[Source]:
    """Opens the sdists (``*.tar.gz`` with a PKG-INFO at the top) of a folder in name order."""
    for path in sorted(folder.glob("*.tar.gz")):
        found = dict(readers.tar_files(path, lambda name: name == "PKG-INFO"))
        if "PKG-INFO" not in found:
            raise LabError(f"{path} has no PKG-INFO at its top, so it is no sdist; delete it")
        metadata = email.message_from_bytes(found["PKG-INFO"])
        name = normalise(str(metadata["Name"]))
        yield Source(name, str(metadata["Version"]), path.name, digest_file(path), metadata, path, "sdist")


def open_npm(folder: Path) -> Iterator[Source]:
    """Opens the tarballs that ``npm pack`` leaves, in name order."""
    for path in sorted(folder.glob("*.tgz")):
        found = re.fullmatch(r"(.+?)-(\d+\.\d+\.\d+.*)\.tgz", path.name)
        if found is None:
            raise LabError(f"{path} is not named like a tarball of `npm pack`; download it again")
        yield Source(found[1], found[2], path.name, digest_file(path), None, path, "npm", frozenset())


def open_debian(folder: Path) -> Iterator[Source]:
    """Opens the Debian source packages (``*.dsc`` with their tarballs) of a folder in name order."""
    for path in sorted(folder.glob("*.dsc")):
        name, _, version = path.stem.partition("_")
        yield Source(name, version, path.name, digest_file(path), None, path, "debian", frozenset())


def open_commits(commits: tuple[Commit, ...], folder: Path) -> Iterator[Source]:
    """Opens repositories, which lie under ``folder/owner/name`` as a clone with or without a work tree.

    Raises:
        LabError: one is not there.
    """
    for item in sorted(commits, key=lambda item: item.name):
        location = folder / item.name
        if not location.exists():
            raise LabError(f"{location} is missing; get {item.url} at {item.commit} into it")
        yield Source(item.name, item.commit, item.url, "", None, location, "git", item.languages)


def listed(plan: Plan) -> frozenset[str]:
    """Names of the sdists, npm and Debian packages of a plan, as the ``open_…`` functions give them."""
    npm = (item.rsplit("@", 1)[0] if "@" in item[1:] else item for item in plan.npm)
    return frozenset(
        {normalise(item.split("==")[0]) for item in plan.sdists}
        | {item.lstrip("@").replace("/", "-") for item in npm}
        | {item.split("=")[0] for item in plan.debian}
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
        kind="library",
    )


def terms_of(source: Source) -> terms.Terms:
    """Reads a source's terms from its own metadata.

    Raises:
        LabError: the source cannot be read.
    """
    if source.kind == "library":
        return terms.Terms("PSF-2.0", (("*", True),))
    if source.metadata is not None:
        return terms.of_metadata(source.metadata)
    if source.kind == "debian":
        return terms.of_debian(readers.debian_copyright(source.location))
    texts: Mapping[str, str] = {name: raw.decode("utf-8", "replace") for name, raw in _read(source, _describes(source))}
    if source.kind == "npm":
        return terms.of_package_json(texts.get("package.json", ""))
    return terms.of_licence_texts(texts)


def _describes(source: Source) -> readers.Wanted:
    return (lambda name: name == "package.json") if source.kind == "npm" else terms.is_licence_file


def files(source: Source, skip: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    """Yields (path, bytes) of a source's files in the languages that are taken, those in a ``skip`` folder left out.

    Files over the size limit come as their first ``MAX_FILE_BYTES + 1`` bytes, which is enough to be refused.
    """

    def wanted(path: str) -> bool:
        language = language_of(path)
        if language is None or (source.languages and language not in source.languages):
            return False
        # A file's own name counts for the library alone, whose skipped names are modules, too.
        folders = path.split("/") if source.kind == "library" else path.split("/")[:-1]
        return not skip.intersection(folders)

    return _read(source, wanted)


def _read(source: Source, wanted: readers.Wanted) -> Iterator[tuple[str, bytes]]:
    if source.kind == "git":
        return readers.git_files(source.location, source.version, wanted)
    if source.kind == "debian":
        return readers.debian_files(source.location, wanted)
    if source.kind in ("sdist", "npm"):
        return readers.tar_files(source.location, wanted)
    if source.location.is_dir():
        return readers.folder_files(source.location, wanted)
    return readers.zip_files(source.location, wanted)
