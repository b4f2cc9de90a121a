"""Keys of the blocks of a prompt, chained, so that a block is only found behind the same beginning."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

BlockKeys = tuple[bytes, ...]
_ID_BYTES: Final = 8


def block_keys(token_ids: Sequence[int], block_tokens: int = 32, *, salt: str = "") -> BlockKeys:
    """Chained keys of the whole blocks of `token_ids`: two prompts share key *i* only if they are equal up to its end.

    Args:
        token_ids: prompt, non-negative ids.
        block_tokens: tokens in a block.
        salt: prompts under different salts share nothing.
    """
    return _chained(blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=16).digest(), token_ids, block_tokens)


def extend_keys(
    known_ids: Sequence[int], known: BlockKeys, token_ids: Sequence[int], block_tokens: int = 32, *, salt: str = ""
) -> BlockKeys:
    """Keys of `token_ids`, equal to :func:`block_keys` of them; hashes from the first block on that differs.

    Args:
        known_ids, known: another prompt under the same salt, and its keys.
    """
    same = min(len(known), len(token_ids) // block_tokens)
    low = 0
    while low < same:  # comparing slices is C; the first difference is found by halving
        middle = (low + same + 1) // 2
        begin, end = low * block_tokens, middle * block_tokens
        if known_ids[begin:end] == token_ids[begin:end]:
            low = middle
        else:
            same = middle - 1
    if not low:
        return block_keys(token_ids, block_tokens, salt=salt)
    return (*known[:low], *_chained(known[low - 1], token_ids[low * block_tokens :], block_tokens))


def keys_after(key: bytes, token_ids: Sequence[int], block_tokens: int) -> BlockKeys:
    """Keys of the whole blocks of `token_ids` that follow the block of `key`."""
    return _chained(key, token_ids, block_tokens)


def _chained(key: bytes, token_ids: Sequence[int], block_tokens: int) -> BlockKeys:
    packed = token_ids if isinstance(token_ids, array) and token_ids.itemsize == _ID_BYTES else array("Q", token_ids)
    data = memoryview(packed).cast("B")
    step = block_tokens * _ID_BYTES
    keys: list[bytes] = []
    for end in range(step, len(data) + 1, step):
        digest = blake2b(key, digest_size=16)
        digest.update(data[end - step : end])
        key = digest.digest()
        keys.append(key)
    return tuple(keys)


def shared_tokens(left: BlockKeys, right: BlockKeys, block_tokens: int = 32) -> int:
    """Tokens of the longest common prefix of two prompts, in whole blocks.

    The keys are chained, so equality at *i* implies equality before it and the length is found by bisection.
    """
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[middle - 1] == right[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low * block_tokens
