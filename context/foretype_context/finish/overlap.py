"""Takes from a generated text what repeats the cursor's line or the lines below it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from foretype_context.finish.in_place import mends_line
from foretype_context.finish.surroundings import Surroundings
from foretype_context.prompt.windows import View
from foretype_context.syntax.blocks import CLOSERS_ONLY

_MIN_WORD_CHARS: Final = 3
_LAST_WORD: Final = re.compile(r"\w+\Z")
_FIRST_WORD: Final = re.compile(r"\w+")
_LETTER: Final = re.compile(r"[^\W\d]")
_IS_LIST: Final = re.compile(r"[\w.\"'-]*\s*[,|&+]")
_ESCAPE: Final = re.compile(r"\\.")
_ACCESSORS: Final = re.compile(r"\s*\{\s*(?:get|set|init|private|internal|protected)\b|\s*=>?\s")
_IS_COMMENT: Final = re.compile(r"[^\S\n]*(?:#|//)")
_SEMICOLONS: Final = frozenset({"c", "cpp", "csharp", "java", "php"})
_PROSE: Final = re.compile(r"\s+[\w \t-]*\w\s*|[^\s(){}\[\];,=]*\w\.[^\s(){}\[\];,=]*\w|::\w+")
"""A rest of a line that is no code in a language whose statements end in a semicolon: words, an address, half a name."""
_NAMES_DO_NOTHING: Final = frozenset({"javascript", "javascriptreact", "typescript", "typescriptreact", "python", "go"})
_SIGN: Final = re.compile(r"#|//|/?\*|--")
_PUNCTUATION: Final = re.compile(r"[.,;:!?][ \t]")
_ELLIPSIS: Final = re.compile(r"[.…]+\s*")
_WORDS: Final = re.compile(r"[ \t]+[\w-]+(?:[=:, \t]+[\w-]+)*\s*")
_NEAR_LINES: Final = 100
_PATH: Final = re.compile(r"[\w$-]+(?:[./][\w$-]+)+")
"""A path, as `os.path` or `a/b`: a line of nothing else has no effect in the languages of `_NAMES_DO_NOTHING`, so it is no code."""
_ARROWS: Final = re.compile(r"[-=]>|<[-=]|>=")
_THIRD_PART: Final = re.compile(r"\.\d+")
_VERSION: Final = re.compile(r"(?<![\d.])\d+\.\d+\.\d+$")
_PAIRS: Final = ("()", "[]", "{}")
_BRACKETS: Final = frozenset("".join(_PAIRS))
_OPENER_OF: Final = MappingProxyType({closer: opener for opener, closer in _PAIRS})
_OPENERS: Final = frozenset(_OPENER_OF.values())
_PROSE_CHARS: Final = 300


def is_telling(line: str) -> bool:
    """Whether a line is long enough that its repetition is no accident; `}`, `pass` and `else:` are too short."""
    return sum(character.isalnum() for character in line) > 4


def without_beginning(text: str, typed: str, around: Surroundings) -> str:
    """`text` without its beginning, where that repeats the whole line left of the cursor, or the word at the cursor."""
    line = typed.strip()
    first = text.partition("\n")[0]
    tells = _LETTER.search(_ESCAPE.sub("", line)) and not _IS_LIST.fullmatch(line)
    if tells and first.lstrip().startswith(line) and not _is_named_as_its_type(typed, first):
        behind = text.lstrip()[len(line) :]
        rest = behind.lstrip(" \t") if typed[-1:].isspace() else behind
        is_word = re.match(r"\w\w", line[-1] + behind[:1])  # the text goes on with a longer word
        # Calls may nest, as in `f(f(x))`: then the rest alone closes one bracket too many, which is a fault.
        # If only a comment follows, the line is not repeated.
        says_more = rest.partition("\n")[0].strip() and not _IS_COMMENT.match(rest)
        if not is_word and says_more and around.faults(rest) <= around.faults(text):
            return rest
    word = _LAST_WORD.search(typed)
    if word is not None and len(word[0]) >= _MIN_WORD_CHARS:
        again = _FIRST_WORD.match(text)
        if again is not None and again[0].startswith(word[0]):
            return text[len(word[0]) :]
    return text


def _is_named_as_its_type(typed: str, first: str) -> bool:
    """Whether a declaration's name equals its type, so that the second word is no repetition: `Color Color { get; }`, `buf_t buf_t;`."""
    word, blank, rest = typed.strip(), typed[-1:].isspace(), first.lstrip()
    if not word.isidentifier() or blank is first[:1].isspace():
        return False
    behind = rest[len(word) :]
    return behind[:1] in (";", ",") or (word[0].isupper() and _ACCESSORS.match(behind) is not None)


