"""The last edits of a document as examples: what two of them have in common, where one stands in for all, and where else they apply."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.bursts import Burst
from foretype_context.edits.elsewhere import OtherFile, Site
from foretype_context.edits.offsets import byte_of
from foretype_context.edits.templates import (
    SITES_MAX,
    Reach,
    Region,
    Template,
    generalised,
    lexemes,
    line_edit,
    matches,
    region_of,
)
from foretype_context.syntax.document import Edit
from foretype_context.syntax.languages import language_spec
from foretype_context.text.lexemes import is_word

_EXAMPLES: Final = 32
_WORD_SEEN_MAX: Final = 500
"""Places of a template's word; one that stands oftener is not looked for, for that would take too long between two keys."""
_LINES_AROUND: Final = 3
_ONE_LEXEMES_MIN: Final = 4
_ONE_WORD_CHARS_MIN: Final = 4


class CommonChange(NamedTuple):
    """What two edits have in common.

    Attributes:
        in_text: both stood in comments or strings.
        wide: it reaches over the end of a line.
        between: characters from one to the other; a place there was passed by.
    """

    template: Template
    in_text: bool
    wide: bool
    between: tuple[int, int]

    @property
    def word(self) -> str:
        """The longest that is always the same, which is the rarest."""
        return max((one for one in self.template.before if one is not None and is_word(one)), key=len, default="")


class _Example(NamedTuple):
    region: Region
    in_text: bool


