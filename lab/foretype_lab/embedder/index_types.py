"""FAISS index types on real vectors: `python lab/foretype_lab/embedder/index_types.py INDEX_FOLDER EMBEDDER.npz`; recall@10, ms and MB of each."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import faiss
import numpy as np
from foretype_models.artifacts import locate
from foretype_retrieval.static_embedder import load_static
from foretype_retrieval.store import load


def main(folder: str, table: str) -> None:
    embedder = load_static(Path(table), locate().tokenizer_path)
    segment = load(Path(folder), embedder.digest).segment
    rows = np.ascontiguousarray(segment.arrays["vectors"], dtype=np.float32)
    rng = np.random.default_rng(1)
    # Questions are texts as a prompt would show them, not the indexed texts themselves.
    asked = embedder.embed([segment.text(int(at))[-400:] for at in rng.choice(len(rows), 300, replace=False)])
    faiss.omp_set_num_threads(1)
    exact = np.argsort(-(asked @ rows.T), axis=1)[:, :10]
    kinds = {"flat f32": "Flat", "flat fp16": "SQfp16", "flat int8": "SQ8"}
    kinds |= {
        f"ivf512 {name}": f"IVF512,{kind}" for name, kind in (("f32", "Flat"), ("fp16", "SQfp16"), ("int8", "SQ8"))
    }
    for label, factory in kinds.items():
        index = faiss.index_factory(rows.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
        index.train(rows[:: max(1, len(rows) // 20_000)])
        index.add(rows)
        for probes in (8, 16, 32) if factory.startswith("IVF") else (0,):
            if probes:
                index.nprobe = probes
            spent, hits = [], 0
            for vector, wanted in zip(asked, exact, strict=True):
                started = time.process_time()
                found = index.search(vector[None], 10)[1][0]
                spent.append((time.process_time() - started) * 1e3)
                hits += len(set(found.tolist()) & set(wanted.tolist()))
            p50, p99 = np.quantile(spent, [0.5, 0.99])
            size = faiss.serialize_index(index).nbytes / 1e6
            sys.stdout.write(
                f"{label:12} probes {probes:2} recall@10 {hits / 3000:.3f} p50 {p50:.2f} p99 {p99:.2f} ms {size:.0f} MB\n"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
