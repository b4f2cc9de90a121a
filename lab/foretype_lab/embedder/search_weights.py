"""Fits the weights of `search`: `python lab/foretype_lab/embedder/search_weights.py EMBEDDER.npz CORPUS.jsonl.gz...`.

A logistic regression over candidates, each place weighing the same; prints the tuple for `WEIGHTS`. The repositories must be
neither held out nor among those that trained the embedder.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
from foretype_retrieval.search import Features, candidates, query_at
from foretype_retrieval.static_embedder import default_embedder

from foretype_lab.retrieval.repositories import index_of, load_repositories
from foretype_lab.retrieval.sites import sites

PER_REPOSITORY = 60


def main(embedder_path: str, *corpora: str) -> None:
    embedder, rng = default_embedder(Path(embedder_path), complain=print), random.Random(2)
    if embedder is None:
        raise SystemExit(1)
    groups: list[tuple[np.ndarray, int]] = []
    asked = 0
    for repository in load_repositories(map(Path, corpora)):
        index, lines = index_of(repository, embedder), {file.path: file.lines for file in repository.files}
        every = list(sites(repository.files))
        for site in rng.sample(every, min(PER_REPOSITORY, len(every))):
            asked += 1
            found = candidates(index, query_at(lines[site.path][: site.line], "", site.path), embedder)
            wanted = [at for at, key in enumerate(found.keys) if key[:2] == (site.target_path, site.target.start)]
            if wanted:
                groups.append((found.features, wanted[0]))
    weights, rate = np.zeros(len(Features._fields)), 0.5
    for step in range(400):
        gradient = np.zeros_like(weights)
        for rows, at in groups:
            # Softmax over the candidates of one place: the wanted one against the others.
            scores = rows @ weights
            shares = np.exp(scores - scores.max())
            gradient += rows[at] - (shares / shares.sum()) @ rows
        weights += rate * (gradient / len(groups) - 1e-3 * weights) * (8 if step < 300 else 3)
    top = np.mean([np.argsort(-(rows @ weights), kind="stable")[:5].tolist().count(at) for rows, at in groups])
    print(f"{asked} places, {len(groups)} among the candidates, {top:.3f} of those in the first five")  # noqa: T201
    print(Features(*(round(float(one), 2) for one in weights)))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
