"""Recall of the definition that the next line needs.

For every place whose line uses a name that one other file of its repository defines, the question is asked with the text above.
Intervals and paired differences resample repositories.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from foretype_eval.statistics import cluster_bootstrap, paired_difference
from foretype_retrieval.embedder import Embedder
from foretype_retrieval.search import query_at

from foretype_lab.errors import LabError
from foretype_lab.retrieval.rankers import DEPTH, RANKERS, Rankers
from foretype_lab.retrieval.repositories import Repository, index_of
from foretype_lab.retrieval.sites import Site, sites

_RESAMPLES = 4_000


def measure_recall(
    repositories: Iterable[Repository],
    embedder: Embedder | None,
    *,
    per_repository: int,
    seed: int,
    progress: Callable[[str, int, int], None] = lambda _step, _done, _total: None,
) -> dict[str, Any]:
    """The report. Raises LabError where no place needs another file."""
    ranks: dict[str, list[int]] = defaultdict(list)
    places: list[Site] = []
    owners: list[str] = []
    rng = random.Random(seed)
    for repository in repositories:
        every = list(sites(repository.files))
        if not every:
            continue
        lines = {file.path: file.lines for file in repository.files}
        rankers = Rankers(repository, index_of(repository, embedder), embedder)
        chosen = rng.sample(every, min(per_repository, len(every)))
        for done, site in enumerate(chosen, 1):
            query = query_at(lines[site.path][: site.line], "", site.path)
            wanted = (site.target_path, site.target.start)
            for name, found in rankers.places(query).items():
                ranks[name].append(found.index(wanted) if wanted in found else DEPTH)
            places.append(site)
            owners.append(repository.name)
            progress(repository.name, done, len(chosen))
    if not places:
        raise LabError("no line here needs a definition of another file; name repositories with several files")
    seen = {
        "imported": [site.imported for site in places],
        "only_near": [not site.imported and not site.unseen for site in places],
        "unseen": [site.unseen for site in places],
    }
    report: dict[str, Any] = {
        "places": len(places),
        "repositories": len(set(owners)),
        "embedder": embedder.digest if embedder is not None else None,
        "by_name": {label: sum(chosen) for label, chosen in seen.items()},
        "rankers": {name: _figures(ranks[name], owners, seen) for name in RANKERS},
    }
    fused = _within(ranks["fused"], 5)
    report["fused_minus"] = {
        name: paired_difference(fused, _within(ranks[name], 5), owners, resamples=_RESAMPLES).rounded()
        for name in RANKERS
        if name != "fused"
    }
    return report


def _figures(ranks: Sequence[int], owners: Sequence[str], seen: dict[str, list[bool]]) -> dict[str, Any]:
    reciprocal = [1 / (rank + 1) if rank < DEPTH else 0.0 for rank in ranks]
    figures: dict[str, Any] = {
        name: cluster_bootstrap(values, owners, resamples=_RESAMPLES).rounded()
        for name, values in (("recall@1", _within(ranks, 1)), ("recall@5", _within(ranks, 5)), ("mrr", reciprocal))
    }
    found = _within(ranks, 5)
    figures["recall@5_by_name"] = {
        label: round(sum(hit for hit, is_one in zip(found, chosen, strict=True) if is_one) / max(sum(chosen), 1), 4)
        for label, chosen in seen.items()
    }
    return figures


def _within(ranks: Sequence[int], depth: int) -> list[float]:
    return [float(rank < depth) for rank in ranks]
