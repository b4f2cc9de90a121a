"""The sources of other files' snippets on the server's side: opened in the background, told of folders, watched by the editor.

A first index shows itself as work-done progress where the client knows that, and stops where the user says so. Whatever goes
wrong here costs snippets alone: a completion never waits for any of it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from foretype_client.sources.all_sources import Sources
from foretype_wire.subscriptions import Subscribers
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.editor import Editor
from foretype_lsp.options import Options
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

    def __init__(self, editor: Editor, documents: SharedDocuments, clock: Callable[[], float] = time.monotonic) -> None:
        self._editor = editor
        self._documents = documents
        self._clock = clock
        self._refused = False  # the editor knows progress, and gave no token for it
        self._tokens: dict[Path, str] = {}
        self._begun: set[str] = set()
        self._reported_s = 0.0
        editor.progress_cancelled.add(self._cancelled)

    def told(self, root: Path, done: int, total: int) -> None:
        """A folder is being indexed (files done, and in all), or not any more (-1 done)."""
        if self._refused or not self._editor.shows_progress:
            return
        token = self._tokens.get(root)
        if done < 0:
            if token is not None:
                self._end(root, token)
        elif token is None:
            self._create(root)
        elif token in self._begun and total and self._clock() - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = self._clock()
            report = types.WorkDoneProgressReport(
                message=f"{done:,} of {total:,} files", percentage=min(100, 100 * done // total), cancellable=True
            )
            self._notify(token, report)

    def end_all(self) -> None:
        for root, token in list(self._tokens.items()):
            self._end(root, token)

    def _create(self, root: Path) -> None:
        token = self._tokens[root] = f"foretype-{secrets.token_hex(8)}"

        def created(future: Any) -> None:
            if future.cancelled() or future.exception() is not None:
                _log.info("the client shows no progress")
                self._refused = True
            elif self._tokens.get(root) == token:  # else it ended meanwhile
                self._begun.add(token)
                begin = types.WorkDoneProgressBegin(
                    title=f"Foretype: indexing {root.name}", percentage=0, cancellable=True
                )
                self._notify(token, begin)

        params = types.WorkDoneProgressCreateParams(token)
        self._editor.send_request(types.WINDOW_WORK_DONE_PROGRESS_CREATE, params).add_done_callback(created)

    def _end(self, root: Path, token: str) -> None:
        del self._tokens[root]
        if token in self._begun:
            self._begun.discard(token)
            self._notify(token, types.WorkDoneProgressEnd())

    def _notify(self, token: str, value: object) -> None:
        self._editor.notify(types.PROGRESS, types.ProgressParams(token, value))

    def _cancelled(self, token: object) -> None:
        for root, known in list(self._tokens.items()):
            if known == token:
                _log.info("indexing was cancelled by the user")
                self._documents.sources.cancel(root)


def _same(before: Options, now: Options) -> bool:
    names = ("index", "excluded_globs", "trusted")
    return all(getattr(before, name) == getattr(now, name) for name in names)


def _log_failure(future: Any) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        kind = type(error).__name__ if not isinstance(error, JsonRpcException) else "refused"
        _log.info("the client does not watch files: %s", kind)
