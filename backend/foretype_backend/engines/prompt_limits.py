"""The checks that every engine makes on a prompt before it accepts it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from foretype_backend.errors import PromptRefusedError


def check_prompt(
    token_ids: Sequence[int], max_tokens: int, *, context_limit_tokens: int, vocabulary_tokens: int | None
) -> int:
    """Check a prompt against the model.

    Args:
        vocabulary_tokens: ids at or above it are refused; None where it is not known.

    Returns:
        the tokens that may be generated: `max_tokens`, or less when the context ends before.

    Raises:
        PromptRefusedError: empty, longer than the model's context allows, or with ids outside the vocabulary.
    """
    if not token_ids:
        raise PromptRefusedError("the prompt is empty; at least one token is needed")
    if max_tokens < 1:
        raise PromptRefusedError(
            f"max_tokens is {max_tokens}; at least 1 is needed (use warm() to compute a prefix alone)"
        )
    room = context_limit_tokens - len(token_ids)
    if room < 1:
        raise PromptRefusedError(
            f"the prompt has {len(token_ids)} tokens and the context {context_limit_tokens}; send at most "
            f"{context_limit_tokens - 1}"
        )
    unsigned = isinstance(token_ids, array) and token_ids.typecode == "Q"
    lowest, highest = 0 if unsigned else min(token_ids), 0 if vocabulary_tokens is None else max(token_ids)
    if lowest < 0 or (vocabulary_tokens is not None and highest >= vocabulary_tokens):
        wrong = lowest if lowest < 0 else highest
        raise PromptRefusedError(
            f"token id {wrong} is outside the vocabulary of {vocabulary_tokens} tokens; tokenizer and model do not match"
        )
    return min(max_tokens, room)
