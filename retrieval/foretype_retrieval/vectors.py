"""Nearest vectors of one segment: exact below some thousand chunks, FAISS above.

Measured on 97,580 real chunks of 256 (one thread, one question; lab/foretype_lab/embedder/index_types.py): exact float16 takes 1.4 ms, half of what
a whole answer may take; IVF with 48 of 512 float16 lists a sixth of that in 51 MB. Synthetic clusters flatter IVF: 16 lists
found 0.997 of the neighbours there, 0.855 here. `add` on a memory-mapped FAISS index aborts the process, so these are made once,
and never added to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretype_retrieval.errors import UnreadableVectorsError

Array = NDArray[Any]

EXACT_CHUNKS: Final = 6_000
PROBES: Final = 48
_SPARE: Final = 2
_ADDED_AT_ONCE: Final = 10_000
_SIGN_AND_VALUE: Final = np.int32(-0x7000_2000)
"""Of a float16 whose bits were widened with its sign and shifted: the bits between its sign and its exponent go."""


class VectorPart:
    """Vectors of an immutable segment. What is dead is named by each question."""

    def __init__(self, vectors: Array) -> None:
        self._vectors = vectors
        self._float: Array | None = None
        self._faiss: Any = None
        self._serialised: Array | None = None

    def __len__(self) -> int:
        return len(self._vectors)

    def attach(self, serialised: Array) -> None:
        """Uses a FAISS index that was stored beside the vectors. Raises UnreadableVectorsError."""
        opened = open_faiss(serialised)
        if (opened.ntotal, opened.d) != self._vectors.shape:
            raise UnreadableVectorsError(f"{opened.ntotal} vectors of {opened.d}, not {self._vectors.shape}")
        self._faiss, self._serialised = opened, serialised

    def prepare(self) -> None:
        """Makes the FAISS index of a large part, which takes a second per 100,000; no question ever waits for it."""
        if self._faiss is None and len(self._vectors) > EXACT_CHUNKS and self._vectors.shape[1]:
            self.attach(build_faiss(self._vectors))

    def nearest(self, vector: NDArray[np.float32], alive: Array, limit: int) -> tuple[Array, Array]:
        """Chunk numbers and cosines, best first; at most `limit`, ties at the end included where exact."""
        if self._faiss is not None:
            return self._approximate(vector, alive, limit)
        if self._float is None:
            self._float = self._vectors.astype(np.float32)
        scores = np.where(alive, self._float @ vector, -2.0)
        chunks = np.arange(len(scores))
        if len(scores) > limit:
            # Wider than rounding, so that equal texts in segments of other shapes stay ties.
            bound = np.partition(scores, -limit)[-limit] - 1e-3
            chunks = np.flatnonzero(scores >= bound)
        chunks = chunks[scores[chunks] > -1.5]
        order = np.argsort(-scores[chunks], kind="stable")
        return chunks[order], scores[chunks][order]

    def _approximate(self, vector: NDArray[np.float32], alive: Array, limit: int) -> tuple[Array, Array]:
        scores, chunks = self._faiss.search(vector[None, :], limit * _SPARE)
        kept = chunks[0] >= 0
        kept[kept] = alive[chunks[0][kept]]
        return chunks[0][kept][:limit], scores[0][kept][:limit]


def widened(halves: Array) -> Array:
    """Finite float16 numbers as float32, in half the time that `astype` takes."""
    bits = halves.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= _SIGN_AND_VALUE
    numbers = bits.view(np.float32)
    numbers *= np.float32(2.0**112)  # the bias of the exponent is 127 here, and was 15
    return numbers


def build_faiss(vectors: Array) -> Array:
    """As :func:`write_faiss`, in memory."""
    written = bytearray()  # `serialize_index` holds it three times while it grows, and copies it
    write_faiss(vectors.shape, lambda first, last: vectors[first:last], written.extend)
    return np.frombuffer(written, np.uint8)


def write_faiss(shape: tuple[int, int], rows: Callable[[int, int], Array], write: Callable[[bytes], None]) -> None:
    """Writes an IVF index with float16 lists. Deterministic: k-means starts from a fixed seed.

    Args:
        shape: of the vectors.
        rows: vectors `first` to `last`; asked for some thousand at a time, three times.
        write: is given the bytes, a megabyte at a time.
    """
    import faiss  # pyright: ignore[reportMissingTypeStubs]

    library: Any = faiss
    library.omp_set_num_threads(1)
    count, dimensions = shape
    lists = _lists(count)
    quantizer = library.IndexFlatIP(dimensions)
    made = library.IndexIVFScalarQuantizer(
        quantizer, dimensions, lists, library.ScalarQuantizer.QT_fp16, library.METRIC_INNER_PRODUCT
    )
    step = max(1, count // (lists * 40))
    made.cp.niter = 8
    # All of them in fp32 would take twice what they take here.
    made.train(np.concatenate([rows(at, end)[-at % step :: step].astype(np.float32) for at, end in _spans(count)]))
    nearest = np.empty(count, np.int64)
    for at, end in _spans(count):
        nearest[at:end] = quantizer.search(rows(at, end).astype(np.float32), 1)[1][:, 0]
    for number, size in enumerate(np.bincount(nearest[nearest >= 0], minlength=lists).tolist()):
        made.invlists.resize(number, size)  # a list that grows takes up to twice its size
        made.invlists.resize(number, 0)
    for at, end in _spans(count):
        added = rows(at, end).astype(np.float32)
        made.add_core(end - at, library.swig_ptr(added), None, library.swig_ptr(nearest[at:end]))
    failed: list[OSError] = []

    def written(data: bytes) -> None:
        try:
            if not failed:
                write(data)
        except OSError as error:  # FAISS would tell that something went wrong, and not what
            failed.append(error)

    library.write_index(made, library.PyCallbackIOWriter(written))
    if failed:
        raise failed[0]


def faiss_bytes(count: int, dimensions: int) -> int:
    """Of the index of so many vectors, about: the vectors, the number of each, and the centres of the lists."""
    return count * (2 * dimensions + 8) + _lists(count) * 4 * dimensions


def _lists(count: int) -> int:
    return max(16, min(4096, 2 ** round(math.log2(1.6 * math.sqrt(count)))))


def _spans(count: int) -> list[tuple[int, int]]:
    return [(at, min(count, at + _ADDED_AT_ONCE)) for at in range(0, count, _ADDED_AT_ONCE)]


def open_faiss(serialised: Array) -> Any:
    """The index of :func:`build_faiss`, which reads its lists where they lie: the bytes must outlive it.

    They must come from a file whose checksum was verified.

    Raises:
        UnreadableVectorsError: another version of FAISS wrote them.
    """
    import faiss  # pyright: ignore[reportMissingTypeStubs]

    library: Any = faiss
    library.omp_set_num_threads(1)
    try:
        # `deserialize_index` copies the bytes, and the lists from the copy.
        opened = library.read_index(library.ZeroCopyIOReader(library.swig_ptr(serialised), serialised.nbytes))
    except RuntimeError as error:  # all that FAISS raises; its message is of its source, not for people
        raise UnreadableVectorsError("the installed FAISS cannot read it") from error
    opened.nprobe = PROBES
    return opened
