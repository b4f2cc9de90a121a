"""Trains the static embedder: `python lab/foretype_lab/embedder/train.py PAIRS.npz OUT.npz [--seconds 200]`; torch, CPU.

In-batch softmax over cosines in both directions (scale 20), Adam, as a sentence-transformers `StaticEmbedding` with
`MultipleNegativesRankingLoss` would be trained; the table is stored as int8 with one float16 scale per row. A batch is made of
runs of pairs of one repository, for that is what a question has to tell apart; equal targets are not each other's opposites.
"""

from __future__ import annotations

import argparse
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

DIMENSIONS, BATCH, SCALE, RATE = 240, 1024, 20.0, 0.03


def blocks(repositories: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """All pairs in an order where runs of at most `size` are of one repository."""
    shuffled = rng.permutation(len(repositories))
    by_repository = shuffled[np.argsort(repositories[shuffled], kind="stable")]
    ends = np.flatnonzero(np.diff(repositories[by_repository], append=-1)) + 1
    runs = [run[at : at + size] for run in np.split(by_repository, ends[:-1]) for at in range(0, len(run), size)]
    return np.concatenate([runs[at] for at in rng.permutation(len(runs))])


def save(path: str, rows: np.ndarray, tokenizer_digest: str) -> None:
    """Equal rows give an equal file: the archive carries no date."""
    scales = (np.abs(rows).max(axis=1) / 127).astype(np.float16)
    table = np.round(rows / np.maximum(scales.astype(np.float32), 1e-8)[:, None]).clip(-127, 127).astype(np.int8)
    stored = {"format": np.int64(1), "table": table, "scales": scales, "tokenizer_digest": np.str_(tokenizer_digest)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, values in stored.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as stream:
                np.lib.format.write_array(stream, np.asanyarray(values), allow_pickle=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument(
        "--steps", type=int, help="Stop after so many steps instead; the rate falls to its end with them."
    )
    parser.add_argument("--run", type=int, default=1, help="Pairs of one repository in a row; 1 mixes them all.")
    parser.add_argument("--scale", type=float, default=SCALE)
    parser.add_argument("--kinds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(2)
    with np.load(options.pairs) as data:
        stored = {name: data[name] for name in data.files}
    sides = []
    for side in ("left", "right"):
        ends = np.cumsum(stored[side + "_sizes"])
        sides.append((torch.from_numpy(stored[side].astype(np.int64)), ends - stored[side + "_sizes"], ends))
    ids, starts, ends = sides[1]
    equal = torch.tensor([hash(ids[a:b].numpy().tobytes()) for a, b in zip(starts, ends, strict=True)])
    chosen = np.flatnonzero(np.isin(stored["kinds"], options.kinds))
    repositories, count = stored["repositories"][chosen], len(chosen)
    table = torch.nn.Parameter(torch.randn(int(stored["vocabulary"]), DIMENSIONS) * 0.1)
    optimiser = torch.optim.Adam([table], lr=RATE)
    target = torch.arange(BATCH)
    rng, began, step = np.random.default_rng(1), time.monotonic(), 0
    order, at = chosen[blocks(repositories, options.run, rng)], 0

    def done() -> float:
        return step / options.steps if options.steps else (time.monotonic() - began) / options.seconds

    while (share := done()) < 1:
        if at + BATCH > count:
            order, at = chosen[blocks(repositories, options.run, rng)], 0
        rows, at = order[at : at + BATCH], at + BATCH
        made = []
        for ids, starts, ends in sides:
            parts = [ids[starts[row] : ends[row]] for row in rows]
            offsets = torch.tensor(np.cumsum([0, *(len(part) for part in parts[:-1])]))
            made.append(functional.normalize(functional.embedding_bag(torch.cat(parts), table, offsets, mode="mean")))
        same = equal[rows]
        twins = (same[:, None] == same[None, :]) & ~torch.eye(BATCH, dtype=torch.bool)
        cosines = (options.scale * made[0] @ made[1].T).masked_fill(twins, -1e4)
        loss = (functional.cross_entropy(cosines, target) + functional.cross_entropy(cosines.T, target)) / 2
        for group in optimiser.param_groups:
            group["lr"] = RATE * max(0.02, 1 - share)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        step += 1
        if step % 20 == 0:
            spent = time.monotonic() - began
            sys.stderr.write(f"step {step} epoch {step * BATCH / count:.2f} loss {loss.item():.3f} {spent:.0f} s\n")
    save(options.out, table.detach().numpy(), str(stored["tokenizer_digest"]))
    sys.stderr.write(f"{step} steps, {count} pairs, {Path(options.out).stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
