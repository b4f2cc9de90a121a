"""Questions about the next edit, as a gateway asks them: a word was renamed once, and its window is to be written again with the rest."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from foretype_context.edit_models.format import edit_format
from foretype_context.edit_models.prompt import EditPrompts
from foretype_context.edit_models.question import EditQuestion, RecentEdit
from foretype_context.tokens.tokenizer import Tokenizer

__all__ = ["EditCase", "edit_cases", "guessed_steps"]

_FORMAT: Final = "sweep-next-edit"
_LINES: Final = 21
_MOST_TOKENS: Final = 2048
_LEAST_USES: Final = 3


class EditCase(NamedTuple):
    """Tokens of the prompt, and of the right answer."""

    prompt: list[int]
    answer: list[int]


def edit_cases(texts: Sequence[str], tokenizer: Tokenizer, rng: random.Random) -> Iterator[EditCase]:
    """One of each text where a word stands often enough."""
    prompts = EditPrompts(tokenizer, edit_format(_FORMAT))
    for text in texts:
        lines = text.splitlines(keepends=True)
        first = rng.randrange(max(1, len(lines) - _LINES))
        before = "".join(lines[first : first + _LINES])
        words = re.findall(r"\b[a-z_]{4,}\b", before)
        often = sorted({word for word in words if words.count(word) >= _LEAST_USES})
        if not often:
            continue
        old = rng.choice(often)
        use, new = re.compile(rf"\b{old}\b"), f"new_{old}"
        window, after = use.sub(new, before, count=1), use.sub(new, before)
        cursor = window.index(new) + len(new)
        line = window.count("\n", 0, cursor)
        done = RecentEdit(path="a.py", old=before.splitlines(True)[line], new=window.splitlines(True)[line])
        asked = EditQuestion(path="a.py", window=window, cursor=cursor, before=before, edits=[done])
        prompt = prompts.encode(asked, most_tokens=_MOST_TOKENS)
        yield EditCase(list(prompt.ids), list(tokenizer.encode(after)))


def guessed_steps(case: EditCase, *, tokens: int, lookup_min: int, lookup_max: int) -> int:
    """Steps to the end of the right answer, where each guesses what followed the same tokens before, as vLLM's `ngram` does.

    The longest run counts, and of several the first.
    """
    known = list(case.prompt)
    left, steps = list(case.answer), 0
    while left:
        guess = _guess(known, tokens, lookup_min, lookup_max)
        right = next((at for at, (ours, theirs) in enumerate(zip(guess, left, strict=False)) if ours != theirs), None)
        met = min(len(guess), len(left)) if right is None else right
        known += left[: met + 1]
        left = left[met + 1 :]
        steps += 1
    return steps


def _guess(known: Sequence[int], tokens: int, lookup_min: int, lookup_max: int) -> Sequence[int]:
    for length in range(lookup_max, lookup_min - 1, -1):
        last = list(known[-length:])
        for at in range(len(known) - length):
            if known[at : at + length] == last:
                return known[at + length : at + length + tokens]
    return ()
