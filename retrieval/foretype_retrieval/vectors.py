"""Nearest vectors of one segment: exact below some thousand chunks, FAISS above.

Measured on 97,580 real chunks of 256 (one thread, one question; lab/foretype_lab/embedder/index_types.py): exact float16 takes 1.4 ms, half of what
a whole answer may take; IVF with 48 of 512 float16 lists a sixth of that in 51 MB. Synthetic clusters flatter IVF: 16 lists
found 0.997 of the neighbours there, 0.855 here. `add` on a memory-mapped FAISS index aborts the process, so these are made once,
and never added to.
"""

from __future__ import annotations

import math
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

    def __len__(self) -> int:
        return len(self._vectors)

    def attach(self, serialised: Array) -> None:
        """Uses a FAISS index that was stored beside the vectors. Raises UnreadableVectorsError."""
        opened = open_faiss(serialised)
        if (opened.ntotal, opened.d) != self._vectors.shape:
            raise UnreadableVectorsError(f"{opened.ntotal} vectors of {opened.d}, not {self._vectors.shape}")
        self._faiss = opened

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
    """An IVF index with float16 lists, serialised. Deterministic: k-means starts from a fixed seed."""
    import faiss  # pyright: ignore[reportMissingTypeStubs]

    library: Any = faiss
    library.omp_set_num_threads(1)
    count, dimensions = vectors.shape
    lists = max(16, min(4096, 2 ** round(math.log2(1.6 * math.sqrt(count)))))
    quantizer = library.IndexFlatIP(dimensions)
    made = library.IndexIVFScalarQuantizer(
        quantizer, dimensions, lists, library.ScalarQuantizer.QT_fp16, library.METRIC_INNER_PRODUCT
    )
    step = max(1, count // (lists * 40))
    made.cp.niter = 8
    made.train(vectors[::step].astype(np.float32))
    for start in range(0, count, _ADDED_AT_ONCE):  # all of them in fp32 would take twice what they take here
        made.add(vectors[start : start + _ADDED_AT_ONCE].astype(np.float32))
    written = bytearray()  # `serialize_index` holds it three times while it grows, and copies it
    library.write_index(made, library.PyCallbackIOWriter(written.extend))
    return np.frombuffer(written, np.uint8)


def open_faiss(serialised: Array) -> Any:
    """The index of :func:`build_faiss`. The bytes must come from a file whose checksum was verified.

    Raises:
        UnreadableVectorsError: another version of FAISS wrote them.
    """
    import faiss  # pyright: ignore[reportMissingTypeStubs]

    library: Any = faiss
    library.omp_set_num_threads(1)
    try:
        opened = library.deserialize_index(serialised)
    except RuntimeError as error:  # all that FAISS raises; its message is of its source, not for people
        raise UnreadableVectorsError("the installed FAISS cannot read it") from error
    opened.nprobe = PROBES
    return opened
