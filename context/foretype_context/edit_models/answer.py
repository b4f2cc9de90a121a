"""What is taken of a model's answer: one edit of the window, or nothing and why. Pure.

The answer is the window again, or what stands between two of its markers. Its first difference from the window is the edit; what is
not certain to be an answer at all is dropped as a whole: one that was cut, that holds a token of the format, that repeats the end of
the window or what stands around it, or that has nothing in common with it. How the text came in pieces changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import accumulate
from typing import Final, NamedTuple

from foretype_context.edit_models.format import EditFormat
from foretype_context.edit_models.question import EditQuestion, WindowEdit
from foretype_context.edit_models.regions import boundaries, lines_of
from foretype_context.grammars.families import known_controls
from foretype_context.text.strings import common_prefix, common_suffix

_TOKENS: Final = re.compile(r"<\|[a-z0-9_]+\|>|<\[[^\]\s]{2,40}\]>|^(?:<{7}|>{7})|```", re.MULTILINE)
"""What models write that should have ended, or were trained on other formats."""
_BEGUN: Final = ("<|", "<[", "```")
"""How tokens begin; what a language means by it (F#, Elm) is lost with them."""
_SPOKEN: Final = ("Here is", "Here's", "Sure", "Certainly")
_TOKEN_BEGINS: Final = 3
"""Characters of a token at the end of an answer that are no accident."""
_LINES_IN_COMMON: Final = 3
"""A window of so many lines has one in common with its next version."""


class Nothing(StrEnum):
    """Why there is no edit."""

    NOTHING = "nothing"  # the model says that there is none
    CUT = "cut"  # it did not come to its end
    MARKER = "marker"  # it holds a token that is no text
    TAIL = "tail"  # it says the end of the window twice, or what stands below it
    OUTSIDE = "outside"  # it changes what is not in the window
    UNREADABLE = "unreadable"  # it is no answer of this format


class ReadAnswer(NamedTuple):
    """`edit` is of the question's window, within it; None for a reason, which is "" beside an edit."""

    edit: WindowEdit | None
    reason: str


class _Region(NamedTuple):
    """What is answered anew: the window's lines `[start, end)`, with the text that takes their place."""

    start: int
    end: int
    text: str


class AnswerReader:
    """Reads one answer."""

    def __init__(self, format: EditFormat, question: EditQuestion) -> None:
        self._format = format
        self._question = question
        self._text = ""
        self._lines = lines_of(question.window)
        marker = re.escape(format.marker).replace(r"\{n\}", r"(\d{1,4})")
        self._marker = re.compile(marker) if format.marker else None

    def feed(self, text: str) -> bool:
        """Take more text; True where no more is needed."""
        self._text += text
        return self._marker is not None and len(self._marker.findall(self._text)) > 1

    def end(self, *, whole: bool) -> ReadAnswer:
        """What was answered; `whole`: the model ended by itself."""
        region = self._window(whole=whole) if self._marker is None else self._between(self._marker, whole=whole)
        if isinstance(region, Nothing):
            return ReadAnswer(None, region)
        text = self._cleaned(region.text)
        if isinstance(text, Nothing):
            return ReadAnswer(None, text)
        old, new = self._lines, [*self._lines[: region.start], *lines_of(text), *self._lines[region.end :]]
        wrong = self._wrong(old, new)
        if wrong is not None:
            return ReadAnswer(None, wrong)
        edit = _first_edit(self._question.window, old, new)
        return ReadAnswer(edit, "" if edit is not None else Nothing.NOTHING)

    def _window(self, *, whole: bool) -> _Region | Nothing:
        if not whole:
            return Nothing.CUT
        return _Region(0, len(self._lines), self._text)

    def _between(self, marker: re.Pattern[str], *, whole: bool) -> _Region | Nothing:
        found = list(marker.finditer(self._text))
        if len(found) < 2:
            if whole and self._text.strip() in self._format.nothing:
                return Nothing.NOTHING
            return Nothing.UNREADABLE if whole and not found else Nothing.CUT
        first, last = found[:2]
        if self._text[: first.start()].strip():
            return Nothing.UNREADABLE
        begin, end = int(first[1]), int(last[1])
        places = boundaries(self._lines, *self._format.marker_lines)
        if not (1 <= begin <= len(places) and 1 <= end <= len(places)) or begin > end:
            return Nothing.OUTSIDE
        if begin == end:
            return Nothing.NOTHING
        text = self._text[first.end() : last.start()]
        return _Region(places[begin - 1], places[end - 1], re.sub(r"\A\r?\n", "", text))

    def _cleaned(self, text: str) -> str | Nothing:
        """The text without the cursor; or what it is instead of code."""
        one, window = self._format, self._question.window
        if one.cursor and text.count(one.cursor) == 1:
            text = text.replace(one.cursor, "")
        text = text.replace("\r\n", "\n")
        if text.strip() in one.nothing:
            return Nothing.NOTHING
        if any(word in text and word not in window for word in one.nothing):
            return Nothing.MARKER
        begins = [token for token in one.own_words if any(_ends_in(text, token))]
        more = any(text.count(begun) > window.count(begun) for begun in _BEGUN)
        if one.owns(text) or begins or more:
            return Nothing.MARKER
        found = {token[0] for token in _TOKENS.finditer(text)} | {token for token in known_controls() if token in text}
        if any(token not in window for token in found):
            return Nothing.MARKER
        spoken = text.lstrip().startswith(_SPOKEN) and not window.lstrip().startswith(_SPOKEN)
        return Nothing.UNREADABLE if spoken else text

    def _wrong(self, old: Sequence[str], new: Sequence[str]) -> Nothing | None:
        """Why a new version of the window is not taken; None where it may be."""
        if not any(line.strip() for line in new) and sum(bool(line.strip()) for line in old) > 1:
            return Nothing.CUT
        if self._marker is None and _stops_early(old, new):
            return Nothing.CUT
        question = self._question
        if _repeats_end(old, new) or _has_end(old, new, lines_of(question.below)):
            return Nothing.TAIL
        if _has_end(old[::-1], new[::-1], lines_of(question.above)[::-1]):
            return Nothing.OUTSIDE
        said = {line.strip() for line in old} - {""}
        if len(said) >= _LINES_IN_COMMON and said.isdisjoint(line.strip() for line in new):
            return Nothing.UNREADABLE
        return None


def _ends_in(text: str, token: str) -> list[int]:
    """How much of `token` a text ends with, where that is much and not all."""
    end = text.rstrip()
    return [size for size in range(_TOKEN_BEGINS, len(token)) if end.endswith(token[:size])]


def _stops_early(old: Sequence[str], new: Sequence[str]) -> bool:
    """The new lines end in the middle of the old ones, perhaps in the middle of a line."""
    kind, first, last, now, then = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()[-1]
    if kind == "delete":
        return any(line.strip() for line in old[first:last])
    if kind != "replace" or then - now > last - first:
        return False
    was, is_ = old[first + then - now - 1], new[-1]
    return was != is_ and was.startswith(is_)


def _repeats_end(old: Sequence[str], new: Sequence[str]) -> bool:
    """The new lines end in the same lines twice, and the old ones do not: those at the end of the window."""
    for size in range(1, min(len(old), len(new) // 2) + 1):
        end = list(old[-size:])
        twice = list(new[-size:]) == end == list(new[-2 * size : -size]) and any(line.strip() for line in end)
        if twice and list(old[-2 * size : -size]) != end:
            return True
    return False


def _has_end(old: Sequence[str], new: Sequence[str], beside: Sequence[str]) -> bool:
    """The new lines end in what stands behind the window, and the old ones do not."""
    for size in range(1, min(len(beside), len(new)) + 1):
        there = list(beside[:size])
        if list(new[-size:]) == there != list(old[-size:]) and any(line.strip() for line in there):
            return True
    return False


def _first_edit(window: str, old: Sequence[str], new: Sequence[str]) -> WindowEdit | None:
    """The first difference, as short as it can be; None where there is none, or only empty lines behind the last."""
    changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    first = next((one for one in changes if one[0] != "equal"), None)
    if first is None:
        return None
    kind, i1, i2, j1, j2 = first
    if kind == "insert" and i1 == len(old) and not any(line.strip() for line in new[j1:j2]):
        return None
    ending = "\r\n" if "\r\n" in window else "\n"
    kept = re.split(r"(?<=\n)", window)
    starts = [0, *accumulate(map(len, kept))]
    start, end = starts[min(i1, len(kept))], starts[min(i2, len(kept))]
    text = "".join(line + ending for line in new[j1:j2])
    if text and i2 >= len(old) and not window.endswith("\n"):
        if i1 == len(old):  # behind a last line that has no ending
            text = ending + text
        text = text.removesuffix(ending)
    return _shortened(window, WindowEdit(start=start, end=end, text=text))


def _shortened(window: str, edit: WindowEdit) -> WindowEdit | None:
    """Without what it leaves as it is; the two characters of a line ending stay together."""
    was = window[edit.start : edit.end]
    head = common_prefix(was, edit.text)
    if was[:head].endswith("\r"):
        head -= 1
    tail = common_suffix(was, edit.text, min(len(was), len(edit.text)) - head)
    if was[len(was) - tail :].startswith("\n") and "\r" in (was[-tail - 1 : -tail], edit.text[-tail - 1 : -tail]):
        tail -= 1
    if head == len(was) == len(edit.text):
        return None
    return WindowEdit(start=edit.start + head, end=edit.end - tail, text=edit.text[head : len(edit.text) - tail])
