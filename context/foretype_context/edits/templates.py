"""Two or more edits that are alike: what they have in common, and where else it applies. On lexemes of single lines. Pure.

First-order anti-unification (after Gao et al., "Feedback-driven semi-supervised synthesis of program transformations", 2020): where two
examples agree a template says their text, where they differ it has a hole, and what a hole becomes must be known from what was there before.
One example is none: in a recorded session of 114 replacements of a token 12 came again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from foretype_context.edits.bursts import Burst, How
from foretype_context.text.document import Edit
from foretype_context.text.lexemes import is_word, lex

__all__ = ["SITES_MAX", "LineEdit", "Template", "generalised", "line_edit", "matches"]

SITES_MAX: Final = 20
"""A template that fits more places than that says too little."""
_AROUND: Final = 2
"""Lexemes on each side of what changed that belong to the example."""
_LINE_CHARS_MAX: Final = 500
_LEXEMES_MIN: Final = 3
_WORDS_ALONE: Final = 2
"""Words that say enough where nothing beside them stayed."""


class LineEdit(NamedTuple):
    """What changed in one line, with the lexemes around it. Blanks before a lexeme belong to it, as in :func:`lex`.

    Attributes:
        before, after: equal in their first `head` and last `tail` lexemes.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    head: int
    tail: int


class Template(NamedTuple):
    """What several edits have in common.

    Attributes:
        before: lexemes without blanks; None for a hole, which a name or a number fills.
        after: lexemes, or blanks and the index in `before` of the hole whose text stands behind them.
        head, tail: of `before` and `after`, what is context and stays.
    """

    before: tuple[str | None, ...]
    after: tuple[str | tuple[str, int], ...]
    head: int
    tail: int


def line_edit(burst: Burst) -> LineEdit | None:
    """A burst within one line; None for any other, and for one that was not typed or accepted."""
    start, end, text = burst.edit
    if burst.how not in (How.TYPED, How.ACCEPTED) or "\n" in text or "\n" in burst.before[start:end]:
        return None
    first = burst.before.rfind("\n", 0, start) + 1
    last = burst.before.find("\n", end)
    old = burst.before[first : len(burst.before) if last < 0 else last]
    new = old[: start - first] + text + old[end - first :]
    if len(old) > _LINE_CHARS_MAX or len(new) > _LINE_CHARS_MAX:
        return None
    before, after = lex(old.strip()), lex(new.strip())
    head = _common(before, after)
    tail = _common(before[: head - 1 if head else None : -1], after[: head - 1 if head else None : -1])
    cut, rest = max(head - _AROUND, 0), max(tail - _AROUND, 0)
    return LineEdit(
        tuple(before[cut : len(before) - rest]),
        tuple(after[cut : len(after) - rest]),
        head - cut,
        tail - rest,
    )


def generalised(one: LineEdit, other: LineEdit) -> Template | None:
    """What two edits have in common; None where that is nothing certain: other shapes, a text that came from nowhere, a bare word."""
    if (len(one.before), len(one.after), one.head, one.tail) != (
        len(other.before),
        len(other.after),
        other.head,
        other.tail,
    ):
        return None
    before: list[str | None] = []
    holes: dict[tuple[str, str], int] = {}
    for at, (a, b) in enumerate(zip(one.before, other.before, strict=True)):
        same = a.strip() == b.strip()
        if not same and not _alike(a, b):
            return None
        before.append(a.strip() if same else None)
        if not same:
            holes.setdefault((a.strip(), b.strip()), at)
    after: list[str | tuple[str, int]] = []
    for a, b in zip(one.after, other.after, strict=True):
        if a.strip() == b.strip():
            after.append(a)
        elif (hole := holes.get((a.strip(), b.strip()))) is not None:
            after.append((a[: len(a) - len(a.lstrip())], hole))
        else:
            return None  # nobody knows what a third one would be called
    template = Template(tuple(before), tuple(after), one.head, one.tail)
    return template if _says_enough(template) else None


def matches(template: Template, line: str) -> Iterator[Edit]:
    """What the template would change in a line, in characters of the line."""
    lexemes = lex(line)
    starts = [0]
    for lexeme in lexemes:
        starts.append(starts[-1] + len(lexeme))
    size = len(template.before)
    for at in range(len(lexemes) - size + 1):
        window = lexemes[at : at + size]
        if not all(
            _is_hole(lexeme) if wanted is None else lexeme.strip() == wanted
            for lexeme, wanted in zip(window, template.before, strict=True)
        ):
            continue
        said = template.after[template.head : len(template.after) - template.tail]
        text = "".join(one if isinstance(one, str) else one[0] + window[one[1]].strip() for one in said)
        replaced = window[template.head : size - template.tail]
        if replaced:  # blanks before what is replaced stay as they are there
            text = replaced[0][: len(replaced[0]) - len(replaced[0].lstrip())] + text.lstrip()
        edit = Edit(starts[at + template.head], starts[at + size - template.tail], text)
        if line[edit.start : edit.end] != text:
            yield edit


def _is_hole(lexeme: str) -> bool:
    return is_word(lexeme) or lexeme.strip()[:1].isdigit()


def _alike(a: str, b: str) -> bool:
    """Two names, or two numbers."""
    return _is_hole(a) and _is_hole(b) and is_word(a) == is_word(b)


def _says_enough(template: Template) -> bool:
    """A bare word recurs by chance: a word is the same, and something beside what changed, or most of what changed."""
    words = [text for text in template.before if text is not None and is_word(text)]
    context = [*template.before[: template.head], *template.before[len(template.before) - template.tail :]]
    beside = any(text is not None for text in context) or len(words) >= _WORDS_ALONE
    return len(template.before) >= _LEXEMES_MIN and bool(words) and beside


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Lexemes that both begin with. The blanks before the first one of a line are none of it."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
