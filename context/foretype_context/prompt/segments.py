"""Segments: the parts a prompt is made of.

A prompt is a list of segments. *Which* segments are kept is decided by budget, age and the cursor; *where* they stand is
decided by stability alone, so that what does not change stays byte for byte where it was.

These types cross the wire (:mod:`foretype_wire.messages`), so they cost msgspec and nothing else. The cycle collector does not look at
them (`gc=False`): each request has dozens, and none can be part of a cycle.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Final

import msgspec


class Kind(StrEnum):
    """What a segment is, which decides the special tokens around it."""

    REPOSITORY = "repository"  # the repository's name; text is the bare name
    FILE = "file"  # a piece of another file; its header comes from `source.path`
    PATH = "path"  # the current file's header; text is empty, the header comes from `source.path`
    PREFIX = "prefix"  # whole lines above the hole (several segments follow each other)
    SUFFIX = "suffix"  # whole lines below the cursor's line
    TAIL = "tail"  # the rest of the cursor's line, right of the cursor
    MIDDLE = "middle"  # what was typed since the hole began; generation continues directly after it


class Scope(StrEnum):
    """For whom the text of a segment is equal, most stable first."""

    GLOBAL = "global"
    REPOSITORY = "repository"
    FILE = "file"
    SESSION = "session"


STABLE_KINDS: Final = frozenset({Kind.REPOSITORY, Kind.FILE, Kind.PATH, Kind.PREFIX, Kind.SUFFIX})
"""Kinds that may travel by digest. The others change with almost every key and always travel as text."""


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where the text of a segment was read: document, version and half-open character span."""

    document: str = ""
    path: str = ""
    version: int = 0
    start: int = 0
    end: int = 0


class Segment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One part of a prompt, with its text."""

    kind: Kind
    scope: Scope
    source: Source
    text: str


class PlacedSegment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A segment in a finished plan: `[start, end)` is its token range in the prompt, special tokens before it included."""

    segment: Segment
    start: int
    end: int

    @property
    def tokens(self) -> int:
        return self.end - self.start


def digest_of(text: str) -> bytes:
    """BLAKE2b-128 of the UTF-8 bytes of `text` (lone surrogates survive: editors do send them)."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
