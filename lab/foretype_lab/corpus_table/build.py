"""The table's file.

Layout, little-endian: the 8 bytes `FTTABLE1`; u32 length of a JSON header; the header (`language`, `order`, `lexemes`,
`contexts`, `followers`, `lexeme_bytes`); zero bytes up to a multiple of 8; hash u32, kind u8 (bits 0-2: how often the context
was met, bits 3-4: how varied what follows is) and number of followers u8 of each context, ascending by hash; follower u16
and share u8 (`share = (byte / 255) ** 2`) of each follower; lexemes in UTF-8, parted by zero bytes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from foretype_context.text.lexemes import FILE_START

from foretype_lab.corpus.store import Store
from foretype_lab.corpus_table.count import ORDERS, Counts, Level, bytes_of, chosen, count_order, shares_in
from foretype_lab.corpus_table.symbols import read_corpus, symbols_of, vocabulary_of
from foretype_lab.errors import LabError

MAGIC: Final = b"FTTABLE1"
_TOTAL_STEPS: Final = (8, 32, 128, 512, 4096)
_VARIETY_STEPS: Final = (0.02, 0.1, 0.3)


def build_table(
    store: Store,
    path: Path,
    *,
    language: str = "python",
    suffix: str | None = ".py",
    bytes_per_repository: int = 5_000_000,
    lexemes: int = 8192,
    bytes_max: int = 5_000_000,
) -> dict[str, int]:
    """Count the store, and write the contexts that gain most by the byte until the file is full. Equal input, equal bytes.

    Returns:
        how many lexemes were read, and the contexts, followers and bytes written.

    Raises:
        LabError: no three repositories have anything in common, or the disk is full.
    """
    corpus = read_corpus(store, bytes_per_repository=bytes_per_repository, only=suffix)
    vocabulary = vocabulary_of(corpus, lexemes)
    names = [corpus.lexemes[number] for number in vocabulary]
    repositories = list(symbols_of(corpus, vocabulary))
    read = sum(map(len, repositories))
    del corpus
    levels: list[Level] = []
    shorter: Counts | None = None
    for order in range(1, ORDERS + 1):
        counts = count_order(repositories, order, file_start=len(names) + FILE_START)
        if not len(counts.hashes):
            if order == 1:
                raise LabError("no two lexemes stand together in three repositories; build a larger store")
            break
        levels.append(chosen(counts, shares_in(shorter, counts)))
        shorter = counts
    text = "\0".join(names).encode()
    data, contexts, followers = _packed(levels, bytes_max - len(text) - 256)
    header = json.dumps(
        {
            "language": language,
            "order": ORDERS,
            "lexemes": len(names),
            "contexts": contexts,
            "followers": followers,
            "lexeme_bytes": len(text),
        }
    ).encode()
    head = MAGIC + np.uint32(len(header)).tobytes() + header
    head += bytes(-len(head) % 8)
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_bytes(head + data + text)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise LabError(f"{path} cannot be written ({error.strerror}); free some space and build again") from error
    return {"read": read, "contexts": contexts, "followers": followers, "bytes": path.stat().st_size}


def _packed(levels: list[Level], room: int) -> tuple[bytes, int, int]:
    sizes = np.concatenate([level.sizes for level in levels])
    gains = np.concatenate([level.gains for level in levels])
    hashes = np.concatenate([level.hashes for level in levels]) >> np.uint64(16)
    total = np.concatenate([level.total for level in levels])
    variety = np.concatenate([level.distinct for level in levels]) / total
    cost = bytes_of(sizes)
    best = np.argsort(-gains / cost, kind="stable")
    best = best[(gains[best] > 0) & (sizes[best] > 0)]
    best = best[np.cumsum(cost[best]) <= room]
    keep = best[np.argsort(hashes[best], kind="stable")]
    kept_hashes = hashes[keep]
    # Of two contexts with one hash the first stays: which is which cannot be told when reading.
    alone = np.concatenate(([True], kept_hashes[1:] != kept_hashes[:-1]))
    keep = keep[alone]
    begin = np.cumsum(sizes) - sizes
    shifts = np.repeat(begin[keep] - np.cumsum(sizes[keep]) + sizes[keep], sizes[keep]).astype(np.int64)
    picks = shifts + np.arange(len(shifts))
    kind = np.searchsorted(_TOTAL_STEPS, total[keep], side="right")
    kind |= np.searchsorted(_VARIETY_STEPS, variety[keep], side="right") << 3
    follower = np.concatenate([level.followers for level in levels])[picks]
    share = np.concatenate([level.shares for level in levels])[picks]
    parts: list[npt.NDArray[np.generic]] = [
        hashes[keep].astype("<u4"),
        kind.astype(np.uint8),
        sizes[keep].astype(np.uint8),
        follower.astype("<u2"),
        np.clip(np.rint(np.sqrt(share) * 255), 1, 255).astype(np.uint8),
    ]
    # The two-byte followers stand on an even offset whatever the number of contexts: 6 bytes go before them for each.
    return b"".join(part.tobytes() for part in parts), len(keep), len(picks)
