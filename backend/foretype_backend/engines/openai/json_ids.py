"""Token ids as JSON, which takes a tenth of a request's time where all of it is written anew."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from foretype_backend.prefix_memo import PrefixMemo

_BLOCK: Final = 64
"""Tokens whose JSON is written together."""
_MOST: Final = 45 << 20
"""Bytes of a generation: some 2,100 prompts of 1,500 tokens."""


class JsonIds:
    """Of one engine, for each salt apart."""

    def __init__(self) -> None:
        self._memo: PrefixMemo[array[int], bytearray] = PrefixMemo(
            head=lambda ids: ids[:_BLOCK].tobytes(),
            least=_BLOCK,
            pieces=lambda ids: [ids[at : at + _BLOCK] for at in range(0, len(ids), _BLOCK)],
            make=lambda block: msgspec.json.encode(block.tolist())[1:-1] + b",",
            empty=bytearray,
            most=_MOST,
        )

    def __call__(self, ids: Sequence[int], salt: str | None) -> msgspec.Raw:
        """The list of them."""
        if not isinstance(ids, array):
            return msgspec.Raw(msgspec.json.encode(ids))
        return msgspec.Raw(b"[%b]" % self._memo(salt, ids)[:-1])
