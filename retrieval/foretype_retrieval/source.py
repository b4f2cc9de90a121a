"""Snippets for a completion, from memory: definitions that the imports and identifiers at the cursor name, then what is retrieved.

The answer changes with finished words, not with every key, so that what is already in the prompt can stay there.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from foretype_context.prompt.segments import Scope
from foretype_context.prompt.sources import Snippet
from foretype_context.syntax.document import Snapshot
from foretype_context.text.uris import path_of_uri
from numpy.typing import NDArray

from foretype_retrieval.embedder import Embedder
from foretype_retrieval.indexing import IndexingProgress
from foretype_retrieval.search import NEAR_LINES, Query, SearchHit, query_at, search
from foretype_retrieval.terms import subwords
from foretype_retrieval.watch import IndexedFolder

_logger = logging.getLogger(__name__)

_REMEMBERED: Final = 64
_HEAD_LINES: Final = 300
_OPEN_CHARS_MAX: Final = 400_000


class RetrievalSource:
    """A :class:`foretype_context.prompt.sources.SnippetSource` over the indexes of the open workspaces.

    All methods are called by one thread.

    Args:
        workspaces: each keeps its own index up to date.
        embedder: asked when it is needed; None while there is none.
        make: a started workspace for one more folder.
    """

    name: Final = "retrieval"

    def __init__(
        self,
        workspaces: Sequence[IndexedFolder],
        embedder: Callable[[], Embedder | None],
        make: Callable[[Path], IndexedFolder] | None = None,
    ) -> None:
        self._workspaces: tuple[IndexedFolder, ...] = tuple(workspaces)
        self._embedder = embedder
        self._make = make
        # As the editor names them: a link's target is indexed, and paths that go over the link belong to it too.
        self._named: dict[Path, IndexedFolder] = {one.root: one for one in workspaces}
        self._texts: dict[Path, str] = {}
        self._remembered: OrderedDict[tuple[object, ...], tuple[Snippet, ...]] = OrderedDict()

    def snippets(self, snapshot: Snapshot, offset: int, *, limit: int) -> Sequence[Snippet]:
        """At most `limit` snippets, best first. Reads no file; none while the index is not there yet."""
        path = path_of(snapshot.uri)
        workspace, own = self._place(path) if path is not None else (None, "")
        if workspace is None and path is None and len(self._workspaces) == 1:
            workspace, own = self._workspaces[0], snapshot.path
        if workspace is None or limit <= 0:
            return ()
        index = workspace.index
        if index is None:
            return ()
        query = _question(snapshot, offset, own)
        key = (workspace.root, workspace.generation, limit, query.names, query.text, len(query.imported), own)
        found = self._remembered.get(key)
        if found is None:
            embedder = self._embedder()
            asked = _Asked(embedder) if embedder is not None else None
            hits = search(index, query, asked, limit=limit)
            found = tuple(_snippet(hit) for hit in hits)
            if asked is None or not asked.late:  # by words alone it would stay when the vector is there
                self._remembered[key] = found
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        return [one for one in found if not workspace.ignored(workspace.root / one.path)]

    def holding(self, root: Path, word: str, limit: int) -> list[Path]:
        """At most `limit` files of an open folder that may hold an identifier, in the order of their paths. Reads none of them."""
        workspace = self._named.get(root)
        index = None if workspace is None else workspace.index
        terms = subwords(word)
        if workspace is None or index is None or not terms:
            return []
        return [root / path for path in index.holding(terms, limit) if not workspace.ignored(workspace.root / path)]

    def opened(self, uri: str, text: str) -> None:
        """A document is open in the editor: its text counts, not its file's."""
        path = path_of(uri)
        if path is not None:
            self._texts[path] = text
            self._tell(path, text)

    def changed(self, uri: str, text: str) -> None:
        """An open document has another text; call it when nobody types, not at every key."""
        self.opened(uri, text)

    def closed(self, uri: str) -> None:
        """A document is not open any more: its file counts again."""
        path = path_of(uri)
        if path is not None and self._texts.pop(path, None) is not None:
            self._tell(path, None)

    def saved(self, uri: str) -> None:
        """A document was saved, or a file was made, changed or deleted; it is read again in the background."""
        path = path_of(uri)
        workspace, own = self._place(path) if path is not None else (None, "")
        if workspace is not None:
            workspace.touched(own)

    def folders(self, roots: Sequence[Path]) -> None:
        """These are the open workspace folders from now on; what is open in the editor is known to new ones too."""
        resolved = {root: _resolved(root) for root in roots}
        before = {one.root: one for one in self._workspaces}
        wanted = dict.fromkeys(resolved.values())
        for root in before.keys() - wanted.keys():
            before[root].close(timeout_s=0.0)
        if self._make is not None:
            added = {root: self._make(root) for root in wanted if root not in before}
        else:
            added = {}
        self._workspaces = tuple(one for root in wanted if (one := before.get(root) or added.get(root)) is not None)
        roots_now = {one.root: one for one in self._workspaces}
        self._named = {name: roots_now[root] for name, root in resolved.items() if root in roots_now} | roots_now
        self._remembered.clear()
        for path, text in self._texts.items():
            own, _ = self._place(path)
            for name, workspace in self._named.items():
                # It was in there, and is in one further inside now.
                if workspace is not own and path.is_relative_to(name):
                    workspace.edited(path.relative_to(name).as_posix(), None)
            self._tell(path, text)

    def cancel(self, root: Path) -> None:
        """The user does not want this folder to be indexed now."""
        workspace = self._named.get(root)
        if workspace is not None:
            workspace.cancel()

    def wait(self, timeout_s: float) -> bool:
        """Waits until what is known now is in the index; for the command line."""
        return all(workspace.wait_idle(timeout_s) for workspace in self._workspaces)

    def status(self) -> str:
        """One line for people: how much is indexed, and what is wrong."""
        return "; ".join(workspace.status() for workspace in self._workspaces) or "no workspace is open"

    def close(self) -> None:
        """Ends the background work; what is on disk stays as it is."""
        for workspace in self._workspaces:
            workspace.close()

    def _place(self, path: Path) -> tuple[IndexedFolder | None, str]:
        """The innermost workspace that a file lies in, and its path there."""
        inside = [name for name in self._named if path.is_relative_to(name)]
        if not inside:
            return None, ""
        name = max(inside, key=lambda one: len(one.parts))
        return self._named[name], path.relative_to(name).as_posix()

    def _tell(self, path: Path, text: str | None) -> None:
        workspace, own = self._place(path)
        if workspace is not None:
            workspace.edited(own, text if text is not None and len(text) <= _OPEN_CHARS_MAX else None)


