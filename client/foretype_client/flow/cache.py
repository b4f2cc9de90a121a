"""Completion cache: what the gateway said once is not asked again.

Keyed by place (:mod:`foretype_client.flow.strands`), never by prompt: uri, the text before the cursor in its window, the next line
that says something, the profile. Type-through, an edit far above and an edit in another file keep an entry alive; white space
and another suffix do not. Entries have no time to live: they answer for a text, and the text either is there or is not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from foretype_context.syntax.blocks import SuggestionKind
from foretype_wire.messages import Finish, Usage

from foretype_client.flow.strands import Place, Strand

__all__ = ["CacheHit", "CacheStatistics", "CachedAnswer", "CompletionCache"]

ENTRIES_MAX: Final = 250


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """One answer of the gateway, as generated (post-processing reads the live document, so it runs at each hit).

    Attributes:
        request_id: request that produced it.
        strand: the text and where it begins.
        kind: what was asked for, which post-processing needs again.
        finish: why the text ended.
        mean_logprob: mean natural log-probability per token; None where the engine gives none.
        usage: token counts of the request, for display.
        ahead: it was asked for before the user got there.
    """

    request_id: str
    strand: Strand
    kind: SuggestionKind
    finish: Finish
    mean_logprob: float | None = None
    usage: Usage | None = None
    ahead: bool = False

    @property
    def whole(self) -> bool:
        """Whether the model itself ended the text, so that what is missing is missing for good."""
        return self.finish in (Finish.END_OF_MIDDLE, Finish.STOP)


class CacheHit(NamedTuple):
    """An entry that answers at the place asked for, with what is left of it to insert there."""

    entry: CachedAnswer
    rest: str


class CacheStatistics(NamedTuple):
    entries: int
    rows: int
    hits: int
    misses: int
    evicted: int


class CompletionCache:
    """Least-recently-used cache of entries, with one index row per line of each entry: a trie flattened at line starts."""

    def __init__(self, *, entries_max: int = ENTRIES_MAX) -> None:
        if entries_max < 1:
            raise ValueError(f"entries_max must be at least 1, not {entries_max}")
        self._entries_max = entries_max
        self._entries: OrderedDict[str, CachedAnswer] = OrderedDict()
        self._rows: dict[bytes, list[str]] = {}
        self._hits = self._misses = self._evicted = 0

    def put(self, entry: CachedAnswer) -> None:
        """Remember `entry`, in place of what was known at the same place, unless that is the same text and more of it."""
        self._drop(entry.request_id)
        for other in list(self._at(entry.strand.place)):
            if other.strand.place != entry.strand.place:
                continue
            if not entry.whole and other.strand.text.startswith(entry.strand.text):
                return
            self._drop(other.request_id)
        self._entries[entry.request_id] = entry
        for row in entry.strand.rows:
            ids = self._rows.setdefault(row.key, [])
            if entry.request_id not in ids:
                ids.append(entry.request_id)
        while len(self._entries) > self._entries_max:
            self._drop(next(iter(self._entries)))
            self._evicted += 1

    def get(self, place: Place) -> CacheHit | None:
        """The newest entry that has something to insert at `place`; else one that knows that nothing comes there.

        An empty `rest` is an answer only where the request was made exactly at `place`: the model was asked there and said
        nothing. After typing to the end of a suggestion it was not asked yet.
        """
        nothing: CacheHit | None = None
        for entry in self._at(place):
            rest = entry.strand.rest_at(place)
            if rest:
                self._hits += 1
                self._entries.move_to_end(entry.request_id)
                return CacheHit(entry, rest)
            if rest == "" and nothing is None and entry.whole and not entry.strand.text:
                nothing = CacheHit(entry, rest)
        if nothing is None:
            self._misses += 1
        else:
            self._hits += 1
            self._entries.move_to_end(nothing.entry.request_id)
        return nothing

    def knows(self, place: Place) -> bool:
        """Whether :meth:`get` would answer; counts as no use."""
        return any(
            entry.strand.rest_at(place) or (entry.whole and not entry.strand.text and entry.strand.place == place)
            for entry in self._at(place)
        )

    def statistics(self) -> CacheStatistics:
        return CacheStatistics(len(self._entries), len(self._rows), self._hits, self._misses, self._evicted)

    def _at(self, place: Place) -> Iterator[CachedAnswer]:
        for request_id in reversed(self._rows.get(place.key, [])):
            entry = self._entries[request_id]
            if entry.strand.place.profile == place.profile:
                yield entry

    def _drop(self, request_id: str) -> None:
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return
        for row in entry.strand.rows:
            ids = self._rows.get(row.key)
            if ids is None or request_id not in ids:
                continue
            ids.remove(request_id)
            if not ids:
                del self._rows[row.key]
