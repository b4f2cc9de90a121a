"""Brings text stores to a machine without a network: ``python lab/gpu/pack.py STORE OUT.tar.xz [--megabytes 350]``.

Whole repositories in the order of their names' digest, so that any number of megabytes is a fair sample; the held-out store goes
whole. Text packs about 6 : 1.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from foretype_lab.corpus.store import Store, build_store


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
        with tarfile.open(target, "w:xz") as archive:
            for split in ("train", "validation"):
                archive.add(Path(scratch) / split, split)


def main() -> None:
    """Command line, see the module."""
    parser = argparse.ArgumentParser(description="Pack text stores.")
    parser.add_argument("stores", type=Path, help="folder with train/ and validation/")
    parser.add_argument("target", type=Path)
    parser.add_argument("--megabytes", type=float, default=350, help="most text of the training store")
    given = parser.parse_args()
    pack(given.stores, given.target, given.megabytes)


if __name__ == "__main__":
    main()
