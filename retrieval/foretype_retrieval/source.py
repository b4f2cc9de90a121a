"""Snippets for a completion, from memory: definitions that the imports and identifiers at the cursor name, then what is retrieved.

The answer changes with finished words, not with every key, so that what is already in the prompt can stay there.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from foretype_context.document import Snapshot
from foretype_context.segments import Scope
from foretype_context.sources import Snippet

from foretype_retrieval.embed import Embedder
from foretype_retrieval.search import NEAR_LINES, Hit, Query, query_at, search
from foretype_retrieval.watch import Workspace

__all__ = ["RetrievalSource", "open_source", "path_of_uri"]

_logger = logging.getLogger(__name__)

_REMEMBERED: Final = 64
_HEAD_LINES: Final = 300


class RetrievalSource:
    """A :class:`foretype_context.sources.SnippetSource` over the indexes of the open workspaces.

    Args:
        workspaces: each keeps its own index up to date.
        embedder: asked when it is needed; None while there is none.
    """

    name: Final = "retrieval"

    def __init__(self, workspaces: Sequence[Workspace], embedder: Callable[[], Embedder | None]) -> None:
        self._workspaces = tuple(workspaces)
        self._embedder = embedder
        self._remembered: OrderedDict[tuple[object, ...], tuple[Snippet, ...]] = OrderedDict()

    def snippets(self, snapshot: Snapshot, offset: int, *, limit: int) -> Sequence[Snippet]:
        """At most `limit` snippets, best first. Reads no file; none while the index is not there yet."""
        path = path_of_uri(snapshot.uri)
        workspace = next((one for one in self._workspaces if path is not None and path.is_relative_to(one.root)), None)
        if workspace is None:
            workspace = self._workspaces[0] if len(self._workspaces) == 1 and path is None else None
        if workspace is None or limit <= 0:
            return ()
        index = workspace.index
        if index is None:
            return ()
        own = path.relative_to(workspace.root).as_posix() if path is not None else snapshot.path
        query = _question(snapshot, offset, own)
        key = (workspace.root, workspace.generation, limit, query.names, query.text, len(query.imported), own)
        found = self._remembered.get(key)
        if found is None:
            hits = search(index, query, self._embedder(), limit=limit)
            found = tuple(_snippet(hit) for hit in hits)
            self._remembered[key] = found
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        return found

    def saved(self, uri: str) -> None:
        """A document was saved, made or deleted; its file is read again in the background."""
        path = path_of_uri(uri)
        for workspace in self._workspaces:
            if path is not None and path.is_relative_to(workspace.root):
                workspace.touched(path.relative_to(workspace.root).as_posix())
                return

    def status(self) -> str:
        """One line for people: how much is indexed, and what is wrong."""
        return "; ".join(workspace.status() for workspace in self._workspaces) or "no workspace is open"

    def close(self) -> None:
        """Ends the background work; what is on disk stays as it is."""
        for workspace in self._workspaces:
            workspace.close()


def _question(snapshot: Snapshot, offset: int, own: str) -> Query:
    line = snapshot.line_of(offset)
    text = snapshot.text
    near = max(0, line - NEAR_LINES)
    lines = text[: snapshot.line_start(min(near, _HEAD_LINES))].splitlines()
    lines += text[snapshot.line_start(near) : snapshot.line_start(line)].splitlines()
    return query_at(lines, text[snapshot.line_start(line) : offset], own)


def _snippet(hit: Hit) -> Snippet:
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


def path_of_uri(uri: str) -> Path | None:
    """The file of a `file:` URI or a plain absolute path; None for anything else."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(url2pathname(unquote(parts.path)))
    path = Path(uri)
    return path if path.is_absolute() else None


def open_source(
    roots: Sequence[Path], *, cache_dir: Path | None = None, table: Path | None = None, globs: Sequence[str] = ()
) -> RetrievalSource:
    """A source over these folders that indexes them in the background; what the entry point `foretype.sources` names.

    Args:
        cache_dir: where indexes are kept; None is the user's cache directory.
        table: embedding table; None is the shipped one.
        globs: what not to index, in the form of `.gitignore`.
    """
    from foretype_retrieval.embed import LazyEmbedder
    from foretype_retrieval.watch import default_cache_dir

    embedder = LazyEmbedder(table, complain=lambda reason: _logger.warning("%s", reason))
    cache = cache_dir or default_cache_dir()
    workspaces = [Workspace(root.resolve(), cache, embedder, table=table, globs=globs) for root in roots]
    for workspace in workspaces:
        workspace.start()
    return RetrievalSource(workspaces, embedder)
