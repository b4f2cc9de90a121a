"""The repository part as a source: what a file's package has in common, read from the commit that is checked out.

Working trees differ from developer to developer and from minute to minute; what is committed is equal for everybody, so that a
fleet computes it once. Asks git, in the source's own thread, again only where another commit is checked out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from foretype_context.errors import GitError
from foretype_context.folder.exclude import MAX_CONTEXT_BYTES
from foretype_context.folder.git import repository_at
from foretype_context.folder.ignored import Ignored
from foretype_context.prompt.repository import MANIFESTS, RepositorySource
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Snapshot
from foretype_context.text.strings import plain_line_ends
from foretype_context.text.uris import path_of_uri

from foretype_client.ports import Clock

_TRUSTED_S: Final = 2.0
_FILES_MAX: Final = 200
_REPOSITORIES_MAX: Final = 16


class GitHead:
    """The commit that is checked out in a working tree.

    Args:
        root: of the working tree.
        globs: of the user: files that are not shown.
        clock: monotonic seconds; which commit it is is asked again after two of them.
        revision: another commit than the one checked out, as git names it; nothing is known where there is none.
    """

    def __init__(self, root: Path, *, globs: Sequence[str], clock: Clock, revision: str = "HEAD") -> None:
        self._root = root
        self._repository = repository_at(root)
        self._revision = revision
        self._ignored = Ignored(root, globs)
        self._clock = clock
        self._known: tuple[float, str] | None = None

    def commit(self) -> str:
        """The commit's id; another one where other files are left out than before."""
        commit = self._checked_out()
        self._ignored.look()
        return f"{commit} {self._ignored.changes}" if commit and self._ignored.changes else commit

    def _checked_out(self) -> str:
        now = self._clock()
        if self._known is None or now - self._known[0] > _TRUSTED_S:
            self._known = now, self._ask()
        return self._known[1]

    def _ask(self) -> str:
        """The commit's id; empty without git, without a commit, or without an answer in time."""
        if self._repository is None:
            return ""
        try:
            named = self._repository.commit(self._revision)
            if self._revision == "HEAD":
                return named
            found = self._repository.run("rev-parse", "--verify", "--quiet", f"{named}^{{commit}}")
            return found.decode("ascii", "replace").strip()
        except GitError:
            return ""

    def files(self, folder: str) -> Mapping[str, str]:
        """Texts of the files directly in `folder` and of the root's manifests; what is too large or ignored is left out."""
        commit = self._checked_out()
        if not commit or self._repository is None:
            return {}
        paths = [*MANIFESTS, f"{folder}/"] if folder else ["."]
        try:
            listed = self._repository.run("ls-tree", "-z", "-l", commit, "--", *paths).decode(
                "utf-8", "surrogateescape"
            )
            wanted = self._wanted(listed)
            texts = list(self._repository.blobs(list(wanted.values())))
        except GitError:
            return {}
        return {
            path: plain_line_ends(data.decode("utf-8", "replace"))
            for path, data in zip(wanted, texts, strict=True)
            if data is not None
        }

    def _wanted(self, listed: str) -> dict[str, str]:
        """Paths and ids of what is shown, from what `git ls-tree -l` lists."""
        wanted: dict[str, str] = {}
        for entry in listed.split("\0"):
            about, _, path = entry.partition("\t")
            mode, kind, blob, size = (*about.split(), "", "", "", "")[:4]
            shown = kind == "blob" and mode != "120000" and size.isdigit() and int(size) <= MAX_CONTEXT_BYTES
            if shown and len(wanted) < _FILES_MAX and not self._ignored(self._root / path):
                wanted[path] = blob
        return wanted


def repository_of(path: Path) -> Path | None:
    """The folder of the git repository that a file lies in."""
    found = repository_at(path.absolute().parent)
    return found.root if found is not None else None


class CommittedSource:
    """Repository parts of the repositories that documents lie in."""

    name: Final = RepositorySource.name

    def __init__(self, *, globs: Sequence[str], clock: Clock) -> None:
        self._globs = tuple(globs)
        self._clock = clock
        self._sources: dict[Path, RepositorySource] = {}

    def folders(self, roots: Sequence[Path]) -> None:
        """Other folders are open: their repositories are found anew."""
        self._sources.clear()

    def snippets(self, snapshot: Snapshot, offset: int, *, limit: int) -> Sequence[Snippet]:
        path = path_of_uri(snapshot.uri)
        root = repository_of(path) if path is not None else None
        if root is None or path is None:
            return ()
        if root not in self._sources:
            if len(self._sources) >= _REPOSITORIES_MAX:
                self._sources.clear()
            self._sources[root] = RepositorySource(GitHead(root, globs=self._globs, clock=self._clock))
        inside = replace(snapshot, path=path.relative_to(root).as_posix())
        return self._sources[root].snippets(inside, offset, limit=limit)
