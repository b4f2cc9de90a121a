"""Questions to an index: what a place in a document, or a few words, call for.

Candidates come from names near the place and on import lines, from BM25 over sub-words and from vectors. What is known of each
is weighed by a fitted linear model; reciprocal ranks, which give every list the same say, found fewer (docs/decisions/0006).
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretype_retrieval.embedder import Embedder
from foretype_retrieval.index import FoundChunk, Index, Key
from foretype_retrieval.terms import count_terms, identifiers, identifiers_of, import_names

NEAR_LINES: Final = 200
"""Lines above the place that a question looks at."""

_NAME_LINES: Final = 24
_VECTOR_LINES: Final = 12
_CLOSE_LINES: Final = 4
_MAX_NAMES: Final = 48
_MAX_DEFINITIONS: Final = 8
"""A name with more definitions than this (`__init__`, `get`) says nothing unless its file is imported."""

_MAX_IMPORTED: Final = 150
_DEPTH: Final = 32


class Features(NamedTuple):
    """What is known of a candidate, and as a tuple of the same names, how much each counts.

    Attributes:
        words: BM25, as a share of the best.
        cosine: of the vectors; 0 without an embedder.
        imported: its name stands on an import line.
        inside: its file is one that the imports name.
        near: how near the place its name stands: 1 on the line itself, less above, 0 where it does not.
        alike: logarithm of how many definitions have its name.
        folder: share of its folders that the document's own path begins with.
        uses: logarithm of how often its name stands in the lines above.
        unused: it is imported, and has not been used yet: somebody will.
        near_in_file: logarithm of how many definitions of its file have names that stand near the place.
    """

    words: float
    cosine: float
    imported: float
    inside: float
    near: float
    alike: float
    folder: float
    uses: float = 0.0
    unused: float = 0.0
    near_in_file: float = 0.0


WEIGHTS: Final = Features(0.89, 2.77, 2.13, 1.11, 1.28, -1.49, 0.02, 1.20, 0.82, 0.45)
"""A logistic regression over candidates of repositories that no figure is reported on (lab/foretype_lab/embedder/search_weights.py)."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    Attributes:
        names: identifiers near the place, nearest first, each once.
        imported: identifiers on import lines.
        modules: lower-case path parts that the import lines name.
        terms: sub-words and their weights.
        text: for the embedder.
        uses: how often each identifier stands in the lines above.
        exclude: path of the document itself.
    """

    names: tuple[str, ...] = ()
    imported: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    terms: Mapping[str, float] = field(default_factory=dict[str, float])
    text: str = ""
    exclude: str = ""
    uses: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A result, and which ranking put it first: `imports`, or `retrieval`."""

    found: FoundChunk
    source_name: str


def query_at(lines: Sequence[str], typed: str, exclude: str = "") -> Query:
    """The question that a place asks.

    Args:
        lines: all lines above the place's own.
        typed: what stands on its line before it. A word that is not finished yet is left out, so that the answer does not
            change with every key.
        exclude: path of the document, relative to the root.
    """
    finished = re.sub(r"\w+$", "", typed)
    near = [*lines[-_NAME_LINES:], finished]
    names: dict[str, None] = {}
    for line in reversed(near):
        for name in reversed(identifiers_of([line])):
            names.setdefault(name)
    imported, modules = import_names(lines)
    terms: dict[str, float] = {}
    for weight, part in ((1.0, near[:-_CLOSE_LINES]), (2.0, near[-_CLOSE_LINES:])):
        for word, times in count_terms(identifiers_of(part)).items():
            terms[word] = terms.get(word, 0.0) + weight * min(times, 3)
    uses = Counter(identifiers_of(lines[-NEAR_LINES:]))
    return Query(tuple(names)[:_MAX_NAMES], imported, modules, terms, "\n".join(near[-_VECTOR_LINES:]), exclude, uses)


def query_of_words(text: str) -> Query:
    """The question that a person types."""
    names = tuple(dict.fromkeys(identifiers(text)))
    terms = {word: float(times) for word, times in count_terms(names).items()}
    return Query(names[:_MAX_NAMES], frozenset(), frozenset(), terms, text)


