"""Questions to an index: what a place in a document, or a few words, call for.

Three rankings are fused: definitions that the identifiers and imports near the place name, BM25 over sub-words, and vectors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from foretype_retrieval.embed import Embedder
from foretype_retrieval.index import Found, Index, Ranking, fuse
from foretype_retrieval.terms import count_terms, identifiers, import_names

__all__ = ["Channels", "Hit", "Query", "query_at", "query_of_words", "search"]

NEAR_LINES: Final = 24
_VECTOR_LINES: Final = 12
_CLOSE_LINES: Final = 4
_MAX_NAMES: Final = 48
_MAX_DEFINITIONS: Final = 12
"""A name with more definitions than this (`__init__`, `get`) says nothing unless its file is imported."""

_DEPTH: Final = 60
_COMMENT: Final = re.compile(r"^\s*(#|//|\*|/\*)")


@dataclass(frozen=True, slots=True)
class Channels:
    """Weights of the rankings; 0 leaves one out. Chosen on repositories that no figure is reported on."""

    symbols: float = 1.0
    words: float = 1.0
    vectors: float = 0.7


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    Attributes:
        names: identifiers near the place, nearest first, each once.
        imported: identifiers on import lines.
        modules: lower-case path parts that the import lines name.
        terms: sub-words and their weights.
        text: for the embedder.
        exclude: path of the document itself.
    """

    names: tuple[str, ...] = ()
    imported: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    terms: Mapping[str, float] = field(default_factory=dict[str, float])
    text: str = ""
    exclude: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A result, and which ranking put it first: `imports`, or `retrieval`."""

    found: Found
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
    near = [*lines[-NEAR_LINES:], finished]
    names: dict[str, None] = {}
    for line in reversed(near):
        for name in reversed(identifiers(line)):
            names.setdefault(name)
    imported, modules = import_names(lines)
    terms: dict[str, float] = {}
    for weight, part in ((1.0, near[:-_CLOSE_LINES]), (2.0, near[-_CLOSE_LINES:])):
        for word, times in count_terms(identifiers("\n".join(part))).items():
            terms[word] = terms.get(word, 0.0) + weight * min(times, 3)
    return Query(tuple(names)[:_MAX_NAMES], imported, modules, terms, "\n".join(near[-_VECTOR_LINES:]), exclude)


def query_of_words(text: str) -> Query:
    """The question that a person types."""
    names = tuple(dict.fromkeys(identifiers(text)))
    terms = {word: float(times) for word, times in count_terms(names).items()}
    return Query(names[:_MAX_NAMES], frozenset(), frozenset(), terms, text)


def search(
    index: Index,
    query: Query,
    embedder: Embedder | None,
    *,
    limit: int,
    channels: Channels = Channels(),
) -> list[Hit]:
    """The best chunks, best first, at most one per definition."""
    words = index.by_terms(query.terms, _DEPTH) if channels.words else []
    vectors: Ranking = []
    if embedder is not None and index.dimensions and query.text.strip() and channels.vectors:
        vectors = index.by_vector(embedder.embed([query.text])[0], _DEPTH)
    symbols = _symbols(index, query, words) if channels.symbols else []
    fused = fuse([(channels.symbols, symbols), (channels.words, words), (channels.vectors, vectors)], limit + _DEPTH)
    named = {key for _, key in symbols}
    hits: list[Hit] = []
    for score, key in fused:
        if key[0] != query.exclude:
            hits.append(Hit(index.found(key, score), "imports" if key in named else "retrieval"))
            if len(hits) == limit:
                break
    return hits


def _symbols(index: Index, query: Query, words: Ranking) -> Ranking:
    """Definitions that are named near the place or imported into its file.

    First what is named and comes from an imported module, nearest first; then what is imported and not used yet, by how well
    its words fit; then other definitions of the names.
    """
    fits = {key: score for score, key in words}
    ranked: list[tuple[float, tuple[str, int, int, int]]] = []
    order = {name: at for at, name in enumerate(query.names)}
    for name in dict.fromkeys((*query.names, *sorted(query.imported))):
        keys = [key for key in index.defining(name, 4 * _MAX_DEFINITIONS) if key[0] != query.exclude]
        for key in keys:
            inside = not query.modules.isdisjoint(_parts(key[0]))
            if len(keys) > _MAX_DEFINITIONS and not inside:
                continue
            near = 1.0 / (4 + order[name]) if name in order else 0.0
            score = near + 0.1 * (name in query.imported) + 0.1 * inside - 0.02 * len(keys) + 0.01 * fits.get(key, 0.0)
            ranked.append((score, key))
    ranked.sort(key=lambda one: (-round(one[0], 6), one[1]))
    return ranked[:_DEPTH]


def _parts(path: str) -> frozenset[str]:
    pure = PurePosixPath(path)
    return frozenset((pure.stem.lower(), pure.parent.name.lower()))