def fitted_to_tail(shown: str, view: View, around: Surroundings) -> tuple[str, int]:
    """The text without what the rest of the line already has, and how many characters of that rest the text replaces."""
    tail = view.tail.rstrip()
    inner = tail.strip()
    faults = around.faults(shown)
    before_comment = around.before_comment(shown)
    if before_comment is not None and _comment_has_rest(view, shown, shown[len(before_comment) :].strip()):
        return shown[: -len(inner)], 0
    if before_comment is not None:
        # Behind the text the rest of the line would be part of a comment: it is one anyway, or the text has all of it,
        # or the text has to end before its comment.
        if _closes_comment(inner, shown[len(before_comment) :]) or _is_in_comment(view, shown, before_comment, around):
            return shown, 0
        closers = sum(character in ")]}" for character in inner)
        if _in_order(inner, before_comment) and around.closes(before_comment) >= closers:
            return shown, len(tail)
        return fitted_to_tail(before_comment, view, around)
    splits_word = re.match(r"\w\w", shown[-len(inner) - 1 :])  # `with_response` does not end in `response`
    ends_string = shown.endswith(inner) and around.leaves_string(shown, tail)
    if ends_string and not around.leaves_string(shown[: -len(inner)], tail):
        return shown[: -len(inner)], 0  # the quote there would begin a string that nothing ends
    if (
        shown.endswith(inner)
        and shown != inner
        and not splits_word
        and not _is_version(shown + tail, inner, view, around)
    ):
        trimmed = shown[: -len(inner)]
        left = around.faults(trimmed)
        closes = bool(CLOSERS_ONLY.match(tail)) and bool(_BRACKETS & set(inner))
        ends = ",:>" if view.snapshot.language == "shellscript" else ";,:>"  # `;;` ends an arm there
        is_apart = tail[0].isspace() and (inner.isalnum() or inner in "=+?<%#\\" or inner == "|")  # ` 1`, ` \\`
        again = not closes and (len(inner) > 1 or inner in ends or (is_apart and shown.endswith(tail)))
        if left < faults or (left == faults and (again or _is_doubled(inner, trimmed, view, around))):
            return trimmed, 0
    # `f(|)` and `x) + g(y)`: the text closes what the tail closes, then goes on, so it takes the tail's place.
    if shown != inner and _in_order(inner, shown) and around.faults(shown, len(tail)) < faults:
        return shown, len(tail)
    word, again = _FIRST_WORD.match(tail), _LAST_WORD.search(shown)
    if word and again and word[0] == again[0] and (len(word[0]) >= _MIN_WORD_CHARS or word[0] == inner):
        return shown[: -len(word[0])], 0
    return shown, 0


def _comment_has_rest(view: View, shown: str, comment: str) -> bool:
    """Whether a comment in the text ends with the rest of the line: with all of it, or with a sign that nobody writes twice."""
    tail = view.tail.rstrip()
    inner = tail.strip()
    if not shown.endswith(inner) or len(shown) == len(inner):
        return False
    body = comment.lstrip("/#*! \t")
    if body == inner or (len(inner) > 1 and any(map(str.isalnum, inner))):
        return True
    if inner in (".", ":", ",", ";", "!"):
        return not shown.endswith("." + inner)
    if tail[0].isspace() and shown.endswith(tail):
        return True
    if set(inner) <= {">"}:
        return _ARROWS.sub("", comment).count("<") < _ARROWS.sub("", comment).count(">") + len(inner)
    closers = set(inner) & set(_OPENER_OF)
    return bool(closers) and all(comment.count(_OPENER_OF[one]) < (comment + inner).count(one) for one in closers)


