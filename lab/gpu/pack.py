"""Packs what a campaign needs on a machine without a network: ``python lab/gpu/pack.py STORES BASE [--out .gpu]``.

Of the text whole repositories in the order of their names' digest, so that any number of megabytes is a fair sample; the held-out store
goes whole. Text packs about 6 : 1. The base and the wheels go as they are; all of it in pieces (:mod:`pieces`).
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import pieces
from foretype_lab.corpus.store import Store, build_store
from foretype_models.artifacts import FOLDER
from foretype_models.errors import FetchError
from foretype_models.fetch.base import find, read_base, take

WHEELS = Path(__file__).parent / "wheels.txt"


def sample(store: Store, most: float) -> Iterator[dict[str, str]]:
    """Documents of a store, whole repositories, until ``most`` bytes are taken."""
    taken = 0
    for repo in sorted(store.repository_range, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
        if taken >= most:
            return
        for number in range(*store.repository_range[repo]):
            _, path, _, size = store.index[number]
            taken += size
            yield {"repo": repo, "path": path, "text": store.text(number)}


def pack(stores: Path, target: Path, megabytes: float) -> None:
    """Writes one archive with ``train`` and ``validation``."""
    with tempfile.TemporaryDirectory() as scratch:
        for split, most in (("train", megabytes * 1e6), ("validation", float("inf"))):
            build_store(sample(Store(stores / split), most), Path(scratch) / split)
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for split in ("train", "validation"):
                archive.add(Path(scratch) / split, split)


def fetch_wheels(folder: Path) -> None:
    """Those of wheels.txt, for the GPU's Python, with the flags that it names.

    Raises:
        pieces.CarryError: pip could not.
    """
    flags = next(line for line in WHEELS.read_text("utf-8").splitlines() if line.startswith("# pip download ")).split()[
        3:
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pip", "download", "-q", *flags, "-d", str(folder), "-r", str(WHEELS)], check=False
    )
    if done.returncode:
        raise pieces.CarryError(f"pip did not fetch what {WHEELS} lists; --wheels FOLDER names a folder that has it")


def pack_wheels(folder: Path, target: Path) -> list[Path]:
    """Writes two archives into a folder: vLLM, which only its rows need, and the small ones, which go first.

    Raises:
        pieces.CarryError: the folder has none.
    """
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise pieces.CarryError(f"{folder}: no wheels there")
    made = [target / "small.tar", target / "vllm.tar"]
    for path, large in zip(made, (False, True), strict=True):
        with tarfile.open(path, "w") as archive:
            for wheel in wheels:
                if wheel.name.startswith("vllm-") == large:
                    archive.add(wheel, wheel.name)
    return made


def main() -> int:
    """Command line, see the module."""
    parser = argparse.ArgumentParser(description="Pack what a campaign on a lent GPU needs.")
    parser.add_argument("stores", type=Path, help="folder with train/ and validation/")
    parser.add_argument("base", type=Path, help="the public base: its file, its wheel, or a folder that has one")
    parser.add_argument("--out", type=Path, default=Path(".gpu"))
    parser.add_argument("--megabytes", type=float, default=350, help="most text of the training store")
    parser.add_argument("--piece-mib", type=int, default=60, help="of a piece, and of what is carried in one call")
    parser.add_argument("--wheels", type=Path, help="a folder with the wheels; default: fetched")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            base = read_base(FOLDER)
            whole = take(base, find(base, given.base), scratch / "taken.gguf")
            (scratch / "base.gguf").symlink_to(whole.resolve())
            if given.wheels is None:
                fetch_wheels(scratch / "wheels")
            small, vllm = pack_wheels(given.wheels or scratch / "wheels", scratch)
            pack(given.stores, scratch / "store.tar.xz", given.megabytes)
            files = [scratch / "base.gguf", small, scratch / "store.tar.xz", vllm]
            manifest = pieces.cut(files, given.out, given.piece_mib << 20)
    except (pieces.CarryError, FetchError, OSError) as error:
        print(f"pack: {error}", file=sys.stderr)
        return 2
    for at, names in enumerate(pieces.loads(manifest, given.piece_mib << 20), 1):
        print(f"call {at}: {pieces.MANIFEST} {' '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
