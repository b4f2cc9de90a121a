"""The one door to git: what a repository holds, read as data. Nothing of a repository's configuration is ever read, so none runs.

`git` is started with a git folder of our own, empty and thrown away, which takes its objects from the repository: whatever
the repository's `config`, hooks, attributes, worktree settings and includes say, git never sees them, nor the user's own.
References (`HEAD`, `refs/`, `packed-refs`) are read here, as small files. The program is found by absolute path, outside of
the repository; its environment is written from nothing; time, memory and output are bounded. No library is used instead:
they read the configuration too, and their parsers of packs would run in our process, where no time limit can end them.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from foretype_context.errors import GitError
from foretype_context.folder.small_files import read_small

_LINE_BYTES: Final = 4_096
_PACKED_BYTES: Final = 64 << 20
_SHALLOW_BYTES: Final = 8 << 20
_OUTPUT_BYTES: Final = 256 << 20
_BATCH: Final = 100
_LINKS_MAX: Final = 5
_ID: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHORT_ID: Final = re.compile(r"[0-9a-f]{4,64}")
_NAME: Final = re.compile(r"(?!.*(?:\.\.|//|/\.))[^\x00-\x20\x7f~^:?*\[\\/.-][^\x00-\x20\x7f~^:?*\[\\]*")
_STEPS: Final = re.compile(r"(?:[~^]\d*|\^\{(?:commit|tree|)\})*")
_CONFIG: Final = """\
[core]
\trepositoryFormatVersion = 1
\tbare = true
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
[protocol]
\tallow = never
[gc]
\tauto = 0
[extensions]
\tobjectFormat = {format}
"""


@dataclass(frozen=True, slots=True)
class Repository:
    """Where a repository keeps what.

    Attributes:
        root: the folder that `.git` lies in, or the git folder itself where that is all there is.
        git_dir: with `HEAD`; of a linked work tree its own.
        common_dir: with objects and references.
    """

    root: Path
    git_dir: Path
    common_dir: Path

    def commit(self, revision: str = "HEAD") -> str:
        """The id of the object that a reference names, or the words of `revision` with its first name replaced by one.

        Raises:
            GitError: there is no such name; or it is of a form that is not read (`@{1}`, `:/text`).
        """
        split = re.match(r"([^~^]*)(.*)", revision, re.DOTALL)
        name, steps = (split[1] or "HEAD", split[2]) if split is not None else ("HEAD", "")
        if _STEPS.fullmatch(steps) is None:
            raise GitError(f"{revision!r} is not read; give a commit's id")
        names = ("HEAD",) if name == "@" else _spellings(name)
        found = next((id for spelled in names if (id := self._reference(spelled))), "")
        if not found and _SHORT_ID.fullmatch(name) is None:
            raise GitError(f"{name!r} is no branch, tag or commit of {self.root}")
        return (found or name) + steps

    def revisions(self, selection: str) -> str:
        """A commit, or a range `A..B` or `A...B`, with its names replaced by ids. Raises GitError as `commit` does."""
        left, dots, right = re.match(r"(.*?)(\.{2,3}|\Z)(.*)", selection, re.DOTALL).groups()  # type: ignore[union-attr]
        return f"{self.commit(left)}{dots}{self.commit(right)}" if dots else self.commit(left)

    def run(self, *arguments: str, given: bytes = b"", time_s: float = 5.0, limit_bytes: int = _OUTPUT_BYTES) -> bytes:
        """What git prints; `HEAD` is known to it, other names are not. Blocks; for a thread that may wait.

        Args:
            arguments: a command that reads objects, and its options.
            given: its standard input.

        Raises:
            GitError: there is no git outside of the repository, or it failed, or one of the bounds was reached.
        """
        git = next((one for one in _programs(os.environ.get("PATH", "")) if not self._holds(one)), None)
        if git is None:
            raise GitError("there is no git outside of the folder; install it and put its folder into PATH")
        try:
            with TemporaryDirectory(prefix="foretype-git-", ignore_cleanup_errors=True) as folder:
                return self._ask(git, Path(folder), arguments, given, time_s, limit_bytes)
        except OSError as error:
            raise GitError(f"git cannot be started: {error}") from error

    def blobs(self, ids: Sequence[str], *, time_s: float = 5.0) -> Iterator[bytes | None]:
        """Contents of objects, in their order; None for one that the repository lacks. Raises GitError as `run` does."""
        for start in range(0, len(ids), _BATCH):
            some = ids[start : start + _BATCH]
            data = self.run("cat-file", "--batch", given="".join(f"{id}\n" for id in some).encode(), time_s=time_s)
            at = 0
            for _ in some:
                end = data.find(b"\n", at)
                head = data[at:end].split() if end >= 0 else []
                at = end + 1
                if len(head) == 3 and head[2].isdigit():  # else "<id> missing"
                    size = int(head[2])
                    yield data[at : at + size]
                    at += size + 1
                else:
                    yield None

    def _ask(
        self, git: str, own: Path, arguments: Sequence[str], given: bytes, time_s: float, limit_bytes: int
    ) -> bytes:
        self._dress(own)
        asked, told = own / "asked", own / "told"
        asked.write_bytes(given)
        with asked.open("rb") as stdin, told.open("wb") as stderr:
            process = subprocess.Popen(
                [git, "--no-pager", *arguments],
                cwd=own,
                env=self._environment(own),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
            late = threading.Event()
            timer = threading.Timer(time_s, lambda: (late.set(), process.kill()))
            timer.start()
            try:
                with process:
                    data = process.stdout.read(limit_bytes + 1) if process.stdout is not None else b""
                    if len(data) > limit_bytes:
                        process.kill()
            finally:
                timer.cancel()
        if len(data) > limit_bytes:
            raise GitError(f"git {arguments[0]} printed more than {limit_bytes:,} bytes in {self.root}")
        if late.is_set():
            raise GitError(f"git {arguments[0]} took longer than {time_s:.0f} s in {self.root}")
        if process.returncode:
            with told.open("rb") as stream:
                said = stream.read(_LINE_BYTES).decode("utf-8", "replace").strip().splitlines()
            raise GitError(f"git {arguments[0]} failed in {self.root}: {said[-1] if said else 'no message'}")
        return data

    def _dress(self, own: Path) -> None:
        """Makes the git folder that git is shown."""
        head = self._reference("HEAD")
        (own / "refs").mkdir()
        (own / "HEAD").write_text(f"{head or 'ref: refs/heads/none'}\n")
        (own / "config").write_text(_CONFIG.format(format="sha256" if len(head) == 64 else "sha1"))
        shallow = self._small("shallow", _SHALLOW_BYTES)
        if shallow:  # where a shallow clone's history ends
            (own / "shallow").write_text("".join(f"{id}\n" for id in shallow.split() if _ID.fullmatch(id)))

    def _environment(self, own: Path) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("SYSTEMROOT", "TMPDIR", "TEMP", "TMP") if name in os.environ}
        objects = self.common_dir / "objects"
        _refuse_network_alternates(objects)
        return kept | {
            "PATH": os.defpath,
            "LC_ALL": "C",
            "HOME": str(own),
            "XDG_CONFIG_HOME": str(own),
            "GIT_DIR": str(own),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_EXEC_PATH": str(own),  # with no program in it
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_ALLOW_PROTOCOL": "",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOC_LIMIT": "512m",
        }

    def _reference(self, name: str) -> str:
        """The id behind a full name of a reference; "" where there is none."""
        for _ in range(_LINKS_MAX):
            if _NAME.fullmatch(name) is None:
                return ""
            said = self._small(name, _LINE_BYTES).strip() or self._packed(name)
            if _ID.fullmatch(said):
                return said
            if not said.startswith("ref:"):
                return ""
            name = said.removeprefix("ref:").strip()
        return ""

    def _packed(self, name: str) -> str:
        try:
            data = read_small(self.common_dir / "packed-refs", _PACKED_BYTES, links=True)
        except OSError:
            return ""
        at = data.find(b" " + name.encode("utf-8", "surrogateescape") + b"\n")
        return data[data.rfind(b"\n", 0, at) + 1 : at].decode("ascii", "replace") if at >= 0 else ""

    def _small(self, name: str, limit_bytes: int) -> str:
        for folder in dict.fromkeys((self.git_dir, self.common_dir)):
            try:
                return read_small(folder / name, limit_bytes, links=True).decode("utf-8", "surrogateescape")
            except OSError:
                continue
        return ""

    def _holds(self, program: str) -> bool:
        real = Path(os.path.realpath(program))
        folders = {Path(os.path.realpath(one)) for one in (self.root, self.git_dir, self.common_dir)}
        return any(real.is_relative_to(one) or Path(program).is_relative_to(one) for one in folders)


def repository_at(folder: Path) -> Repository | None:
    """The repository that a folder lies in, or is. Its existence alone is asked for; no process is started."""
    folder = Path(os.path.abspath(folder))
    for at in (folder, *folder.parents):
        found = _git_dir(at)
        if found is None and at == folder and all((at / name).exists() for name in ("HEAD", "objects", "refs")):
            found = at  # a bare one
        if found is not None:
            common = _line(found / "commondir")
            return Repository(at, found, found if not common or _is_remote(common) else found / common)
    return None


def is_repository(folder: Path) -> bool:
    """Whether a repository begins at this very folder. Git's rules of the folders above end there."""
    found = _git_dir(folder)
    try:
        return found is not None and (found / "HEAD").is_file()
    except OSError:  # that of somebody else, above ours
        return False


