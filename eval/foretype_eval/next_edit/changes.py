"""How a text changed, lexeme by lexeme, and whether an edit leads to the wanted text. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from foretype_context.syntax.document import Edit
from foretype_context.text.lexemes import lex
from foretype_context.text.strings import common_prefix
from rapidfuzz.distance import Indel, Levenshtein

_ALIKE: float = 0.4
"""Lines that have less in common were written anew."""
_NEAR_CHARS = 1
"""Two edits with so little between them are one edit to a developer."""
_IMPORTED_NAMES: Final = re.compile(
    r"(?P<before>\bimport[ \t]*(?:type[ \t]*)?[({])(?P<names>(?:[\w\s,]|#[^\n]*)+)(?=[)}])"
    r"|(?P<line>^[ \t]*from[ \t]+[\w.]+[ \t]+import[ \t]+)(?P<in_line>[\w \t,]+)$",
    re.MULTILINE,
)
"""Names between commas, as Python and JavaScript import them; with `as` in between they are left as they are."""
_LINES_BELOW = 3
"""A jump is right if an edit is wanted on the line of its target, or on so many lines below, where a call may go on."""


def edits_between(old: str, new: str) -> list[Edit]:
    """The edits from `old` to `new`, ascending and disjoint, in coordinates of `old`: lines are compared first, then lexemes within lines."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    found: list[Edit] = []
    for start, end, from_, to, at in _blocks(before, after):
        inside = _within("".join(before[start:end]), "".join(after[from_:to]))
        found += [Edit(edit.start + at, edit.end + at, edit.text) for edit in inside]
    return _joined(found, old)


def leads_to(now: str, edit: Edit, wanted: str) -> bool:
    """Whether `edit` is a step on a shortest way, counted in lexemes, from what stands to what was wanted.

    An edit that does a part of what was wanted at a place is such a step; one that does more, or something else, is none. Blanks and the
    order of imports are a formatter's: they count for nothing.
    """
    then = f"{now[: edit.start]}{edit.text}{now[edit.end :]}"
    a, b, c = (_parts_of(text) for text in (now, then, wanted))
    return a != b and _distance(a, b) + _distance(b, c) == _distance(a, c)


def around_place(text: str, at: int) -> tuple[int, int]:
    """The range of the lines in which an edit must be wanted if the jump to `at` was right."""
    start, end = text.rfind("\n", 0, at) + 1, at
    for _ in range(1 + _LINES_BELOW):
        following = text.find("\n", end)
        if following < 0:
            return start, len(text)
        end = following + 1
    return start, end - 1


def line_at(text: str, at: int) -> str:
    """For people: the line that holds `at`, without its blanks."""
    end = text.find("\n", at)
    return text[text.rfind("\n", 0, at) + 1 : len(text) if end < 0 else end].strip()


class _Parts(NamedTuple):
    """A text as the names that it imports, in no order, and the lexemes of everything else."""

    imports: Counter[str]
    signs: list[str]


def _parts_of(text: str) -> _Parts:
    imports = Counter[str]()

    def names(found: re.Match[str]) -> str:
        before, named = found["before"] or found["line"], found["names"] or found["in_line"]
        parts = re.sub(r"#[^\n]*", "", named).split(",")
        imports.update(f"{before} {name}" for part in parts if (name := part.strip()))
        return "\n"

    rest = _IMPORTED_NAMES.sub(names, text)
    return _Parts(imports, [sign for lexeme in lex(rest) if (sign := lexeme.strip())])


def _distance(one: _Parts, other: _Parts) -> int:
    removed, added = one.imports - other.imports, other.imports - one.imports
    return Levenshtein.distance(one.signs, other.signs) + max(removed.total(), added.total())


def _blocks(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int, int, int, int]]:
    """Lines `[start, end)` that became lines `[from, to)`, and the character at which they start."""
    place, seen = 0, 0
    open_: tuple[int, int, int, int] | None = None
    for code in Indel.opcodes(before, after):
        if code.tag == "equal":
            if open_ is not None:
                place += sum(map(len, before[seen : open_[0]]))
                seen = open_[0]
                yield (*open_, place)
            open_ = None
            continue
        start, from_ = (code.src_start, code.dest_start) if open_ is None else (open_[0], open_[2])
        open_ = start, code.src_end, from_, code.dest_end
    if open_ is not None:
        yield (*open_, place + sum(map(len, before[seen : open_[0]])))


def _within(old: str, new: str) -> Iterator[Edit]:
    before, after = lex(old), lex(new)
    if not before or not after or Indel.normalized_similarity(before, after) < _ALIKE:
        yield Edit(0, len(old), new)
        return
    for start, end, from_, to, at in _blocks(before, after):
        removed, added = "".join(before[start:end]), "".join(after[from_:to])
        blanks = common_prefix(
            removed[: len(removed) - len(removed.lstrip())], added[: len(added) - len(added.lstrip())]
        )
        yield Edit(at + blanks, at + len(removed), added[blanks:])


def _joined(edits: Sequence[Edit], old: str) -> list[Edit]:
    found: list[Edit] = []
    for edit in edits:
        if found and edit.start - found[-1].end <= _NEAR_CHARS:
            last = found.pop()
            edit = Edit(last.start, edit.end, f"{last.text}{old[last.end : edit.start]}{edit.text}")
        found.append(edit)
    return [edit for edit in found if old[edit.start : edit.end] != edit.text]
