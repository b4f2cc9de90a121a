"""The sources of other files' snippets on the server's side: opened in the background, told of folders, watched by the editor.

A first index shows itself as work-done progress where the client knows that, and stops where the user says so. Whatever goes
wrong here costs snippets alone: a completion never waits for any of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any, Final

from foretype_client.sources.all_sources import Sources
from foretype_wire.subscriptions import Subscribers
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.editor import Editor
from foretype_lsp.options import Options
from foretype_lsp.progress import Progress
from foretype_lsp.settings import Settings
from foretype_lsp.trust import why_unread

_log: Final = logging.getLogger(__name__)

_WATCHED: Final = "**/*"
_REPORT_EVERY_S: Final = 0.25


class Indexing:
    """Keeps the sources of a server open, as its options say.

    Attributes:
        changed: told when there are other sources than before.
    """

    def __init__(self, editor: Editor, settings: Settings, documents: SharedDocuments) -> None:
        self.changed: Subscribers[[]] = Subscribers()
        self._editor = editor
        self._settings = settings
        self._documents = documents
        self._opened: Options | None = None
        self._watching = False
        self._progresses = Progresses(editor, documents)

    async def apply(self) -> None:
        """Open, or open anew, what the options ask for; returns when it is open, which does not wait for any index."""
        options = self._settings.options
        if self._opened is not None and _same(self._opened, options):
            return
        self._opened = options
        await self._close()
        if why_unread(options):
            return
        if not self._watching:
            self._watching = True
            self._watch_files()
        self._documents.use(await asyncio.to_thread(self._open, options, asyncio.get_running_loop()))
        self.changed.tell()

    async def close(self) -> None:
        await self._close()

    async def _close(self) -> None:
        sources = self._documents.use(Sources.none())
        self._progresses.end_all()
        await asyncio.to_thread(sources.close)

    def _open(self, options: Options, loop: asyncio.AbstractEventLoop) -> Sources:
        from foretype_client.sources.loading import SourceOptions, open_sources

        def on_progress(root: Path, done: int, total: int) -> None:
            try:
                loop.call_soon_threadsafe(self._progresses.told, root, done, total)
            except RuntimeError:
                pass  # the loop is closed

        return open_sources(
            self._documents.roots,
            SourceOptions(
                dependencies=options.index.dependencies,
                globs=options.excluded_globs,
                cache_dir=Path(options.index.cache_dir).expanduser() if options.index.cache_dir else None,
            ),
            call_soon=loop.call_soon_threadsafe,
            clock=time.monotonic,
            on_progress=on_progress,
        )

    def _watch_files(self) -> None:
        """Ask the client to tell of files that others change; without it they are found by comparing, once a minute."""
        if not self._editor.watches_files:
            return
        watcher = types.FileSystemWatcher(glob_pattern=_WATCHED)
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers=[watcher])
        method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        registration = types.Registration(id="foretype-files", method=method, register_options=options)
        params = types.RegistrationParams([registration])
        future = self._editor.send_request(types.CLIENT_REGISTER_CAPABILITY, params)
        future.add_done_callback(_log_failure)


class Progresses:
    """Work-done progress, one for each folder that is indexed.

    A folder can be indexed again while the client is still asked for a token; what comes before its answer is kept back.
    """

    def __init__(self, editor: Editor, documents: SharedDocuments) -> None:
        self._editor = editor
        self._documents = documents
        self._refused = False  # the editor knows progress, and gave no token for it
        self._all: dict[Path, Progress] = {}
        self._reported_s = 0.0
        editor.progress_cancelled.add(self._cancelled)

    def told(self, root: Path, done: int, total: int) -> None:
        """A folder is being indexed (files done, and in all), or not any more (-1 done)."""
        if self._refused or not self._editor.shows_progress:
            return
        progress = self._all.get(root)
        if done < 0:
            if progress is not None:
                self._all.pop(root).end()
        elif progress is None:
            title = f"Foretype: indexing {root.name}"
            self._all[root] = Progress(self._editor, title, percentage=0, refused=self._show_none)
        elif progress.shown and total and time.monotonic() - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = time.monotonic()
            progress.report(f"{done:,} of {total:,} files", min(100, 100 * done // total))

    def end_all(self) -> None:
        while self._all:
            self._all.popitem()[1].end()

    def _show_none(self) -> None:
        _log.info("the client shows no progress")
        self._refused = True

    def _cancelled(self, token: object) -> None:
        for root, progress in list(self._all.items()):
            if progress.token == token:
                _log.info("indexing was cancelled by the user")
                self._documents.sources.cancel(root)


def _same(before: Options, now: Options) -> bool:
    names = ("index", "excluded_globs", "trusted")
    return all(getattr(before, name) == getattr(now, name) for name in names)


def _log_failure(future: Any) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        kind = type(error).__name__ if not isinstance(error, JsonRpcException) else "refused"
        _log.info("the client does not watch files: %s", kind)