def is_another_work_tree(folder: Path, repository: Repository | None) -> bool:
    """Whether a folder is a linked work tree of a repository that has its own files elsewhere: the same files once more.

    A repository without an index has none: there the linked work trees are all that there is.
    """
    if repository is None or not (repository.git_dir / "index").is_file() or not is_repository(folder):
        return False
    found = repository_at(folder)
    try:
        return (
            found is not None
            and not os.path.samefile(found.git_dir, repository.git_dir)
            and os.path.samefile(found.common_dir, repository.common_dir)
        )
    except OSError:
        return False


def _git_dir(folder: Path) -> Path | None:
    """`.git`, or the folder that the file `.git` of a linked work tree or a submodule names."""
    git = folder / ".git"
    try:
        if git.is_dir():
            return git
    except OSError:
        return None
    said = _line(git)
    named = said.removeprefix("gitdir:").strip()
    return Path(os.path.normpath(folder / named)) if said.startswith("gitdir:") and not _is_remote(named) else None


def _line(path: Path) -> str:
    try:
        return read_small(path, _LINE_BYTES, links=True).decode("utf-8", "surrogateescape").strip()
    except OSError:
        return ""


def _is_remote(path: str) -> bool:
    """Windows would log in at that host with the user's name as soon as the path is touched."""
    return path.replace("\\", "/").startswith("//")


def _refuse_network_alternates(objects: Path, depth: int = _LINKS_MAX) -> None:
    try:
        said = read_small(objects / "info" / "alternates", _LINE_BYTES, links=True).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return
    for line in said.splitlines():
        if _is_remote(line.strip().strip('"')):
            raise GitError(f"{objects}: its alternates name another machine")
        if line and depth and not line.startswith("#"):
            _refuse_network_alternates(objects / line, depth - 1)


def _spellings(name: str) -> Sequence[str]:
    """Full names that a short one may stand for, in git's order."""
    own = (name,) if name.startswith("refs/") or re.fullmatch(r"[A-Z_]+", name) else ()
    return (
        *own,
        *(f"refs/{place}{name}" for place in ("", "tags/", "heads/", "remotes/")),
        f"refs/remotes/{name}/HEAD",
    )


@lru_cache(maxsize=4)
def _programs(path: str) -> tuple[str, ...]:
    """Every git of the search path, by absolute name; the working directory is never looked into."""
    name = "git.exe" if os.name == "nt" else "git"
    places = [os.path.join(folder, name) for folder in path.split(os.pathsep) if os.path.isabs(folder)]
    return tuple(place for place in places if os.path.isfile(place) and os.access(place, os.X_OK))