class Examples:
    """The last edits of one document, as examples of what comes next."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._examples = deque[_Example](maxlen=_EXAMPLES)

    def clear(self) -> None:
        self._examples.clear()

    def shift(self, edit: Edit) -> None:
        """An edit of the text moves what stands behind it."""
        for index, one in enumerate(self._examples):
            if edit.end <= one.region.at and edit.start < one.region.at:
                self._examples[index] = one._replace(region=one.region._replace(at=one.region.at + edit.growth))

    def learn(self, burst: Burst, root: Node | None) -> None:
        """A burst is over. `root`: of the text after it."""
        example = self._example(burst, root, burst.after)
        if example is not None:
            if self._goes_on(example):
                self._examples.pop()
            self._examples.append(example)

    def template(self, burst: Burst | None, root: Node, text: str) -> CommonChange | None:
        """What the last edit and the nearest one before it that is like it have in common.

        None where another edit says otherwise of the same text.

        Args:
            burst: the one that may still grow.
            root: of `text`, as it is now.
        """
        examples = list(self._examples)
        if burst is not None and (own := self._example(burst, root, text)) is not None:
            examples = [*(examples[:-1] if self._goes_on(own) else examples), own]
        if len(examples) < 2:
            return None
        last = examples[-1]
        for other in examples[-2::-1]:
            for reach in Reach:
                a, b = line_edit(last.region, reach), line_edit(other.region, reach)
                template = None if a is None or b is None else generalised(a, b)
                if template is not None:
                    in_text = last.in_text and other.in_text
                    between = sorted((last.region.at, other.region.at))
                    holds = all(_says_so(template, one.region) for one in examples)
                    return (
                        CommonChange(template, in_text, reach is Reach.BEYOND, (between[0], between[1]))
                        if holds
                        else None
                    )
        return None

    def same(self, burst: Burst | None, root: Node, text: str) -> tuple[Region, Burst, bool] | None:
        """The open edit, if it says enough to stand for every place that is the same; and whether it stands in text."""
        own = None if burst is None else self._example(burst, root, text)
        if burst is None or own is None or self._goes_on(own):
            return None
        said = [one.strip() for one in lexemes(own.region.old)]
        words = [one for one in said if is_word(one) and len(one) >= _ONE_WORD_CHARS_MIN]
        return (own.region, burst, own.in_text) if len(said) >= _ONE_LEXEMES_MIN and words else None

    def _goes_on(self, example: _Example) -> bool:
        """Whether the last example is the first half of this one, which :meth:`_example` has joined with it."""
        return bool(self._examples) and self._examples[-1].region[:2] == example.region[:2]

    def _example(self, burst: Burst, root: Node | None, text: str) -> _Example | None:
        region = region_of(burst)
        if region is None:
            return None
        last = self._examples[-1].region if self._examples else None
        if last is not None and last.at == region.at and last.new == region.old:
            region = region._replace(old=last.old)
        start, length = burst.edit.start, len(burst.edit.text)
        at = start if length else max(start - 1, 0)  # at the end of a comment there is only what stands before
        return _Example(region, root is not None and _in_text(root, text, at, self._language))


def places_alike(alike: CommonChange, language: str, root: Node, text: str) -> list[Site]:
    """The places of a template in a text, in order; empty if it fits too many."""
    places = [edit for edit in _places(alike, text) if alike.in_text == _in_text(root, text, edit.start, language)]
    return [Site(edit) for edit in places] if len(places) <= SITES_MAX else []


def alike_elsewhere(alike: CommonChange, language: str, file: OtherFile) -> list[Site]:
    """The places of a template in another file."""
    return places_alike(alike, language, file.root, file.text) if file.language == language else []


def same_elsewhere(region: Region, burst: Burst, in_text: bool, language: str, root: Node, text: str) -> list[Site]:
    """Where the very lines of an edit stand once more, between the same lines, in the same kind of node.

    The line alone is no evidence: of 96 that were offered on commits and a recorded session 3 were wanted.
    """
    old, offset = region.old.strip(), len(region.old) - len(region.old.lstrip())
    start, end = burst.edit.start - region.at - offset, burst.edit.end - region.at - offset
    if start < 0 or end > len(old) or (region.old != region.old.rstrip() and end > len(old)):
        return []
    kind = _holder(root, text, region.at + offset, region.at + len(region.new.rstrip()))
    around = _around(burst.before, region.at, region.at + len(region.old))
    if "" in around:
        return []
    sites: list[Site] = []
    for match in itertools.islice(re.finditer(re.escape(old), text), _WORD_SEEN_MAX):
        at = match.start()
        first, last = text.rfind("\n", 0, at) + 1, text.find("\n", match.end())
        last = len(text) if last < 0 else last
        if (
            text[first:at].strip()
            or text[match.end() : last].strip()
            or ("\n" in old and text[first:at] != region.old[:offset])
        ):
            continue
        if _around(text, first, last) != around:
            continue
        if _holder(root, text, at, match.end()) == kind and in_text == _in_text(root, text, at + start, language):
            sites.append(Site(Edit(at + start, at + end, burst.edit.text)))
    return sites if len(sites) <= SITES_MAX else []


def _around(text: str, start: int, end: int) -> tuple[str, str]:
    """The line above and the one below, without their blanks."""
    above = text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : max(start - 1, 0)]
    below = text.find("\n", end + 1)
    return above.strip(), text[end + 1 : len(text) if below < 0 else below].strip()


def _says_so(template: Template, region: Region) -> bool:
    """Whether an edit did what the template says where it fits the text before, at the first place or more, and nothing besides."""
    after = [one.strip() for one in lexemes(region.new)]
    found = list(matches(template, region.old))
    for count in range(1, len(found) + 1):
        said = region.old
        for edit in reversed(found[:count]):
            said = said[: edit.start] + edit.text + said[edit.end :]
        if [one.strip() for one in lexemes(said)] == after:
            return True
    return not found


def _places(alike: CommonChange, text: str) -> Iterator[Edit]:
    """Around the template's longest word, each once."""
    word = alike.word
    seen: set[Edit] = set()
    lines = (
        _LINES_AROUND
        if alike.wide
        else max(0, sum("\n" in one for one in alike.template.after if isinstance(one, str)))
    )
    at = text.find(word)
    for _ in range(_WORD_SEEN_MAX):
        if at < 0 or not word:
            return
        first, last = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        for _ in range(lines):
            first = text.rfind("\n", 0, max(first - 1, 0)) + 1
            last = text.find("\n", last + 1) if last >= 0 else last
        last = len(text) if last < 0 else last
        for edit in matches(alike.template, text[first:last]):
            found = Edit(first + edit.start, first + edit.end, edit.text)
            if found not in seen:
                seen.add(found)
                yield found
        at = text.find(word, at + len(word) if lines else last)
    if at >= 0:  # nobody looked at the rest
        yield from itertools.repeat(Edit(0, 0, " "), SITES_MAX + 1)


def _holder(root: Node, text: str, start: int, end: int) -> str:
    """The kind of node that what stands there is part of."""
    first, last = byte_of(text, start), byte_of(text, end)
    node = root.descendant_for_byte_range(first, last)
    while node is not None and node.parent is not None and node.start_byte >= first and node.end_byte <= last:
        node = node.parent
    return "" if node is None else node.type


def _in_text(root: Node, text: str, at: int, language: str) -> bool:
    spec = language_spec(language)
    byte = byte_of(text, at)
    node = root.descendant_for_byte_range(byte, byte)
    while node is not None:
        if node.type in spec.comments or node.type in spec.strings:
            return True
        node = node.parent
    return False
