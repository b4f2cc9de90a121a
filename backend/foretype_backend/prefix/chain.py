"""Placed chains: the blocks of a prompt, each with the spans of documents that its tokens were read from."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from foretype_context.prompt.segments import PlacedSegment, Scope

from foretype_backend.prefix.block_keys import BlockKeys, block_keys, extend_keys


class Span(NamedTuple):
    """Half-open character span of a document at a version."""

    document: str
    version: int
    start: int
    end: int


class Block(NamedTuple):
    """A whole block of a prompt: its chained key, its token range, and what it was read from.

    Attributes:
        scope: the least stable scope in it: a block is only as shared as its most private token.
        spans: one for each document in it.
    """

    key: bytes
    start: int
    end: int
    scope: Scope
    spans: tuple[Span, ...]


Chain = tuple[Block, ...]

_SCOPES = tuple(Scope)
_RANK = {scope: rank for rank, scope in enumerate(_SCOPES)}


def blocks_of(keys: BlockKeys, placed: Sequence[PlacedSegment], block_tokens: int) -> Chain:
    """Chain of a prompt from its block keys and its segments, in prompt order.

    A block knows whole segments: which characters of a segment its tokens are would need the offsets of the tokenizer, and
    an edit voids everything after it in the chain anyway.
    """
    blocks: list[Block] = []
    first = 0
    for at, key in enumerate(keys):
        start, end = at * block_tokens, (at + 1) * block_tokens
        while first < len(placed) and placed[first].end <= start:
            first += 1
        spans: list[Span] = []
        rank, place = 0, first
        while place < len(placed) and placed[place].start < end:
            segment = placed[place].segment
            source = segment.source
            rank = max(rank, _RANK[segment.scope])
            if source.document:
                spans.append(Span(source.document, source.version, source.start, source.end))
            place += 1
        blocks.append(Block(key, start, end, _SCOPES[rank], tuple(spans)))
    return tuple(blocks)


class ChainMaker:
    """Block keys of one session's prompts; hashing starts at the first block that differs from the last prompt of a document.

    Args:
        documents_max: prompts remembered.
    """

    def __init__(self, block_tokens: int, *, documents_max: int = 8) -> None:
        self.block_tokens = block_tokens
        self._documents_max = documents_max
        self._last: dict[tuple[str, str], tuple[array[int], BlockKeys]] = {}

    def keys(self, document: str, token_ids: Sequence[int], salt: str) -> BlockKeys:
        # Nobody changes a prompt: one array serves all. Only equal kinds of sequence compare as equal.
        ids = token_ids if isinstance(token_ids, array) else array("Q", token_ids)
        known = self._last.pop((document, salt), None)
        if known is None:
            keys = block_keys(ids, self.block_tokens, salt=salt)
        else:
            keys = extend_keys(known[0], known[1], ids, self.block_tokens, salt=salt)
        self._last[document, salt] = ids, keys
        while len(self._last) > self._documents_max:
            del self._last[next(iter(self._last))]
        return keys
