"""Lexical shingles, MinHash signatures and a banded index, in numpy.

One pass per file gives both checks: windows of 50 lexical tokens answer "is a run shared?", windows of 5 feed the
MinHash signature that answers "is this nearly the same file?". 200 MB take about two minutes on one core, where a
per-shingle library would take an hour.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from foretype_lab.corpus.languages import PYTHON, comments

RUN_TOKENS = 50
SHINGLE_TOKENS = 5
PERMUTATIONS = 64
BANDS = 16
ROWS = PERMUTATIONS // BANDS

Hashes = npt.NDArray[np.uint64]

_TOKEN = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[^\sA-Za-z0-9_]")
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2**64
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_MIX = np.uint64(0xFF51AFD7ED558CCD)


class _TokenHashes(dict[bytes, int]):
    """Hash of a token, computed once: nearly every token of a corpus is one that was seen before."""

    def __missing__(self, token: bytes) -> int:
        value = self[token] = (zlib.crc32(token) << 8) ^ len(token)
        return value


_TOKEN_HASHES = _TokenHashes()


def lexical_tokens(text: str, language: str = PYTHON) -> Hashes:
    """Hashes the lexical tokens of a file, comments left out.

    Licence headers live in comments: with them, every Apache-licensed file would share a run with every other one.

    Returns:
        uint64, shape (tokens,).
    """
    found = _TOKEN.findall(comments(language).sub(b"", text.encode()))
    if len(_TOKEN_HASHES) > 1_000_000:
        _TOKEN_HASHES.clear()
    return np.fromiter(map(_TOKEN_HASHES.__getitem__, found), dtype=np.uint64, count=len(found))


def windows(tokens: Hashes, width: int) -> Hashes:
    """Hashes every window of ``width`` tokens by prefix sums of a polynomial modulo 2**64.

    Returns:
        uint64, shape (tokens - width + 1,), or empty where the file is shorter than one window.
    """
    count = len(tokens) - width + 1
    if count <= 0:
        return np.empty(0, dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = (tokens ^ (tokens >> np.uint64(15))) * _MIX
        powers = np.cumprod(np.concatenate(([np.uint64(1)], np.full(len(tokens) - 1, _BASE, dtype=np.uint64))))
        back = np.cumprod(np.concatenate(([np.uint64(1)], np.full(count - 1, _INVERSE, dtype=np.uint64))))
        sums = np.concatenate(([np.uint64(0)], np.cumsum(mixed * powers)))
        value = (sums[width:] - sums[:-width]) * back
        # The low bits of a polynomial hash are weak: finish with a mix before anything takes a part of it.
        value = (value ^ (value >> np.uint64(33))) * _MIX
        return value ^ (value >> np.uint64(29))


def _permutations() -> tuple[Hashes, Hashes]:
    draw = np.random.default_rng(20)
    multipliers = draw.integers(1, 1 << 63, PERMUTATIONS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return multipliers, draw.integers(0, 1 << 63, PERMUTATIONS, dtype=np.uint64)


_MULTIPLY, _ADD = _permutations()


def signature(tokens: Hashes) -> Hashes:
    """MinHash signature of a file over its distinct windows of five tokens.

    Returns:
        uint64, shape (64,). Two files agree in about the share of positions that is their Jaccard similarity.
    """
    shingles = np.unique(windows(tokens, SHINGLE_TOKENS) if len(tokens) >= SHINGLE_TOKENS else tokens)
    if not len(shingles):
        return np.zeros(PERMUTATIONS, dtype=np.uint64)
    least = np.full(PERMUTATIONS, np.iinfo(np.uint64).max, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for start in range(0, len(shingles), 4096):
            part = shingles[start : start + 4096, None] * _MULTIPLY + _ADD
            least = np.minimum(least, (part ^ (part >> np.uint64(31))).min(axis=0))
    return least


@dataclass
class NearIndex:
    """Finds earlier files whose estimated similarity reaches a threshold (16 bands of 4 rows)."""

    threshold: float
    _buckets: dict[tuple[int, bytes], list[int]] = field(default_factory=dict[tuple[int, bytes], list[int]])
    _signatures: list[Hashes] = field(default_factory=list[Hashes])
    _names: list[str] = field(default_factory=list[str])

    def similar(self, candidate: Hashes) -> str | None:
        """Names an earlier file at or above the threshold, or None."""
        seen: set[int] = set()
        for key in self._keys(candidate):
            for number in self._buckets.get(key, ()):
                if number not in seen:
                    seen.add(number)
                    if np.count_nonzero(self._signatures[number] == candidate) >= self.threshold * PERMUTATIONS:
                        return self._names[number]
        return None

    def add(self, name: str, candidate: Hashes) -> None:
        """Remembers a file."""
        number = len(self._names)
        self._names.append(name)
        self._signatures.append(candidate)
        for key in self._keys(candidate):
            self._buckets.setdefault(key, []).append(number)

    def _keys(self, candidate: Hashes) -> list[tuple[int, bytes]]:
        return [(band, candidate[band * ROWS : (band + 1) * ROWS].tobytes()) for band in range(BANDS)]
