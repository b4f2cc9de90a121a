"""Reads source files out of wheels, tarballs, Debian source packages, folders and git directories.

Nothing is unpacked and no path of an archive is followed: archives are read in memory, one file at a time. A reader
yields (path, bytes) in the order of the archive; files over the size limit come as their first ``MAX_FILE_BYTES + 1``
bytes, which is enough to be refused.
"""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from email import message_from_string
from pathlib import Path

from foretype_context.errors import GitError
from foretype_context.folder.git import Repository, repository_at

from foretype_lab.corpus.filters import MAX_FILE_BYTES
from foretype_lab.errors import LabError

_GIT_S = 600.0

Wanted = Callable[[str], bool]
Files = Iterator[tuple[str, bytes]]


def zip_files(path: Path, wanted: Wanted) -> Files:
    """Files of a wheel, in path order."""
    with zipfile.ZipFile(path) as archive:
        for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
            if wanted(entry.filename):
                with archive.open(entry) as stream:
                    yield entry.filename, stream.read(MAX_FILE_BYTES + 1)


def tar_files(path: Path, wanted: Wanted, *, strip: int = 1) -> Files:
    """Files of a tarball of any compression, without its ``strip`` leading folders."""
    try:
        # "r|*" reads once from front to back: an .xz archive has no way to jump.
        with tarfile.open(path, "r|*") as archive:
            for entry in archive:
                name = "/".join(part for part in entry.name.split("/") if part != ".").split("/", strip)[-1]
                if entry.isfile() and wanted(name):
                    stream = archive.extractfile(entry)
                    if stream is not None:
                        yield name, stream.read(MAX_FILE_BYTES + 1)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise LabError(f"{path} cannot be read ({error}); delete it and download it again") from error


def folder_files(folder: Path, wanted: Wanted) -> Files:
    """Files of a folder, in path order."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if wanted(name) and path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                yield name, stream.read(MAX_FILE_BYTES + 1)


def git_files(repository: Path, commit: str, wanted: Wanted) -> Files:
    """Files of a commit, in path order, read from the object store: no work tree is needed.

    Raises:
        LabError: the folder is no repository, or lacks the commit.
    """
    listing = _git(repository, "ls-tree", "-r", "-z", "-l", "--full-tree", commit)
    entries: list[tuple[str, str]] = []
    for line in filter(None, listing.decode("utf-8", "replace").split("\0")):
        details, _, name = line.partition("\t")
        mode, kind, identity, size = details.split()
        # Only plain files: a link (120000) is another file's name.
        # A snapshot may list its largest files without having them; their size reads "BAD".
        whole = size.isdigit() and int(size) <= MAX_FILE_BYTES
        if kind == "blob" and mode.startswith("100") and whole and wanted(name):
            entries.append((name, identity))
    try:
        found = _repository(repository).blobs([identity for _, identity in entries], time_s=_GIT_S)
        for (name, _), data in zip(entries, found, strict=True):
            if data is None:
                raise LabError(f"{repository} lacks {name} of {commit}; fetch the commit whole")
            yield name, data
    except GitError as error:
        raise LabError(f"{error}; get it with `git clone`, at the commit of the source list") from error


def _git(repository: Path, *arguments: str) -> bytes:
    try:
        return _repository(repository).run(*arguments, time_s=_GIT_S)
    except GitError as error:
        raise LabError(f"{error}; get it with `git clone`, at the commit of the source list") from error


def _repository(folder: Path) -> Repository:
    found = repository_at(folder) if folder.is_dir() else None
    if found is None:
        raise LabError(f"{folder} is not a git repository; get it with `git clone`")
    return found


def debian_parts(description: Path) -> list[Path]:
    """The tarballs that a ``.dsc`` names, checked by its SHA-256.

    Raises:
        LabError: one is missing or has other content.
    """
    text = description.read_text("utf-8")
    body = text.split("\n\n", 1)[1] if text.startswith("-----BEGIN PGP") else text
    fields = message_from_string(body)
    parts: list[Path] = []
    for line in str(fields["Checksums-Sha256"]).split("\n"):
        if not line.strip():
            continue
        digest, _, name = line.split()
        path = description.with_name(Path(name).name)
        if ".tar." not in name or name.endswith(".asc"):
            continue
        if not path.exists():
            raise LabError(f"{path} is missing; download {description.name} again")
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                raise LabError(f"{path} is not what {description.name} describes; delete it and download it again")
        parts.append(path)
    return parts


def debian_files(description: Path, wanted: Wanted) -> Files:
    """Upstream's files of a Debian source package; ``debian/`` itself is packaging and left out."""
    for part in debian_parts(description):
        if ".debian.tar." not in part.name:
            yield from tar_files(part, lambda name: wanted(name) and not name.startswith("debian/"))


def debian_copyright(description: Path) -> str:
    """Text of ``debian/copyright``, empty where there is none."""
    for part in debian_parts(description):
        for name, data in tar_files(part, lambda name: name in ("copyright", "debian/copyright"), strip=0):
            if name == "debian/copyright":
                return data.decode("utf-8", "replace")
    return ""
