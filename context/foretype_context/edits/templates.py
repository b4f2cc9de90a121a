"""Two or more edits that are alike: what they have in common, and where else it applies. On the lexemes of lines. Pure.

First-order anti-unification (after Gao et al., "Feedback-driven semi-supervised synthesis of program transformations", 2020): where two
examples agree a template says their text, where they differ it has a hole, and what a hole becomes must be known from what was there before.
One example is none: in a recorded session of 114 replacements of a token 12 came again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from foretype_context.edits.bursts import Burst, ChangeOrigin
from foretype_context.syntax.document import Edit
from foretype_context.text.lexemes import is_word

SITES_MAX: Final = 20
"""A template that fits more places than that says too little."""
_AROUND: Final = 2
"""Lexemes on each side of what changed that belong to the example."""
_CHARS_MAX: Final = 500
_LINES_MAX: Final = 8
_NEAR_CHARS: Final = 200
_LEXEME: Final = re.compile(r"\s*(?:[^\W\d]\w*|\d\w*|[^\w\s])")
_LEXEMES_MIN: Final = 3
_WORDS_ALONE: Final = 2
"""Words that say enough where nothing beside them stayed."""


class Reach(Enum):
    """How much around a change belongs to it."""

    NEAR = auto()
    LINE = auto()
    BEYOND = auto()
    """The lexemes above and below the lines, where these hold too little."""


class LineEdit(NamedTuple):
    """What changed in lines, with the lexemes around it. Blanks before a lexeme belong to it.

    Attributes:
        before, after: equal in their first `head` and last `tail` lexemes.
        indent: of the line that `after` begins in.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    head: int
    tail: int
    indent: str = ""


class Region(NamedTuple):
    """The lines that an edit changed, from character `at` on.

    Attributes:
        above, below: the lexeme before them and the one behind.
    """

    at: int
    old: str
    new: str
    above: str
    below: str


class Template(NamedTuple):
    """What several edits have in common.

    Attributes:
        before: lexemes without blanks; None for a hole, which a name or a number fills.
        after: lexemes, or blanks and the index in `before` of the hole whose text stands behind them.
        head, tail: of `before` and `after`, what is context and stays.
        indent: of the line that `after` begins in.
    """

    before: tuple[str | None, ...]
    after: tuple[str | tuple[str, int], ...]
    head: int
    tail: int
    indent: str = ""


def lexemes(text: str) -> list[str]:
    """Words, numbers and signs, each with the blanks and line ends before it. What stands behind the last one is left out."""
    return _LEXEME.findall(text)


def region_of(burst: Burst) -> Region | None:
    """The lines of a burst; None for one that was neither typed nor accepted, or is too large to be like another."""
    start, end, text = burst.edit
    if burst.how not in (ChangeOrigin.TYPED, ChangeOrigin.ACCEPTED):
        return None
    first = burst.before.rfind("\n", 0, start) + 1
    last = burst.before.find("\n", end)
    last = len(burst.before) if last < 0 else last
    old = burst.before[first:last]
    new = old[: start - first] + text + old[end - first :]
    if max(len(old), len(new)) > _CHARS_MAX or max(old.count("\n"), new.count("\n")) >= _LINES_MAX:
        return None
    above = lexemes(burst.before[max(first - _NEAR_CHARS, 0) : first])
    below = lexemes(burst.before[last : last + _NEAR_CHARS])
    return Region(first, old, new, "".join(above[-1:]), "".join(below[:1]))


def line_edit(region: Region, reach: Reach = Reach.NEAR) -> LineEdit | None:
    """What changed in a region, with the lexemes around it.

    Args:
        reach: how many.
    """
    old, new = region.old, region.new
    if reach is Reach.BEYOND:
        old, new = (f"{region.above}\n{one}{region.below or chr(10)}" for one in (region.old, region.new))
    before, after = lexemes(old), lexemes(new)
    head = _common(before, after)
    tail = _common(before[: head - 1 if head else None : -1], after[: head - 1 if head else None : -1])
    if not before or [one.strip() for one in before] == [one.strip() for one in after]:
        return None
    around = 2 * _AROUND if reach is Reach.LINE else _AROUND
    cut, rest = max(head - around, 0), max(tail - around, 0)
    return LineEdit(
        tuple(before[cut : len(before) - rest]),
        tuple(after[cut : len(after) - rest]),
        head - cut,
        tail - rest,
        _indent("".join(after[: cut + 1]).rpartition("\n")[2]),
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
            after.append((_blanks(a), hole))
        else:
            return None  # nobody knows what a third one would be called
    template = Template(tuple(before), tuple(after), one.head, one.tail, one.indent)
    again = any(True for _ in matches(template, "".join(one.after)))  # it would never end
    return template if _says_enough(template) and not again else None


def matches(template: Template, text: str) -> Iterator[Edit]:
    """What the template would change in lines of text, in their characters."""
    found = list(_LEXEME.finditer(text))
    window = [one[0].strip() for one in found]
    size = len(template.before)
    for at in range(len(found) - size + 1):
        if not all(
            _is_hole(lexeme) if wanted is None else lexeme == wanted
            for lexeme, wanted in zip(window[at : at + size], template.before, strict=True)
        ):
            continue
        first, last = at + template.head, at + size - template.tail
        start = found[first].start() if first < len(found) else found[first - 1].end()
        indent = _indent(text[text.rfind("\n", 0, found[at].end()) + 1 :])
        parts: list[str] = []
        for one in template.after[template.head : len(template.after) - template.tail]:
            blanks, said = (_blanks(one), one.strip()) if isinstance(one, str) else (one[0], window[at + one[1]])
            if "\n" in blanks:
                line_end, _, own = blanks.rpartition("\n")
                if not own.startswith(template.indent):
                    return
                blanks = f"{line_end}\n{indent}{own[len(template.indent) :]}"
            parts.append(blanks + said)
        said = "".join(parts)
        end = found[last - 1].end() if last > first else start
        if last > first and ("\n" in (own := _blanks(found[first][0])) or "\n" not in _blanks(said)):
            start += len(own)  # blanks before what is replaced stay as they are there
            said = said[len(_blanks(said)) :]
            if not said:  # what is taken away takes its blanks along
                start = found[first].start()
        if text[start:end] != said:
            yield Edit(start, end, said)


def _blanks(lexeme: str) -> str:
    return lexeme[: len(lexeme) - len(lexeme.lstrip())]


def _indent(line: str) -> str:
    return _blanks(line.split("\n", 1)[0])


def _is_hole(lexeme: str) -> bool:
    return is_word(lexeme.strip()) or lexeme.strip()[:1].isdigit()


def _alike(a: str, b: str) -> bool:
    """Two names, or two numbers."""
    return _is_hole(a) and _is_hole(b) and is_word(a.strip()) == is_word(b.strip())


def _says_enough(template: Template) -> bool:
    """A bare word recurs by chance: a word is the same, and something beside what changed, or most of what changed."""
    words = [text for text in template.before if text is not None and is_word(text)]
    context = [*template.before[: template.head], *template.before[len(template.before) - template.tail :]]
    beside = any(text is not None for text in context) or len(words) >= _WORDS_ALONE
    return len(template.before) >= _LEXEMES_MIN and bool(words) and beside


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Lexemes that both begin with. Blanks before them may differ, line ends may not."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x.strip() != y.strip() or ("\n" in x) is not ("\n" in y):
            break
        count += 1
    return count
