"""What the fused ranking is compared with, each asked the same question at the same place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from foretype_retrieval.embedder import Embedder
from foretype_retrieval.index import Index
from foretype_retrieval.search import WEIGHTS, Query, search
from foretype_retrieval.terms import identifiers
from foretype_retrieval.view import Key, Ranking

from foretype_lab.retrieval.repositories import File, Repository

DEPTH: Final = 20
"""How far a definition is looked for; further down it counts as not found."""

RANKERS: Final = ("fused", "names_and_imports", "bm25_embeddings_by_rank", "bm25", "embeddings", "recently_opened")

_OPEN_FILES: Final = 20
_RANK_CONSTANT: Final = 60

Place = tuple[str, int]


class Rankers:
    """All rankings of one repository.

    "Recently opened" is a stand-in, for a repository has no sessions: the 20 files nearest by path are taken as open, and their
    definitions ranked by the Jaccard similarity of identifiers, as editors do.
    """

    def __init__(self, repository: Repository, index: Index, embedder: Embedder | None) -> None:
        self._repository = repository
        self._index = index
        self._embedder = embedder
        self._nearest: dict[str, list[File]] = {}
        self._words: dict[Place, frozenset[str]] = {}

    def places(self, query: Query) -> dict[str, list[Place]]:
        """By each of `RANKERS`, at most `DEPTH` definitions, best first."""
        words = self._index.by_terms(query.terms, 3 * DEPTH)
        vectors: Ranking = []
        if self._embedder is not None:
            vector = self._embedder.question(query.text)
            vectors = self._index.by_vector(vector, 3 * DEPTH) if vector is not None else []
        without_text = WEIGHTS._replace(words=0.0, cosine=0.0)
        hits = search(self._index, query, self._embedder, limit=DEPTH)
        names = search(self._index, query, self._embedder, limit=DEPTH, weights=without_text)
        return {
            "fused": [(hit.found.path, hit.found.start) for hit in hits],
            "names_and_imports": [(hit.found.path, hit.found.start) for hit in names],
            "bm25_embeddings_by_rank": _places(_by_ranks(words, vectors), query.exclude),
            "bm25": _places(words, query.exclude),
            "embeddings": _places(vectors, query.exclude),
            "recently_opened": self._recent(query),
        }

    def _recent(self, query: Query) -> list[Place]:
        own = query.exclude
        if own not in self._nearest:
            others = [file for file in self._repository.files if file.path != own]
            self._nearest[own] = sorted(others, key=lambda file: _distance(own, file.path))[:_OPEN_FILES]
        around = frozenset(query.names)
        scored: list[tuple[float, str, int]] = []
        for file in self._nearest[own]:
            for chunk in file.chunks:
                place = (file.path, chunk.start)
                words = self._words.get(place)
                if words is None:
                    words = self._words[place] = frozenset(identifiers(chunk.shown))
                scored.append((-len(words & around) / max(len(words | around), 1), *place))
        return [(path, start) for _, path, start in sorted(scored)[:DEPTH]]


def _places(ranking: Ranking, exclude: str) -> list[Place]:
    return [key[:2] for _, key in ranking if key[0] != exclude][:DEPTH]


def _by_ranks(*rankings: Ranking) -> Ranking:
    """Reciprocal-rank fusion."""
    scores: dict[Key, float] = {}
    for ranking in rankings:
        for rank, (_, key) in enumerate(ranking):
            scores[key] = scores.get(key, 0.0) + 1 / (_RANK_CONSTANT + rank)
    return sorted(((score, key) for key, score in scores.items()), key=lambda one: (-one[0], one[1]))


def _distance(a: str, b: str) -> tuple[int, int, str]:
    left: Sequence[str] = PurePosixPath(a).parts
    right: Sequence[str] = PurePosixPath(b).parts
    common = 0
    for x, y in zip(left, right, strict=False):
        if x != y:
            break
        common += 1
    return -common, len(left) + len(right) - 2 * common, b
