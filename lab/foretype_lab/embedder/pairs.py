"""Training pairs for the static embedder, as token ids: `python lab/foretype_lab/embedder/pairs.py OUT.npz CORPUS.jsonl.gz...`.

Three kinds: lines above a use site and the definition it needs; documentation and body; a window and the next one.
Held-out repositories must not be among the corpus files.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models.artifacts import locate_embedder
from foretype_retrieval.chunks import Chunk
from foretype_retrieval.definitions import ChunkKind

from foretype_lab.retrieval.repositories import File, load_repositories
from foretype_lab.retrieval.sites import sites

_QUERY_TOKENS, _TARGET_TOKENS = 128, 192
_SITES_PER_FILE, _WINDOWS_PER_FILE = 8, 2


def indexed(chunk: Chunk) -> str:
    return f"{chunk.name}\n{chunk.indexed}"


USE, DOCUMENTATION, WINDOW = range(3)


def pairs(files: Sequence[File], rng: random.Random) -> Iterator[tuple[int, str, str]]:
    by_path = {file.path: file for file in files}
    used: dict[str, int] = {}
    for site in sites(files):
        if used.get(site.path, 0) < _SITES_PER_FILE:
            used[site.path] = used.get(site.path, 0) + 1
            lines = by_path[site.path].lines
            yield USE, "\n".join(lines[max(0, site.line - 12) : site.line]), indexed(site.target)
    for file in files:
        for chunk in file.chunks:
            if chunk.kind is ChunkKind.FUNCTION and chunk.indexed.count('"""') >= 2:
                _, doc, body = chunk.indexed.split('"""', 2)
                if len(doc) > 30 and len(body) > 80:
                    yield DOCUMENTATION, doc, body
        for _ in range(min(_WINDOWS_PER_FILE, len(file.lines) // 40)):
            at = rng.randrange(12, len(file.lines) - 12)
            yield WINDOW, "\n".join(file.lines[at - 12 : at]), "\n".join(file.lines[at : at + 12])


def main(arguments: Sequence[str]) -> None:
    tokenizer, rng = load_tokenizer(locate_embedder().tokenizer_path), random.Random(1)
    left: list[list[int]] = []
    right: list[list[int]] = []
    kinds: list[int] = []
    repositories: list[int] = []
    seen: set[int] = set()
    numbers: dict[str, int] = {}
    for name in arguments[1:]:
        for repository in load_repositories([Path(name)]):
            number = numbers.setdefault(repository.name, len(numbers))
            for kind, query, target in pairs(repository.files, rng):
                # The window right before the cursor matters most, and the head of a definition.
                a, b = tokenizer.encode(query)[-_QUERY_TOKENS:], tokenizer.encode(target[:1500])[:_TARGET_TOKENS]
                key = hash((tuple(a), tuple(b)))
                if len(a) >= 8 and len(b) >= 8 and key not in seen:
                    seen.add(key)
                    left.append(a)
                    right.append(b)
                    kinds.append(kind)
                    repositories.append(number)
        sys.stderr.write(f"{name}: {len(left)} pairs\n")
    stored = {"tokenizer_digest": np.str_(tokenizer.digest), "vocabulary": np.int64(tokenizer.vocabulary_tokens)}
    stored |= {"kinds": np.asarray(kinds, np.uint8), "repositories": np.asarray(repositories, np.int32)}
    for side, texts in (("left", left), ("right", right)):
        stored[side] = np.concatenate([np.asarray(text, np.uint16) for text in texts])
        stored[side + "_sizes"] = np.asarray([len(text) for text in texts], np.int32)
    np.savez(arguments[0], **stored)


if __name__ == "__main__":
    main(sys.argv[1:])
