"""What the models are asked, word for word. The system text never changes, so that it is a cached prefix for everybody."""

from __future__ import annotations

from typing import Final

CODE_CHARS_MAX: Final = 16_000
"""Of what is asked about: with the answer, what fits into a pool of 8,000 tokens."""

Messages = list[dict[str, str]]


class Prompt:
    """Messages of one template.

    Args:
        template: its name, for the gateway's hit rates.
        max_tokens: of the answer.
    """

    def __init__(self, template: str, system: str, *, max_tokens: int) -> None:
        self.template = template
        self.max_tokens = max_tokens
        self._system = system

    def messages(self, path: str, language: str, code: str) -> Messages:
        fence = "```" if "```" not in code else "~~~~"
        asked = f"File: {path}\nLanguage: {language}\n\n{fence}{language}\n{code}\n{fence}"
        return [{"role": "system", "content": self._system}, {"role": "user", "content": asked}]


EXPLAIN: Final = Prompt(
    "explain",
    "You explain source code to an experienced developer. Say first, in one sentence, what the code is for. Then name what "
    "is not obvious from reading it: assumptions, side effects, edge cases, costs. Be brief. Do not repeat the code.",
    max_tokens=700,
)
DOCUMENT: Final = Prompt(
    "document",
    "You write the documentation comment of one function or class. Answer with its text alone: no code, no comment marks, no "
    "quotes, no headings. The first line is one sentence that ends with a full stop. After a blank line, say only what the "
    "signature does not: units, errors, side effects. Lines have at most 90 characters.",
    max_tokens=400,
)
