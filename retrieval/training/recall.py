"""Recall@5 of the definition that the next line needs: `python retrieval/training/recall.py CORPUS.jsonl.gz [--embedder F]`.

For every place whose next line uses a name that one other file of the repository defines, the question is asked with the text
above. Intervals resample repositories, or files. "Recently opened" is a stand-in, for a corpus has no sessions: the 20 files
nearest by path are taken as open, and their definitions ranked by the Jaccard similarity of identifiers, as editors do.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path, PurePosixPath

from foretype_context.tokens import well_formed
from foretype_eval.statistics import cluster_bootstrap, paired_difference
from foretype_retrieval.embed import default_embedder
from foretype_retrieval.index import FileState, Index, Key, Ranking
from foretype_retrieval.indexing import make_entry
from foretype_retrieval.search import WEIGHTS, Query, query_at, search
from foretype_retrieval.segment import build
from foretype_retrieval.terms import identifiers
from sites import File, Site, repositories, sites


def alone(ranking: Ranking, exclude: str) -> list[tuple[str, int]]:
    return [key[:2] for _, key in ranking if key[0] != exclude][:5]


def fused_by_ranks(*rankings: Ranking) -> Ranking:
    """Reciprocal-rank fusion with the constant 60, for comparison."""
    scores: dict[Key, float] = {}
    for ranking in rankings:
        for rank, (_, key) in enumerate(ranking):
            scores[key] = scores.get(key, 0.0) + 1 / (60 + rank)
    return sorted(((score, key) for key, score in scores.items()), key=lambda one: (-one[0], one[1]))


def nearness(a: str, b: str) -> tuple[int, int, str]:
    left, right = PurePosixPath(a).parts, PurePosixPath(b).parts
    common = next(
        (at for at, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), min(len(left), len(right))
    )
    return -common, len(left) + len(right) - 2 * common, b


def recent(files: list[File], site: Site, query: Query) -> list[tuple[str, int]]:
    opened = sorted((file for file in files if file.path != site.path), key=lambda one: nearness(site.path, one.path))[
        :20
    ]
    around = set(query.names)
    scored = []
    for file in opened:
        for chunk in file.chunks:
            words = set(identifiers(chunk.shown))
            scored.append((-len(words & around) / max(len(words | around), 1), file.path, chunk.start))
    return [(path, start) for _, path, start in sorted(scored)[:5]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--embedder", type=Path)
    parser.add_argument("--per-repository", type=int, default=120)
    options = parser.parse_args()
    embedder, rng = default_embedder(options.embedder, complain=print), random.Random(1)
    found: dict[str, list[bool]] = defaultdict(list)
    places: list[Site] = []
    repository_of: list[str] = []
    for name, files in repositories(options.corpus):
        dimensions = embedder.dimensions if embedder is not None else 0
        entries = [make_entry(file.path, well_formed(file.text), FileState(0, 0), embedder) for file in files]
        index, by_path = Index(build(entries, dimensions)), {file.path: file for file in files}
        every = list(sites(files))
        for site in rng.sample(every, min(options.per_repository, len(every))):
            query = query_at(by_path[site.path].lines[: site.line], "", site.path)
            wanted = (site.target_path, site.target.start)
            words = index.by_terms(query.terms, 60)
            vectors = index.by_vector(embedder.embed([query.text])[0], 60) if embedder is not None else []
            hits = search(index, query, embedder, limit=5)
            found["bm25"].append(wanted in alone(words, site.path))
            found["embeddings"].append(wanted in alone(vectors, site.path))
            found["bm25+embeddings by rank"].append(wanted in alone(fused_by_ranks(words, vectors), site.path))
            found["recently opened"].append(wanted in recent(files, site, query))
            names = search(index, query, embedder, limit=5, weights=WEIGHTS._replace(words=0.0, cosine=0.0))
            found["names and imports"].append(wanted in [(hit.found.path, hit.found.start) for hit in names])
            found["fused"].append(wanted in [(hit.found.path, hit.found.start) for hit in hits])
            places.append(site)
            repository_of.append(name)
    files_of = [f"{name}/{site.path}" for name, site in zip(repository_of, places, strict=True)]
    report: dict[str, object] = {
        "sites": len(places),
        "repositories": len(set(repository_of)),
        "unseen": sum(site.unseen for site in places),
        "imported": sum(site.imported for site in places),
    }
    for label, values in found.items():
        unseen = [value for value, site in zip(values, places, strict=True) if site.unseen]
        report[label] = {
            "recall@5": round(sum(values) / len(values), 4),
            "recall@5 unseen": round(sum(unseen) / max(len(unseen), 1), 4),
            "by_repository": [round(one, 4) for one in cluster_bootstrap(values, repository_of, resamples=4000)[1:3]],
            "by_file": [round(one, 4) for one in cluster_bootstrap(values, files_of, resamples=4000)[1:3]],
        }
    report["fused minus"] = {
        label: [round(one, 4) for one in paired_difference(found["fused"], values, repository_of)[:3]]
        for label, values in found.items()
        if label != "fused"
    }
    print(json.dumps(report, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