def _is_version(line: str, inner: str, view: View, around: Surroundings) -> bool:
    """Whether text and rest of the line together are a version of three parts (`2.0` before `.0`), or a ruler of one character."""
    if len(inner) > _MIN_WORD_CHARS and len(set(line.replace(" ", ""))) == 1:
        return around.is_text(line[: -len(inner)])  # a ruler
    found = _VERSION.search(view.typed + line)
    return bool(_THIRD_PART.fullmatch(inner)) and found is not None and around.is_text(line[: -len(inner)])


def _is_doubled(inner: str, trimmed: str, view: View, around: Surroundings) -> bool:
    """Whether the rest of the line stands twice by mistake: an opener, or a closer of which a comment or string has one too many."""
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
    """How many closers of one kind have no opener in a text, whether they stand in code, strings or comments."""
    depth = least = 0
    for character in text:
        depth += (character == _OPENER_OF[closer]) - (character == closer)
        least = min(least, depth)
    return -least


def _closes_comment(inner: str, comment: str) -> bool:
    """Whether the rest of the line closes brackets that the comment opened."""
    depth = {opener: comment.count(opener) - comment.count(closer) for opener, closer in _PAIRS}
    return bool(inner) and all(
        any(character == closer and depth[opener] > 0 for opener, closer in _PAIRS) for character in inner
    )


def _is_in_comment(view: View, shown: str, before_comment: str, around: Surroundings) -> bool:
    """Whether the rest of the line belongs to a comment: as code it would be a syntax error, or it is words, or begins with blanks."""
    if not (view.typed + before_comment).strip():
        says_nothing = not _FIRST_WORD.search(view.tail) and around.faults(shown) <= around.faults_now
        is_path = view.snapshot.language in _NAMES_DO_NOTHING and _PATH.fullmatch(view.tail)
        if (
            says_nothing
            or is_path
            or view.tail[:1].isspace()
            or shown.startswith("#!")
            or _continues_comment(view, shown)
        ):
            return True
    comment = shown[len(before_comment) :].strip()
    is_begun = comment.endswith(":") or not comment.lstrip("/#*")
    if _ELLIPSIS.fullmatch(view.tail) or (is_begun and _WORDS.fullmatch(view.tail)):
        return True
    if _PUNCTUATION.match(view.tail) and before_comment[-1:] in (",", ";", ":", "{"):
        return True
    if view.snapshot.language in _SEMICOLONS and _PROSE.fullmatch(view.tail):
        return True
    return mends_line(view.snapshot, view.offset, shown)


def _continues_comment(view: View, shown: str) -> bool:
    """Whether the rest of the line goes on a comment: it begins as no code does, the lines above and below are comments, or a line near has both."""
    snapshot, line = view.snapshot, view.line
    sign = _SIGN.match(shown)
    if sign is None:
        return False
    begins = _PUNCTUATION.match(view.tail) or (snapshot.language == "shellscript" and view.tail[0] == "-")
    around = [snapshot.line_text(other).strip() for other in (line - 1, line + 1) if 0 <= other < snapshot.line_count]
    if begins or (len(around) == 2 and all(text.startswith(sign[0]) for text in around)):
        return True
    whole = (shown + view.tail).strip()
    return any(
        snapshot.line_text(other).strip() == whole
        for other in range(max(0, line - _NEAR_LINES), min(line + _NEAR_LINES, snapshot.line_count))
    )


def _in_order(characters: str, text: str) -> bool:
    rest = iter(text)
    return all(character in rest for character in characters if not character.isspace())


def without_lines_below(lines: Sequence[str], below: Sequence[str]) -> list[str]:
    """`lines` up to the place from which on they repeat the lines below the cursor."""
    filled = [at for at, line in enumerate(lines) if at and line.strip()]
    for number, at in enumerate(filled):
        rest = [lines[other].rstrip() for other in filled[number:]]
        count = min(len(rest), len(below))
        if count and rest[:count] == list(below[:count]):
            return list(lines[:at])
    return list(lines)
