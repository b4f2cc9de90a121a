"""Trains the static embedder: `python retrieval/training/train.py PAIRS.npz OUT.npz [--seconds 200]`; torch, CPU.

In-batch softmax over cosines in both directions (scale 20), Adam, as a sentence-transformers `StaticEmbedding` with
`MultipleNegativesRankingLoss` would be trained; the table is stored as int8 with one float16 scale per row.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch
from torch.nn import functional

DIMENSIONS, BATCH, SCALE, RATE = 256, 1024, 20.0, 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=200)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(2)
    with np.load(options.pairs) as data:
        stored = {name: data[name] for name in data.files}
    sides = []
    for side in ("left", "right"):
        ends = np.cumsum(stored[side + "_sizes"])
        sides.append((torch.from_numpy(stored[side].astype(np.int64)), ends - stored[side + "_sizes"], ends))
    count = len(sides[0][1])
    table = torch.nn.Parameter(torch.randn(int(stored["vocabulary"]), DIMENSIONS) * 0.1)
    optimiser = torch.optim.Adam([table], lr=RATE)
    target = torch.arange(BATCH)
    rng, began, step = np.random.default_rng(1), time.monotonic(), 0
    order, at = rng.permutation(count), 0
    while (spent := time.monotonic() - began) < options.seconds:
        if at + BATCH > count:
            order, at = rng.permutation(count), 0
        rows, at = order[at : at + BATCH], at + BATCH
        made = []
        for ids, starts, ends in sides:
            parts = [ids[starts[row] : ends[row]] for row in rows]
            offsets = torch.tensor(np.cumsum([0, *(len(part) for part in parts[:-1])]))
            made.append(functional.normalize(functional.embedding_bag(torch.cat(parts), table, offsets, mode="mean")))
        cosines = SCALE * made[0] @ made[1].T
        loss = (functional.cross_entropy(cosines, target) + functional.cross_entropy(cosines.T, target)) / 2
        for group in optimiser.param_groups:
            group["lr"] = RATE * max(0.02, 1 - spent / options.seconds)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        step += 1
        if step % 20 == 0:
            sys.stderr.write(f"step {step} epoch {step * BATCH / count:.2f} loss {loss.item():.3f} {spent:.0f} s\n")
    rows = table.detach().numpy()
    scales = (np.abs(rows).max(axis=1) / 127).astype(np.float16)
    quantised = np.round(rows / np.maximum(scales.astype(np.float32), 1e-8)[:, None]).clip(-127, 127).astype(np.int8)
    np.savez_compressed(
        options.out, format=np.int64(1), table=quantised, scales=scales, tokenizer_digest=stored["tokenizer_digest"]
    )


if __name__ == "__main__":
    main()
