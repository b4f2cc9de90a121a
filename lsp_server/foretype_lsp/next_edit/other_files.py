"""Where else: what the edits of one document say of the other open ones, then of files of its folder that the index knows.

A file is read when it is asked about and never trusted to stay: what others changed meanwhile, what cannot be written, what a program
wrote and what git ignores gets nothing.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from foretype_context.edits.elsewhere import Elsewhere
from foretype_context.edits.evidence import Evidence, NextEdit
from foretype_context.edits.followed import Followed
from foretype_context.errors import NotSmallError
from foretype_context.folder.exclude import reason_to_exclude
from foretype_context.folder.ignored import Ignored
from foretype_context.folder.small_files import read_small
from foretype_context.syntax.languages import language_of
from foretype_context.text.strings import plain_line_ends, well_formed
from foretype_context.text.uris import path_of_uri

from foretype_lsp.documents.documents import HeldText
from foretype_lsp.documents.positions import Lines
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.next_edit.places import EditPlace, in_file, in_open
from foretype_lsp.next_edit.tracking import Tracking
from foretype_lsp.settings import Settings
from foretype_lsp.trust import why_unread

_FILES: Final = 24
"""Of one question."""
_FILE_BYTES: Final = 200_000
_INDEX_S: Final = 0.2
_FORGET_S: Final = 30.0
_KNOWN: Final = 512


class EditsInOtherFiles:
    """Args: clock: monotonic seconds."""

    def __init__(
        self, settings: Settings, documents: SharedDocuments, tracking: Tracking, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._documents = documents
        self._tracking = tracking
        self._clock = clock
        self._silent: OrderedDict[tuple[object, ...], float] = OrderedDict()  # what had nothing, and until when

    async def next(
        self, asked: HeldText, stopped: Callable[[], bool], shows: Callable[[Evidence], bool]
    ) -> EditPlace | None:
        """The first place that is certain: in what was asked about, where another document's edits say so, then in others.

        Args:
            shows: whether what rests on that may be shown; nothing is looked for otherwise.
        """
        uris = [asked.document.uri, *self._tracking.typed_in(but=asked.document.uri)]
        for uri in uris:
            origin = self._documents.get(uri)
            root = None if origin is None else self._root_of(uri)
            if origin is None or root is None or stopped():
                continue
            own = _inside(uri, root)
            elsewhere = await self._tracking.elsewhere(origin.document, own)
            if elsewhere is None or stopped() or not shows(elsewhere.evidence):
                continue
            async for place in self._places(asked, origin, root, elsewhere, stopped):
                return place
        return None

    async def _places(
        self, asked: HeldText, origin: HeldText, root: Path, elsewhere: Elsewhere, stopped: Callable[[], bool]
    ) -> AsyncIterator[EditPlace]:
        seen = {origin.document.uri}
        for held in (asked, *self._documents.usable_ones()):
            uri = held.document.uri
            if uri in seen or stopped():
                continue
            seen.add(uri)
            if self._root_of(uri) == root and (place := await self._in_open(held, origin, root, elsewhere)):
                yield place
        options = self._settings.options
        if why_unread(options):
            return
        names = {path_of_uri(uri) for uri in seen}
        ignored = Ignored(root, options.excluded_globs)
        files = await self._documents.sources.holding(root, elsewhere.token, limit=4 * _FILES, timeout_s=_INDEX_S)
        own = path_of_uri(origin.document.uri)
        files = sorted(
            (one for one in files if one not in names), key=lambda one: (own and one.parent != own.parent, one)
        )
        for file in files[:_FILES]:
            if stopped():
                return
            if place := await self._in_file(file, origin, root, elsewhere, ignored):
                yield place

    async def _in_open(self, held: HeldText, origin: HeldText, root: Path, elsewhere: Elsewhere) -> EditPlace | None:
        document, version = held.document, held.document.version
        key = origin.document.uri, elsewhere.evidence, elsewhere.token, document.uri, version
        if held.window is not None or self._is_silent(key):
            return None
        found = await self._tracking.follow(document, elsewhere, _inside(document.uri, root))
        if found is None:
            self._note_silent(key)
            return None
        if document.version != version or self._documents.get(document.uri) is not held:
            return None
        return in_open(self._documents.part_at(document, found.edit.start), found, origin.document.uri)

    async def _in_file(
        self, file: Path, origin: HeldText, root: Path, elsewhere: Elsewhere, ignored: Ignored
    ) -> EditPlace | None:
        language = language_of(file.name)
        if not self._settings.options.enabled(language):
            return None

        def look() -> tuple[str, NextEdit] | None:
            read = read_file(file)
            if read is None or ignored(file):
                return None
            text, stamp = read
            key = origin.document.uri, elsewhere.evidence, elsewhere.token, file, stamp
            if self._is_silent(key):
                return None
            found = Followed(language, plain_line_ends(text)).follow(elsewhere, file.relative_to(root).as_posix())
            if found is None:
                self._note_silent(key)
                return None
            return (text, found) if _stamp(file) == stamp else None

        made = await self._tracking.in_thread(look)
        if made is None or self._documents.get(file.as_uri()) is not None:  # it was opened meanwhile
            return None
        text, found = made
        lines = Lines(text, origin.lines.encoding)
        return in_file(file.as_uri(), lines.text, lines, found, origin.document.uri)

    def _root_of(self, uri: str) -> Path | None:
        path = path_of_uri(uri)
        inside = [root for root in self._documents.roots if path is not None and path.is_relative_to(root)]
        return max(inside, key=lambda root: len(root.parts)) if inside else None

    def _is_silent(self, key: tuple[object, ...]) -> bool:
        return self._silent.get(key, 0.0) > self._clock()

    def _note_silent(self, key: tuple[object, ...]) -> None:
        self._silent[key] = self._clock() + _FORGET_S
        self._silent.move_to_end(key)
        if len(self._silent) > _KNOWN:
            self._silent.popitem(last=False)


def read_file(path: Path) -> tuple[str, tuple[int, int]] | None:
    """The text of a file that may be changed by hand, and what tells that it changed; None for any other. Blocking."""
    try:
        status = path.stat()
        if not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(path, os.W_OK):
            return None
        data = read_small(path, _FILE_BYTES)
        stamp = _stamp(path)
        if stamp is None or stamp != (status.st_mtime_ns, status.st_size):
            return None
        if reason_to_exclude(str(path), len(data), data[:4096], limit_bytes=_FILE_BYTES, vendored=True) is not None:
            return None
        text = data.decode("utf-8-sig")
    except (OSError, NotSmallError, UnicodeDecodeError):
        return None
    return (text, stamp) if well_formed(text) == text else None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _inside(uri: str, root: Path) -> str:
    path = path_of_uri(uri)
    return path.relative_to(root).as_posix() if path is not None and path.is_relative_to(root) else ""