class _Asked:
    """An embedder, and whether it was `late` with a question's vector."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.dimensions = embedder.dimensions
        self.digest = embedder.digest
        self.late = False

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._embedder.embed(texts)

    def question(self, text: str) -> NDArray[np.float32] | None:
        vector = self._embedder.question(text)
        self.late = vector is None
        return vector


def _question(snapshot: Snapshot, offset: int, own: str) -> Query:
    line = snapshot.line_of(offset)
    text = snapshot.text
    near = max(0, line - NEAR_LINES)
    lines = text[: snapshot.line_start(min(near, _HEAD_LINES))].splitlines()
    lines += text[snapshot.line_start(near) : snapshot.line_start(line)].splitlines()
    return query_at(lines, text[snapshot.line_start(line) : offset], own)


def _snippet(hit: SearchHit) -> Snippet:
    found = hit.found
    return Snippet(
        path=found.path,
        text=found.text,
        start=found.start,
        end=found.end,
        source_name=hit.source_name,
        score=found.score,
        # The working tree of one developer: uncommitted text is not equal for everybody.
        scope=Scope.SESSION,
    )


def path_of(uri: str) -> Path | None:
    """The file of a `file:` URI or a plain absolute path; None for anything else."""
    if (path := path_of_uri(uri)) is not None:
        return path
    plain = Path(uri)
    return plain if plain.is_absolute() else None


def _resolved(root: Path) -> Path:
    try:
        return root.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return root


def open_source(
    roots: Sequence[Path],
    *,
    cache_dir: Path | None = None,
    table: Path | None = None,
    globs: Sequence[str] = (),
    on_progress: Callable[[Path, int, int], None] | None = None,
) -> RetrievalSource:
    """A source over these folders that indexes them in the background; what the entry point `foretype.sources` names.

    Args:
        cache_dir: where indexes are kept; None is the user's cache directory.
        table: embedding table; None is the shipped one.
        globs: what not to index, in the form of `.gitignore`.
        on_progress: called from a thread with a folder and the files done and in all (0 in all: not known yet) while it is
            indexed, and with -1 done when that has ended.
    """
    from foretype_retrieval.static_embedder import LazyEmbedder
    from foretype_retrieval.watch import default_cache_dir

    embedder = LazyEmbedder(table, complain=lambda reason: _logger.warning("%s", reason))
    cache = cache_dir or default_cache_dir()

    def make(root: Path) -> IndexedFolder:
        def tell(progress: IndexingProgress | None) -> None:
            if on_progress is not None:
                on_progress(root, *((-1, 0) if progress is None else (progress.files_done, progress.files_total)))

        workspace = IndexedFolder(root, cache, embedder, table=table, globs=globs, on_progress=tell)
        workspace.start()
        return workspace

    source = RetrievalSource((), embedder, make)
    source.folders(roots)
    return source
