"""Prompts as text, for servers that take no token ids: the control tokens of the prompt, and nobody else's.

Such a server reads `<|fim_middle|>` wherever it stands, in a user's file as well (llama.cpp#26273). So the text is made from the ids:
what was a control token is written as one, and what only looks like one gets a space behind its first character.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from foretype_context.tokens.tokenizer import Tokenizer


class TextPrompts:
    """Of one model.

    Args:
        begins: control tokens that the server puts before every text itself: they are left out there.
    """

    def __init__(self, tokenizer: Tokenizer, *, begins: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._shown = {tokenizer.control(token): token for token in tokenizer.controls()}
        longest_first = sorted(self._shown.values(), key=len, reverse=True)
        self._looks_like = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._begins = frozenset(tokenizer.control(token) for token in begins if token in tokenizer.controls())

    def text(self, token_ids: Sequence[int]) -> str:
        """What the server is sent. Text that was cut between two bytes of a character ends in U+FFFD."""
        at, parts, run = 0, list[str](), list[int]()
        while at < len(token_ids) and token_ids[at] in self._begins:
            at += 1
        for token_id in token_ids[at:]:
            shown = self._shown.get(token_id)
            if shown is None:
                run.append(token_id)
                continue
            parts += (self._harmless(run), shown)
            run.clear()
        return "".join((*parts, self._harmless(run)))

    def _harmless(self, ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(ids).decode("utf-8", "replace")
        return self._looks_like.sub(lambda found: f"{found[0][:1]} {found[0][1:]}", text)
