"""vLLM's own word on what a replica has cached, in terms of our block keys. Pure: frames in, keys out.

vLLM names blocks by hashes of its own, which nobody needs to compute: an event carries the token ids of the blocks and the hash
of the one before them, so our chained keys follow from the events alone, and the hash is remembered only to know what a
removal removes. Events carry source code (as token ids) and the salt in clear: they are read on the engine's own host alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from foretype_backend.errors import CacheEventsError
from foretype_backend.prefix.block_keys import BlockKeys, block_keys, keys_after

_DEVICE: Final = frozenset({None, "GPU", "gpu"})
"""Blocks on the host or in a store are no reason to route there: loading them costs too."""


_TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class _Event(msgspec.Struct):
    """As much of one event as is used here (vLLM, `distributed/kv_events.py`)."""

    type: str
    block_hashes: list[int | bytes] = []
    parent_block_hash: int | bytes | None = None
    token_ids: list[_TokenId] = []
    block_size: int = 0
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None


class CacheChange(NamedTuple):
    """What a batch changes. `cleared`: everything known before is void, because the cache was reset or a batch was lost."""

    stored: BlockKeys = ()
    removed: BlockKeys = ()
    cleared: bool = False


class EventBook:
    """Batches of one replica, in the order in which they came.

    Args:
        block_tokens: of the replica; blocks of another size belong to other layers and are left out.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._keys: dict[int | bytes, bytes] = {}  # vLLM's hash → our key
        self._next: int | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def read(self, sequence: int, payload: bytes) -> CacheChange:
        """One batch.

        Raises:
            CacheEventsError: not a batch; what was known stays as it was.
        """
        try:
            _, events, *_ = msgspec.msgpack.decode(payload)
            rows = [msgspec.convert(_fields(event), _Event) for event in events]
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise CacheEventsError(f"no batch of cache events: {error}") from error
        cleared = self._next is not None and sequence != self._next
        self._next = sequence + 1
        if cleared:
            self._keys.clear()
        there: dict[bytes, bool] = {}  # after the batch: the last event of a block decides
        for row in rows:
            if row.type == "AllBlocksCleared":
                self._keys.clear()
                there, cleared = {}, True
            elif row.medium not in _DEVICE:
                continue
            elif row.type == "BlockStored":
                there |= dict.fromkeys(self._store(row), True)
            elif row.type == "BlockRemoved":
                there |= {key: False for one in row.block_hashes if (key := self._keys.pop(one, None))}
        stored = tuple(key for key, is_there in there.items() if is_there)
        removed = tuple(key for key, is_there in there.items() if not is_there)
        return CacheChange(stored, removed, cleared)

    def _store(self, row: _Event) -> Sequence[bytes]:
        hashes, size, parent = row.block_hashes, self._block_tokens, row.parent_block_hash
        if row.block_size != size or len(row.token_ids) < len(hashes) * size or row.lora_name:
            return ()
        ids = row.token_ids[: len(hashes) * size]
        if parent is None:
            keys = block_keys(ids, size, salt=_salt(row.extra_keys))
        elif parent in self._keys:
            keys = keys_after(self._keys[parent], ids, size)
        else:
            return ()  # stored before we listened; where it stands in a prompt is not known
        self._keys.update(zip(hashes, keys, strict=True))
        return keys


_STORED: Final = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
)
_REMOVED: Final = ("block_hashes", "medium")


def _fields(event: Any) -> Mapping[str, Any]:
    """An event as a mapping: 0.32 sends maps, versions before sent arrays whose first element is the type."""
    if isinstance(event, Mapping):
        return event  # pyright: ignore[reportUnknownVariableType]
    kind, *values = event
    names = _STORED if kind == "BlockStored" else _REMOVED
    return {"type": kind, **dict(zip(names, values, strict=False))}


def _salt(extra_keys: Sequence[Sequence[Any] | None] | None) -> str:
    """The salt stands in the extra keys of a prompt's first block, alone: we use neither LoRA nor images."""
    first = extra_keys[0] if extra_keys else None
    return str(first[-1]) if first else ""
