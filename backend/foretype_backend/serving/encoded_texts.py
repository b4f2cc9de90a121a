"""Token ids of texts that come again: a prompt is re-encoded only where it changed.

Each stream connection has a :class:`MemoTokenizer`, so that ids of source text leave memory with the connection that sent it. What
stateless clients send is remembered in :class:`RememberedPrompts`.
"""

from __future__ import annotations

import functools
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from foretype_context.tokens.tokenizer import CutRule, Tokenizer, coarse_pieces, rule_of_pieces

from foretype_backend.prefix_memo import PrefixMemo

_CAPACITY_TOKENS: Final = 1 << 14
_SHORTEST_CHARS: Final = 128
"""Shorter texts are encoded again: that costs less than the entry."""
_PROMPTS_MOST: Final = 45 << 20
"""Bytes of a generation: some 2,300 prompts of 1,500 tokens, each of another sender or file."""
_HEAD_CHARS: Final = 512
"""Texts that begin with as many go on from each other; shorter ones are encoded again. Of two files that begin with the same licence the one that was sent last is remembered."""


class MemoTokenizer:
    """A tokenizer that remembers the ids of recent long texts; least recently used leave first. Not thread-safe.

    Texts that come out of a connection's segment cache are the same objects each time, so a hit costs no hashing.
    """

    def __init__(self, inner: Tokenizer, *, capacity_tokens: int = _CAPACITY_TOKENS) -> None:
        self._inner = inner
        self._capacity_tokens = capacity_tokens
        self._ids: OrderedDict[str, list[int]] = OrderedDict()
        self.tokens = 0
        """Of all remembered texts."""

    @property
    def vocabulary_tokens(self) -> int:
        return self._inner.vocabulary_tokens

    @property
    def digest(self) -> str:
        return self._inner.digest

    @property
    def cut_rule(self) -> CutRule:
        return self._inner.cut_rule

    def encode(self, text: str) -> list[int]:
        """Like the inner tokenizer's; the list is shared, so callers must not change it."""
        if len(text) < _SHORTEST_CHARS:
            return self._inner.encode(text)
        known = self._ids.get(text)
        if known is not None:
            self._ids.move_to_end(text)
            return known
        ids = self._inner.encode(text)
        if len(ids) <= self._capacity_tokens:
            self._ids[text] = ids
            self.tokens += len(ids)
            while self.tokens > self._capacity_tokens:
                _, dropped = self._ids.popitem(last=False)
                self.tokens -= len(dropped)
        return ids

    def knows(self, text: str) -> bool:
        """Whether :meth:`encode` only has to look."""
        return text in self._ids

    def count(self, text: str) -> int:
        return self._inner.count(text)

    def decode(self, ids: Sequence[int]) -> bytes:
        return self._inner.decode(ids)

    def control(self, token: str) -> int:
        return self._inner.control(token)

    def controls(self) -> frozenset[str]:
        return self._inner.controls()


class RememberedPrompts:
    """Token ids of the texts that stateless clients sent lately, for each owner apart: the next one begins as the one before."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.ids_of: PrefixMemo[str, array[int]] = PrefixMemo(
            head=lambda text: text[:_HEAD_CHARS],
            least=_HEAD_CHARS,
            pieces=lambda text: coarse_pieces(text, self._rule),
            make=lambda piece: array("Q", tokenizer.encode(piece)),
            empty=lambda: array("Q"),
            most=_PROMPTS_MOST,
        )

    @functools.cached_property
    def _rule(self) -> CutRule:
        return rule_of_pieces(self._tokenizer)
