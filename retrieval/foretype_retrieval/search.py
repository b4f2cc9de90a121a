"""Questions to an index: what a place in a document, or a few words, call for.

Candidates come from names near the place and on import lines, from BM25 over sub-words and from vectors. What is known of each
is weighed by a fitted linear model; reciprocal ranks, which give every list the same say, found fewer (docs/decisions/0006).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretype_retrieval.embedder import Embedder
from foretype_retrieval.index import Index
from foretype_retrieval.terms import count_identifiers, count_terms, identifiers, import_names
from foretype_retrieval.view import FoundChunk, Key, View, distinct

Array = NDArray[Any]

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
    early, close = identifiers("\n".join(near[:-_CLOSE_LINES])), identifiers("\n".join(near[-_CLOSE_LINES:]))
    names = tuple(dict.fromkeys(reversed(early + close)))[:_MAX_NAMES]
    imported, modules = import_names(lines)
    terms: dict[str, float] = {}
    for weight, part in ((1.0, early), (2.0, close)):
        for word, times in count_terms(part).items():
            terms[word] = terms.get(word, 0.0) + weight * min(times, 3)
    uses = count_identifiers("\n".join(lines[-NEAR_LINES:]))
    return Query(names, imported, modules, terms, "\n".join(near[-_VECTOR_LINES:]), exclude, uses)


def query_of_words(text: str) -> Query:
    """The question that a person types."""
    names = tuple(dict.fromkeys(identifiers(text)))
    terms = {word: float(times) for word, times in count_terms(names).items()}
    return Query(names[:_MAX_NAMES], frozenset(), frozenset(), terms, text)


def search(
    index: Index, query: Query, embedder: Embedder | None, *, limit: int, weights: Features = WEIGHTS
) -> list[SearchHit]:
    """The best chunks, best first."""
    view = index.view()
    chunks, features = _weighable(view, query, embedder)
    # Rounded, so that the order of a sum never decides; ties go to the first key.
    best = view.ranking(chunks, np.round(features @ np.asarray(weights), 6), limit)
    hits: list[SearchHit] = []
    for score, key in best:
        found = view.found(key, score)
        named = found.name in query.names or found.name in query.imported
        hits.append(SearchHit(found, "imports" if named else "retrieval"))
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
    view = index.view()
    chunks, features = _weighable(view, query, embedder)
    return Candidates(view.keys(chunks), features)


def _weighable(view: View, query: Query, embedder: Embedder | None) -> tuple[Array, Array]:
    """As :func:`candidates`, with the numbers of the chunks, which ascend."""
    vector = embedder.question(query.text) if embedder is not None and view.dimensions and query.text.strip() else None
    own = view.file(query.exclude)
    scores = view.word_scores(query.terms)
    words, word_scores = view.best(scores, _DEPTH)
    named = _named(view, query, own)
    found = [words, named.chunks, view.best_inside(named.imported_files, scores, _DEPTH)]
    if vector is not None:
        found.append(view.by_vector(vector, _DEPTH)[0])
    chunks = distinct(np.concatenate(found))
    files = view.files_of(chunks)
    others = files != own
    chunks, files = chunks[others], files[others]
    name_at = np.full(len(chunks), len(named.words))
    name_at[np.searchsorted(chunks, named.chunks)] = named.names
    known: dict[str, Array] = {
        "words": np.round(scores[chunks] / (word_scores.max() if len(words) else 1.0), 4),
        "cosine": view.cosines(vector, chunks) if vector is not None else np.zeros(len(chunks)),
    }
    known |= {name: values[name_at] for name, values in _of_names(query, named).items()}
    known |= _of_files(view, query, named, files)
    table = np.empty((len(Features._fields), len(chunks)))
    for row, name in enumerate(Features._fields):
        table[row] = known[name]
    return chunks, table.T


class _Named(NamedTuple):
    """Definitions of names near the place or imported, but for the document's own.

    Attributes:
        words: the names; the first of them are those near the place, in their order.
        chunks: the definitions.
        names: which of the names each of them has.
        counts: how many definitions share each name.
        imported_files: the files that the import lines name, ascending.
    """

    words: list[str]
    chunks: Array
    names: Array
    counts: Array
    imported_files: Array


def _named(view: View, query: Query, own: int) -> _Named:
    words = list(dict.fromkeys((*query.names, *sorted(query.imported)[:_MAX_IMPORTED])))
    chunks, names, counts = view.definitions(words, 4 * _MAX_DEFINITIONS)
    files = view.files_of(chunks)
    every = distinct(files)
    file_at = np.searchsorted(every, files)
    of_file = [not query.modules.isdisjoint(_parts(path)) for path in view.paths(every)]
    inside = np.array(of_file, np.bool_)[file_at]
    found_inside = np.zeros(len(words), np.bool_)
    found_inside[names[inside]] = True
    imported = np.array([word in query.imported for word in words], np.bool_)
    # Where no file of that name is imported, one of two definitions is meant all the same.
    opened = imported[names] & (inside | ((counts <= 2) & ~found_inside)[names])
    others = files != own
    kept = others & (inside | (counts <= _MAX_DEFINITIONS)[names])
    return _Named(words, chunks[kept], names[kept], counts, distinct(files[opened & others]))


def _of_files(view: View, query: Query, named: _Named, files: Array) -> dict[str, Array]:
    """What is known of each of these files, which ascend. Those with a definition are among them."""
    every, own = distinct(files), PurePosixPath(query.exclude).parts[:-1]
    file_at = np.searchsorted(every, files)
    inside = np.zeros(len(every))
    inside[np.searchsorted(every, named.imported_files)] = 1.0
    folder = np.array([_shared(own, path) for path in view.paths(every)])
    near = view.files_of(named.chunks[named.names < len(query.names)])
    near_in_file = np.log1p(np.bincount(np.searchsorted(every, near), minlength=len(every)))
    return {"inside": inside[file_at], "folder": folder[file_at], "near_in_file": near_in_file[file_at]}


def _of_names(query: Query, named: _Named) -> dict[str, Array]:
    """What is known of each name, and behind them of none."""
    imported = np.array([*(float(word in query.imported) for word in named.words), 0.0])
    uses = np.array([*(query.uses.get(word, 0) for word in named.words), 0])
    near = np.zeros(len(uses))
    near[: len(query.names)] = 1.0 / (1.0 + np.arange(len(query.names)) / 8.0)
    return {
        "imported": imported,
        "near": near,
        "alike": np.log1p(np.append(named.counts, 0)),
        "uses": np.log1p(uses),
        # Its own import line counts as one use.
        "unused": imported * (uses <= 1),
    }


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
