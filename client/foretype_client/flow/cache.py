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
        tokens: how many the mean is of.
        usage: token counts of the request, for display.
        ahead: it was asked for before the user got there.
        begun: what it was told to begin with: the rest of the popup's selected item.
    """

    request_id: str
    strand: Strand
    kind: SuggestionKind
    finish: Finish
    mean_logprob: float | None = None
    tokens: int = 0
    usage: Usage | None = None
    ahead: bool = False
    begun: str = ""

    def logprob_of(self, rest: str) -> float | None:
        """As :meth:`Strand.share_of`, of the answer's sum of log-probabilities."""
        return None if self.mean_logprob is None else self.strand.share_of(rest, self.mean_logprob * self.tokens)

    @property
    def whole(self) -> bool:
        """See :attr:`Finish.is_whole`."""
        return self.finish.is_whole


class CacheHit(NamedTuple):
    """An entry that leads to the place asked for, with what is left of it to insert there."""

    entry: CachedAnswer
    rest: str

    def selected(self, begins: str) -> int:
        """0 where it was asked for the item that is selected (its rest is `begins`), 1 where for none, 2 for another one."""
        begun = self._begun
        return 0 if begun == begins else 1 if not begun else 2

    def says(self, begins: str) -> bool:
        of_another = begins and self.selected(begins) == 2
        return bool(self.rest) and self.rest.startswith(begins) and not of_another

    @property
    def _begun(self) -> str:
        return self.entry.begun[len(self.entry.strand.text) - len(self.rest) :]


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
        """Remember `entry`, in place of what was known at the same place, unless that is the same text and more of it.

        Answers for different items of a popup stand beside each other.
        """
        self._drop(entry.request_id)
        for other in list(self._at(entry.strand.place)):
            if other.strand.place != entry.strand.place or other.begun != entry.begun:
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

    def get(self, place: Place, begins: str = "") -> CacheHit | None:
        """The newest entry that has something to insert at `place`; else one that knows that nothing comes there.

        Args:
            begins: what it must begin with. Without, what was asked for no item of a popup goes first.

        An empty `rest` is an answer only where the request was made exactly at `place`: the model was asked there and said
        nothing. After typing to the end of a suggestion it was not asked yet.
        """
        rests = [(entry, entry.strand.rest_at(place)) for entry in self._at(place)]
        hits = [CacheHit(entry, rest) for entry, rest in rests if rest is not None]
        found = next((hit for hit in sorted(hits, key=lambda hit: hit.selected(begins)) if hit.says(begins)), None)
        if found is None and not begins:
            found = next(
                (hit for hit in hits if hit.rest == "" and hit.entry.whole and not hit.entry.strand.text), None
            )
        if found is None:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(found.entry.request_id)
        return found

    def knows(self, place: Place) -> bool:
        """Whether :meth:`get` would answer where nothing is selected; counts as no use."""
        return any(
            entry.strand.rest_at(place) or (entry.whole and not entry.strand.text and entry.strand.place == place)
            for entry in self._at(place)
        )

    def clear(self) -> None:
        self._entries.clear()
        self._rows.clear()

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
