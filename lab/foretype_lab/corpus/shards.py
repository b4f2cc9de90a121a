"""Shards of kept text, and the journal by which an interrupted build goes on where it was.

A project's text is written whole, as one gzip member; only then its line goes into the journal, with the size that the
shard has from there on. What a killed build left behind that line is cut off when the build starts again.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretype_lab.corpus.duplicates import PERMUTATIONS, Hashes

SHARD_BYTES = 32_000_000
_SIGNATURE_BYTES = PERMUTATIONS * 8


@dataclass
class Shard:
    """The shard that a split writes into.

    Attributes:
        number: its place in the split.
        text_bytes: text in it.
        size_bytes: its size on disk.
    """

    number: int = 0
    text_bytes: int = 0
    size_bytes: int = 0


class Journal:
    """Shards, signatures and a line per project, in one folder.

    Args:
        folder: where the shards are.
        key: what decides the content of the shards. A folder that was written under another key is begun anew.
    """

    def __init__(self, folder: Path, key: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._journal, self._signatures = folder / "journal.jsonl", folder / "signatures.bin"
        self._shards: dict[str, Shard] = {}
        self.done: list[dict[str, Any]] = []
        """What :meth:`add` was given for each project that is finished."""
        lines = list(_whole_lines(self._journal))
        if lines and lines[0] == {"key": key}:
            for line in lines[1:]:
                self._shards[line["split"]] = Shard(**line["shard"])
                self.done.append(line["about"])
        # Rewritten without a line that a full disk or a kill may have torn.
        self._journal.write_text(
            "".join(json.dumps(line) + "\n" for line in [{"key": key}, *lines[1 : len(self.done) + 1]])
        )
        for path in folder.glob("*.jsonl.gz"):
            split, _, number = path.name.partition(".")[0].rpartition("-")
            shard = self._shards.get(split)
            if shard is None or int(number) > shard.number:
                path.unlink()
            elif int(number) == shard.number:
                _cut(path, shard.size_bytes)
        self._signatures.touch()
        _cut(self._signatures, sum(about["entry"]["files"] for about in self.done) * _SIGNATURE_BYTES)

    def signatures(self) -> Iterator[Hashes]:
        """MinHash signatures of all files of :attr:`done`, in their order."""
        yield from np.fromfile(self._signatures, dtype=np.uint64).reshape(-1, PERMUTATIONS)

    def add(self, split: str, lines: Iterable[bytes], signatures: Iterable[Hashes], about: dict[str, Any]) -> None:
        """Writes a project's kept files and remembers it as done.

        Args:
            split: ``train`` or ``validation``.
            lines: a JSON line per file.
            signatures: of the same files; as many as ``about["entry"]["files"]``.
            about: what the build has to know of it when it goes on.
        """
        shard = self._shards.setdefault(split, Shard())
        if shard.text_bytes >= SHARD_BYTES:
            shard = self._shards[split] = Shard(shard.number + 1)
        path = self._folder / f"{split}-{shard.number:03}.jsonl.gz"
        # mtime=0: the same corpus gives the same bytes.
        with path.open("ab") as raw, gzip.GzipFile("", "wb", compresslevel=4, fileobj=raw, mtime=0) as stream:
            for line in lines:
                stream.write(line)
                shard.text_bytes += len(line)
        shard.size_bytes = path.stat().st_size
        with self._signatures.open("ab") as stream:
            for signature in signatures:
                stream.write(signature.astype(np.uint64).tobytes())
        with self._journal.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"split": split, "shard": asdict(shard), "about": about}) + "\n")


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text("utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as stream:
        stream.truncate(size)


def read_shards(folder: Path, split: str) -> Iterator[dict[str, str]]:
    """Yields the lines of a split's shards in order; files of one project are next to each other."""
    for path in sorted(folder.glob(f"{split}-*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for line in stream:
                yield json.loads(line)
