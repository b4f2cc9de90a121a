"""What a generated text repeats of the line that it stands in, or of the lines below."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from foretype_context.finish.in_place import mends_line
from foretype_context.finish.surroundings import Surroundings
from foretype_context.prompt.windows import View
from foretype_context.syntax.blocks import CLOSERS_ONLY

__all__ = ["fitted_to_tail", "is_telling", "without_beginning", "without_lines_below"]

_MIN_WORD_CHARS: Final = 3
_LAST_WORD: Final = re.compile(r"\w+\Z")
_FIRST_WORD: Final = re.compile(r"\w+")
_IS_TELLING: Final = re.compile(r"[^\W\d]")
_IS_LIST: Final = re.compile(r"[\w.\"'-]*\s*[,|&+]")
_IS_COMMENT: Final = re.compile(r"[^\S\n]*(?:#|//)")
_SEMICOLONS: Final = frozenset({"c", "cpp", "csharp", "java", "php"})
_PROSE: Final = re.compile(r"\s+[\w \t-]*\w\s*|[^\s(){}\[\];,=]*\w\.[^\s(){}\[\];,=]*\w|::\w+")
"""The rest of a line that is no code where a statement ends in a sign: words, an address, half a name."""
_NAMES_DO_NOTHING: Final = frozenset({"javascript", "javascriptreact", "typescript", "typescriptreact", "python", "go"})
_PATH: Final = re.compile(r"[\w$-]+(?:[./][\w$-]+)+")
"""A line of nothing but it has no effect in these: it is no code."""
_PAIRS: Final = ("()", "[]", "{}")
_BRACKETS: Final = frozenset("".join(_PAIRS))
_OPENER_OF: Final = MappingProxyType({closer: opener for opener, closer in _PAIRS})
_OPENERS: Final = frozenset(_OPENER_OF.values())
_PROSE_CHARS: Final = 300


def is_telling(line: str) -> bool:
    """Whether a line says enough that its repetition is no accident (`}`, `pass`, `else:` are)."""
    return sum(character.isalnum() for character in line) > 4


def without_beginning(text: str, typed: str, around: Surroundings) -> str:
    """`text` without what it says again of the line left of it: all of that line, or the word at the cursor."""
    line = typed.strip()
    first = text.partition("\n")[0]
    if _IS_TELLING.search(line) and not _IS_LIST.fullmatch(line) and first.lstrip().startswith(line):
        said = text.lstrip()[len(line) :]
        rest = said.lstrip(" \t") if typed[-1:].isspace() else said
        # Calls nest: then each has its end.
        is_word = re.match(r"\w\w", line[-1] + said[:1])  # more of one that begins alike
        says_more = rest.partition("\n")[0].strip() and not _IS_COMMENT.match(
            rest
        )  # a comment alone is no reason to say it again
        if not is_word and says_more and around.faults(rest) <= around.faults(text):
            return rest
    word = _LAST_WORD.search(typed)
    if word is not None and len(word[0]) >= _MIN_WORD_CHARS:
        again = _FIRST_WORD.match(text)
        if again is not None and again[0].startswith(word[0]):
            return text[len(word[0]) :]
    return text


def fitted_to_tail(shown: str, view: View, around: Surroundings) -> tuple[str, int]:
    """Trims what the rest of the line has already, or replaces that rest where the text goes on behind it."""
    tail = view.tail.rstrip()
    inner = tail.strip()
    faults = around.faults(shown)
    before_comment = around.before_comment(shown)
    if before_comment is not None and len(inner) > _MIN_WORD_CHARS and shown.endswith(inner):
        return shown[: -len(inner)], 0
    if before_comment is not None:
        # The rest of the line would be comment. That is what it is, or the text has it all, or it ends before.
        if _is_of_comment(inner, shown[len(before_comment) :]) or _is_comments(view, shown, before_comment, around):
            return shown, 0
        closers = sum(character in ")]}" for character in inner)
        if _in_order(inner, before_comment) and around.closes(before_comment) >= closers:
            return shown, len(tail)
        return fitted_to_tail(before_comment, view, around)
    splits_word = re.match(r"\w\w", shown[-len(inner) - 1 :])  # `with_response` does not end in `response`
    if shown.endswith(inner) and shown != inner and not splits_word:
        trimmed = shown[: -len(inner)]
        left = around.faults(trimmed)
        closes = bool(CLOSERS_ONLY.match(tail)) and bool(_BRACKETS & set(inner))
        ends = ",:>" if view.snapshot.language == "shellscript" else ";,:>"  # `;;` ends an arm there
        again = not closes and (len(inner) > 1 or inner in ends or tail == " =")
        if left < faults or (left == faults and (again or _is_said_twice(inner, trimmed, view, around))):
            return trimmed, 0
    # `f(|)` and `x) + g(y)`: the text closes what the tail closes, then goes on, so it takes the tail's place.
    if shown != inner and _in_order(inner, shown) and around.faults(shown, len(tail)) < faults:
        return shown, len(tail)
    word, again = _FIRST_WORD.match(tail), _LAST_WORD.search(shown)
    if word and again and word[0] == again[0] and len(word[0]) >= _MIN_WORD_CHARS:
        return shown[: -len(word[0])], 0
    return shown, 0


def _is_said_twice(inner: str, trimmed: str, view: View, around: Surroundings) -> bool:
    """Whether the rest of the line is no closer that both need: an opener, or what a comment or string has too much of it."""
    if not around.is_text(trimmed):
        return inner[-1] in _OPENERS and around.leaves_open(trimmed) < around.leaves_open(trimmed + inner)
    if inner == ".":
        return not trimmed.endswith(".")
    if inner in _OPENERS:
        return True
    above = view.snapshot.text[max(0, view.line_start - _PROSE_CHARS) : view.line_start]
    line = view.typed + trimmed + inner
    if inner[0] in "`'\"":
        return line.count(inner[0]) % 2 == 0
    return all(
        _surplus(line + inner, closer) > 0 and _surplus(above + line + inner, closer) > 0
        for closer in set(inner) & set(_OPENER_OF)
    ) and bool(set(inner) & set(_OPENER_OF))


def _surplus(text: str, closer: str) -> int:
    """How many closers of one kind have no opener in a text that says nothing of what is code."""
    depth = least = 0
    for character in text:
        depth += (character == _OPENER_OF[closer]) - (character == closer)
        least = min(least, depth)
    return -least


def _is_of_comment(inner: str, comment: str) -> bool:
    """Whether the rest of the line closes brackets that the comment opened."""
    depth = {opener: comment.count(opener) - comment.count(closer) for opener, closer in _PAIRS}
    return bool(inner) and all(
        any(character == closer and depth[opener] > 0 for opener, closer in _PAIRS) for character in inner
    )


def _is_comments(view: View, shown: str, before_comment: str, around: Surroundings) -> bool:
    """Whether the rest of the line is no code: that has an error of syntax, a word, or begins inside of an indentation."""
    if not (view.typed + before_comment).strip():
        says_nothing = not _FIRST_WORD.search(view.tail) and around.faults(shown) <= around.faults_now
        is_path = view.snapshot.language in _NAMES_DO_NOTHING and _PATH.fullmatch(view.tail)
        if says_nothing or is_path or view.tail[:1].isspace() or shown.startswith("#!"):
            return True
    if view.snapshot.language in _SEMICOLONS and _PROSE.fullmatch(view.tail):
        return True
    return mends_line(view.snapshot, view.offset, shown)


def _in_order(characters: str, text: str) -> bool:
    rest = iter(text)
    return all(character in rest for character in characters if not character.isspace())


def without_lines_below(lines: Sequence[str], below: Sequence[str]) -> list[str]:
    """Ends where the rest of the lines is what stands below the cursor already, or begins with it."""
    filled = [at for at, line in enumerate(lines) if at and line.strip()]
    for number, at in enumerate(filled):
        said = [lines[other].rstrip() for other in filled[number:]]
        count = min(len(said), len(below))
        if count and said[:count] == list(below[:count]):
            return list(lines[:at])
    return list(lines)