def search(
    index: Index, query: Query, embedder: Embedder | None, *, limit: int, weights: Features = WEIGHTS
) -> list[SearchHit]:
    """The best chunks, best first."""
    found = candidates(index, query, embedder)
    # Rounded, so that the order of a sum never decides; ties go to the first key.
    scores = np.round(found.features @ np.asarray(weights), 6).tolist()
    best = heapq.nsmallest(limit, zip(scores, found.keys, strict=True), key=lambda one: (-one[0], one[1]))
    named = {*query.names, *query.imported}
    hits: list[SearchHit] = []
    for score, key in best:
        chunk = index.found(key, score)
        hits.append(SearchHit(chunk, "imports" if chunk.name in named else "retrieval"))
    return hits


class Candidates(NamedTuple):
    """Chunks worth looking at, and a row of :class:`Features` for each."""

    keys: list[Key]
    features: NDArray[np.float64]


def candidates(index: Index, query: Query, embedder: Embedder | None) -> Candidates:
    """Everything worth looking at, with what is known of it.

    The best by words and by vectors, the definitions of names near the place and on import lines, and the best by words in
    the files that those imports name.
    """
    scores = index.word_scores(query.terms)
    words = index.best(scores, _DEPTH)
    vector = embedder.question(query.text) if embedder is not None and index.dimensions and query.text.strip() else None
    names, imported_paths = _named(index, query)
    keys = {key for _, key in words}
    if vector is not None:
        keys.update(key for _, key in index.by_vector(vector, _DEPTH))
    keys.update(names)
    if imported_paths:
        keys.update(index.best_inside(imported_paths, scores, _DEPTH))
    ordered = [key for key in keys if key[0] != query.exclude]
    order = {name: at for at, name in enumerate(query.names)}
    own = PurePosixPath(query.exclude).parts[:-1]
    near_in_file = Counter(key[0] for key, (name, _) in names.items() if name in order)
    by_file = {
        path: (float(path in imported_paths), _shared(own, path), math.log1p(near_in_file[path]))
        for path in {key[0] for key in ordered}
    }
    by_name = {("", 0): (0.0, 0.0, 0.0, 0.0, 0.0)}
    for named in set(names.values()):
        name, count = named
        used, imported = query.uses.get(name, 0), name in query.imported
        near = 1.0 / (1.0 + order[name] / 8.0) if name in order else 0.0
        # Its own import line counts as one use.
        by_name[named] = float(imported), near, math.log1p(count), math.log1p(used), float(imported and used <= 1)
    features = np.empty((len(ordered), len(Features._fields)))
    at = {name: place for place, name in enumerate(Features._fields)}
    features[:, at["words"]] = np.round(index.values(scores, ordered) / (words[0][0] if words else 1.0), 4)
    features[:, at["cosine"]] = index.cosines(vector, ordered) if vector is not None else 0.0
    of_name = [at[one] for one in ("imported", "near", "alike", "uses", "unused")]
    of_file = [at[one] for one in ("inside", "folder", "near_in_file")]
    if ordered:
        features[:, of_name] = [by_name[names.get(key, ("", 0))] for key in ordered]
        features[:, of_file] = [by_file[key[0]] for key in ordered]
    return Candidates(ordered, features)


def _named(index: Index, query: Query) -> tuple[dict[Key, tuple[str, int]], frozenset[str]]:
    """Definitions of names near the place or imported, with their name and how many share it; and the files imported from."""
    found: dict[Key, tuple[str, int]] = {}
    paths: set[str] = set()
    for name in dict.fromkeys((*query.names, *sorted(query.imported)[:_MAX_IMPORTED])):
        keys = index.defining(name, 4 * _MAX_DEFINITIONS)
        inside = [key for key in keys if not query.modules.isdisjoint(_parts(key[0]))]
        kept = keys if len(keys) <= _MAX_DEFINITIONS else inside
        for key in kept:
            found[key] = name, len(keys)
        if name in query.imported:
            paths.update(key[0] for key in (inside or (keys if len(keys) <= 2 else [])))
    paths.discard(query.exclude)
    return found, frozenset(paths)


@lru_cache(maxsize=65_536)
def _shared(own: tuple[str, ...], path: str) -> float:
    folders = path.split("/")[:-1]
    common = next(
        (at for at, (a, b) in enumerate(zip(own, folders, strict=False)) if a != b), min(len(own), len(folders))
    )
    return common / max(len(own), len(folders), 1)


@lru_cache(maxsize=65_536)
def _parts(path: str) -> frozenset[str]:
    """What an import line may call a file: its name without the ending, and its folder's."""
    folders, _, name = path.lower().rpartition("/")
    return frozenset((name.partition(".")[0], folders.rpartition("/")[2]))
