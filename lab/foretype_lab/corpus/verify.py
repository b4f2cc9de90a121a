"""Reads a built corpus back, as training would, and names every way in which it is not what its manifest says.

The build leaves out what matches the never-train list, file by file. This is the check that *fails*: it starts from the
shards on disk, so that a fault of the build, or a shard that was put there by hand, is found before a run trains on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from foretype_lab.corpus import duplicates, filters
from foretype_lab.corpus.licences import permissive_expression
from foretype_lab.corpus.never_train import ContentCheck
from foretype_lab.corpus.shards import read_shards


def faults(manifest: dict[str, Any], folder: Path, never: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yields a sentence for every fault of the shards in a folder.

    Args:
        manifest: as `build.build` returned it.
        folder: where the shards are.
        never: (name, text, language) of everything that must not be trained on.
    """
    sources = {item["name"]: item for item in manifest["sources"]}
    for item in manifest["sources"]:
        if not permissive_expression(item["licence"]):
            yield f"{item['name']}: the licence {item['licence']!r} is not permissive"
    check = ContentCheck.build(never)
    for split in ("train", "validation"):
        files: Counter[str] = Counter()
        for line in read_shards(folder, split):
            name = f"{line['repo']}:{line['path']}"
            files[line["repo"]] += 1
            if line["repo"] not in sources or sources[line["repo"]]["split"] != split:
                yield f"{name}: is in the shards of {split} and not in that part of the manifest"
            tokens = duplicates.lexical_tokens(line["text"], line["language"])
            reason = check.matches(tokens, duplicates.signature(tokens)) or filters.rejection(
                line["path"], line["text"]
            )
            if reason is not None:
                yield f"{name}: {reason}"
        expected: Counter[str] = Counter()
        for item in manifest["sources"]:
            # Sources of two registries may have one name (a client and its server, say): they share a repository's rows.
            expected[item["name"]] += item["files"] if item["split"] == split else 0
        for name in sorted(name for name in {*expected, *files} if expected[name] != files[name]):
            yield f"{name}: {files[name]} files in the shards, {expected[name]} in the manifest"
