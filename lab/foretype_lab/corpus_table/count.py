"""Counting contexts and what follows them, and choosing those that are worth their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretype_lab.corpus_table.symbols import Symbols

ORDERS: Final = 5
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)
_FOLLOWER_BITS: Final = np.uint64(16)
_PER_REPOSITORY_MAX: Final = 30
_REPOSITORIES_MIN: Final = 3
_FOLLOWERS_MAX: Final = 6
_SHARE_MIN: Final = 0.02
_CONTEXT_BYTES: Final = 6
_FOLLOWER_BYTES: Final = 3

U64 = npt.NDArray[np.uint64]


class Counts(NamedTuple):
    """Contexts of one length in ascending order of hash: how often, how many different followers, and pairs by context.

    `parents` are the hashes of the contexts without their farthest symbol.
    """

    hashes: U64
    parents: U64
    total: npt.NDArray[np.int64]
    distinct: npt.NDArray[np.int64]
    pair_context: npt.NDArray[np.int64]
    pair_follower: npt.NDArray[np.int64]
    pair_count: npt.NDArray[np.int64]


class Level(NamedTuple):
    """What of one length is kept: `shares` of `followers`, those of one context side by side."""

    hashes: U64
    total: npt.NDArray[np.int64]
    distinct: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    followers: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]
    gains: npt.NDArray[np.float64]


def _hashes(symbols: Symbols, order: int) -> U64:
    """48-bit hash of the `order` symbols before each position from `order` on."""
    state = np.zeros(len(symbols) - order, np.uint64)
    for back in range(1, order + 1):
        state ^= symbols[order - back : len(symbols) - back].astype(np.uint64) + np.uint64(1)
        state *= _PRIME
        state ^= state >> np.uint64(29)
    return state >> _FOLLOWER_BITS


def count_order(repositories: Sequence[Symbols], order: int, *, file_start: int) -> Counts:
    """Count contexts of `order` symbols. A pair counts if three repositories have it, and at most 30 times for each."""
    keys: list[U64] = []
    parents: list[U64] = []
    times: list[npt.NDArray[np.int64]] = []
    for symbols in repositories:
        if len(symbols) <= order:
            continue
        follower = symbols[order:]
        key = (_hashes(symbols, order) << _FOLLOWER_BITS) | follower.astype(np.uint64)
        inside = follower != file_start
        found, first, n = np.unique(key[inside], return_index=True, return_counts=True)
        keys.append(found)
        parents.append(_hashes(symbols[1:], order - 1)[inside][first])
        times.append(np.minimum(n, _PER_REPOSITORY_MAX))
    if not sum(map(len, keys)):
        none = np.zeros(0, np.int64)
        return Counts(none.astype(np.uint64), none.astype(np.uint64), none, none, none, none, none)
    joined, weight = np.concatenate(keys), np.concatenate(times)
    by_key = np.argsort(joined, kind="stable")
    joined, weight, above = joined[by_key], weight[by_key], np.concatenate(parents)[by_key]
    starts = np.flatnonzero(np.concatenate(([True], joined[1:] != joined[:-1])))
    spread = np.diff(np.append(starts, len(joined)))
    count = np.add.reduceat(weight, starts)
    pair = joined[starts]
    context = pair >> _FOLLOWER_BITS
    # Totals count every pair, the rare ones too: what is rare together is probability all the same.
    edges = np.flatnonzero(np.concatenate(([True], context[1:] != context[:-1])))
    total = np.add.reduceat(count, edges)
    distinct = np.diff(np.append(edges, len(context)))
    number = np.repeat(np.arange(len(edges)), distinct)
    kept = spread >= _REPOSITORIES_MIN
    follower = (pair & np.uint64((1 << 16) - 1)).astype(np.int64)
    used, renumbered = np.unique(number[kept], return_inverse=True)
    return Counts(
        context[edges][used],
        above[starts][edges][used],
        total[used],
        distinct[used],
        renumbered,
        follower[kept],
        count[kept],
    )


def chosen(counts: Counts, lower: npt.NDArray[np.float64]) -> Level:
    """The followers worth keeping of each context, and what the context gains: nats saved over the shorter context.

    Args:
        lower: share that the next shorter context gives to each pair.
    """
    share = counts.pair_count / counts.total[counts.pair_context]
    order = np.lexsort((counts.pair_follower, -share, counts.pair_context))
    context = counts.pair_context[order]
    first = np.searchsorted(context, np.arange(len(counts.hashes)))
    rank = np.arange(len(context)) - first[context]
    keep = (rank < _FOLLOWERS_MAX) & (share[order] >= _SHARE_MIN)
    order, context = order[keep], context[keep]
    gain = counts.pair_count[order] * np.log(share[order] / np.maximum(lower[order], 1e-4))
    gains = np.bincount(context, np.maximum(gain, 0), minlength=len(counts.hashes)).astype(np.float64)
    sizes = np.bincount(context, minlength=len(counts.hashes))
    return Level(counts.hashes, counts.total, counts.distinct, sizes, counts.pair_follower[order], share[order], gains)


def shares_in(shorter: Counts | None, counts: Counts) -> npt.NDArray[np.float64]:
    """Share that the contexts one symbol shorter give to the pairs of `counts`; 0 where they never had them."""
    if shorter is None:
        total = np.bincount(counts.pair_follower, counts.pair_count)
        return total[counts.pair_follower] / total.sum()
    keys = (shorter.hashes[shorter.pair_context] << _FOLLOWER_BITS) | shorter.pair_follower.astype(np.uint64)
    wanted = (counts.parents[counts.pair_context] << _FOLLOWER_BITS) | counts.pair_follower.astype(np.uint64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    share = shorter.pair_count[at] / shorter.total[shorter.pair_context[at]]
    return np.where(keys[at] == wanted, share, 0.0)


def bytes_of(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """What contexts with so many followers take in the file."""
    return _CONTEXT_BYTES + _FOLLOWER_BYTES * sizes
