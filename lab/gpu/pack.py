"""Brings a corpus to a machine without a network, in pieces, and weights back: standard library and torch alone.

    python lab/gpu/pack.py corpus  --corpus WORK/corpus --out .gpu [--piece-mib 45] [--megabytes 1100]
    python lab/gpu/pack.py store   --pieces DIR --store DIR
    python lab/gpu/pack.py split   --checkpoint last.pt --out DIR [--piece-mib 15]
    python lab/gpu/pack.py join    --pieces DIR --checkpoint last.pt

A piece is an xz file of JSON lines, whole repositories in the order of their names' digest, so that any first pieces are a
fair sample. Weights travel as float16 without the optimizers' state; `train --from` goes on from them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import lzma
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

MIB = 1 << 20
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 * MIB}]


def _repositories(corpus: Path, split: str) -> dict[str, list[tuple[Path, int]]]:
    """Per repository, in the order of its digest, where its lines are; the text itself is read again when it is packed."""
    found: dict[str, list[tuple[Path, int]]] = {}
    for path in sorted(corpus.glob(f"{split}-*.jsonl.gz")):
        with gzip.open(path, "rb") as stream:
            for number, line in enumerate(stream):
                # The repository comes first in a line: no need to parse the text.
                repo = json.loads(line[: line.index(b', "path"')] + b"}")["repo"]
                found.setdefault(repo, []).append((path, number))
    return dict(sorted(found.items(), key=lambda item: hashlib.sha256(item[0].encode()).hexdigest()))


def _lines(places: list[tuple[Path, int]]) -> Iterator[bytes]:
    wanted: dict[Path, set[int]] = {}
    for path, number in places:
        wanted.setdefault(path, set()).add(number)
    for path, numbers in wanted.items():
        with gzip.open(path, "rb") as stream:
            for number, line in enumerate(stream):
                if number in numbers:
                    yield line


def write_pieces(repositories: Iterable[Iterable[bytes]], out: Path, name: str, piece_bytes: int, most: float) -> int:
    """Writes ``name-NN.xz`` files of at most ``piece_bytes``; returns the bytes of text in them.

    A piece ends where the compressed size says so, checked after each repository: one is at most some 3 MB compressed.
    """
    out.mkdir(parents=True, exist_ok=True)
    taken = number = 0
    buffer = io.BytesIO()
    compressor = lzma.LZMACompressor(filters=_FILTERS)

    def finish() -> None:
        nonlocal number, buffer, compressor
        buffer.write(compressor.flush())
        (out / f"{name}-{number:02}.xz").write_bytes(buffer.getvalue())
        number += 1
        buffer, compressor = io.BytesIO(), lzma.LZMACompressor(filters=_FILTERS)

    fresh = True
    for lines in repositories:
        if taken >= most:
            break
        for line in lines:
            buffer.write(compressor.compress(line))
            taken += len(line)
        fresh = False
        # What the compressor still holds back is at most a few MiB.
        if buffer.tell() > piece_bytes - 4 * MIB:
            finish()
            fresh = True
    if not fresh:
        finish()
    return taken


def corpus(corpus_folder: Path, out: Path, piece_mib: float, megabytes: float) -> None:
    """Packs the validation split whole, then the training split."""
    for split, most in (("validation", float("inf")), ("train", megabytes * 1e6)):
        found = _repositories(corpus_folder, split)
        taken = write_pieces(map(_lines, found.values()), out, split, int(piece_mib * MIB), most)
        sizes = [path.stat().st_size for path in sorted(out.glob(f"{split}-*.xz"))]
        print(json.dumps({"split": split, "text_mb": round(taken / 1e6, 1), "pieces": sizes}))  # noqa: T201


def read_pieces(pieces: Path, split: str) -> Iterator[dict[str, Any]]:
    """The documents of a split's pieces, in order."""
    for path in sorted(pieces.glob(f"{split}-*.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as stream:
            for line in stream:
                yield json.loads(line)


def store(pieces: Path, folder: Path) -> None:
    """Builds the text stores that training reads."""
    from foretype_lab.training.data import build_store

    for split in ("train", "validation"):
        build_store(read_pieces(pieces, split), folder / split)


def split(checkpoint: Path, out: Path, piece_mib: float) -> None:
    """Cuts a checkpoint's weights, in float16, into files that come home."""
    import torch

    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    light = {key: state[key] for key in ("config", "train", "progress")}
    light["model"] = {name: value.half() for name, value in state["model"].items()}
    buffer = io.BytesIO()
    torch.save(light, buffer)
    data, size = buffer.getvalue(), int(piece_mib * MIB)
    out.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, len(data), size)):
        (out / f"weights-{number:02}.part").write_bytes(data[start : start + size])
    (out / "weights.sha256").write_text(hashlib.sha256(data).hexdigest())


def join(pieces: Path, checkpoint: Path) -> None:
    """Puts weights together again.

    Raises:
        ValueError: a piece is missing or was changed.
    """
    data = b"".join(path.read_bytes() for path in sorted(pieces.glob("weights-*.part")))
    if hashlib.sha256(data).hexdigest() != (pieces / "weights.sha256").read_text().strip():
        raise ValueError(f"{pieces}: the pieces are not whole; bring all of one call home")
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write_bytes(data)


def main() -> None:
    """Command line, see the module."""
    parser = argparse.ArgumentParser(description="Pack a corpus, build stores, cut and join weights.")
    steps = parser.add_subparsers(dest="step", required=True)
    for name, options in {
        "corpus": ("corpus", "out"),
        "store": ("pieces", "store"),
        "split": ("checkpoint", "out"),
        "join": ("pieces", "checkpoint"),
    }.items():
        one = steps.add_parser(name)
        for option in options:
            one.add_argument(f"--{option}", type=Path, required=True)
        one.add_argument("--piece-mib", type=float, default=45 if name == "corpus" else 15)
        one.add_argument("--megabytes", type=float, default=2000, help="most text of the training split")
    given = parser.parse_args()
    if given.step == "corpus":
        corpus(given.corpus, given.out, given.piece_mib, given.megabytes)
    elif given.step == "store":
        store(given.pieces, given.store)
    elif given.step == "split":
        split(given.checkpoint, given.out, given.piece_mib)
    else:
        join(given.pieces, given.checkpoint)


if __name__ == "__main__":
    main()
