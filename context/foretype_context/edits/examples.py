"""The last edits of a document as examples: what two of them have in common, and where else it applies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.bursts import Burst
from foretype_context.edits.elsewhere import OtherFile, Site
from foretype_context.edits.templates import SITES_MAX, LineEdit, Template, generalised, line_edit, matches
from foretype_context.syntax.languages import language_spec
from foretype_context.text.document import Edit
from foretype_context.text.lexemes import is_word

__all__ = ["Alike", "Examples", "alike_elsewhere"]

_EXAMPLES: Final = 8


class Alike(NamedTuple):
    """What two edits have in common.

    Attributes:
        in_text: one of them stood in a comment or a string.
    """

    template: Template
    in_text: bool

    @property
    def word(self) -> str:
        """The longest that is always the same, which is the rarest."""
        return max((one for one in self.template.before if one is not None and is_word(one)), key=len, default="")


class _Example(NamedTuple):
    edit: LineEdit
    in_text: bool


class Examples:
    """Of one document."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._examples = deque[_Example](maxlen=_EXAMPLES)

    def clear(self) -> None:
        self._examples.clear()

    def learn(self, burst: Burst, root: Node | None) -> None:
        """A burst is over. `root`: of the text after it."""
        example = self._example(burst, root, burst.after)
        if example is not None:
            self._examples.append(example)

    def template(self, burst: Burst | None, root: Node, text: str) -> Alike | None:
        """What the last edit and the nearest one before it that is like it have in common.

        Args:
            burst: the one that may still grow.
            root: of `text`, as it is now.
        """
        examples = list(self._examples)
        if burst is not None and (own := self._example(burst, root, text)) is not None:
            examples.append(own)
        if len(examples) < 2:
            return None
        last = examples.pop()
        while examples:
            other = examples.pop()
            template = generalised(last.edit, other.edit)
            if template is not None:
                return Alike(template, last.in_text or other.in_text)
        return None

    def _example(self, burst: Burst, root: Node | None, text: str) -> _Example | None:
        edit = line_edit(burst)
        if edit is None or not edit.before:
            return None
        start, length = burst.edit.start, len(burst.edit.text)
        at = start if length else max(start - 1, 0)  # at the end of a comment there is only what stands before
        return _Example(edit, root is not None and _in_text(root, text, at, self._language))


def sites_alike(alike: Alike, language: str, root: Node, text: str) -> list[Site]:
    """The places of a template in a text, in order; nothing where it fits too many."""
    places = [edit for edit in _places(alike, text) if alike.in_text or not _in_text(root, text, edit.start, language)]
    return [Site(edit) for edit in places] if len(places) <= SITES_MAX else []


def alike_elsewhere(alike: Alike, language: str, file: OtherFile) -> list[Site]:
    """The places of a template in another file."""
    return sites_alike(alike, language, file.root, file.text) if file.language == language else []


def _places(alike: Alike, text: str) -> Iterator[Edit]:
    """In lines that hold the template's longest word."""
    word = alike.word
    at = text.find(word)
    while word and at >= 0:
        first = text.rfind("\n", 0, at) + 1
        last = text.find("\n", at)
        last = len(text) if last < 0 else last
        for edit in matches(alike.template, text[first:last]):
            yield Edit(first + edit.start, first + edit.end, edit.text)
        at = text.find(word, last)


def _in_text(root: Node, text: str, at: int, language: str) -> bool:
    spec = language_spec(language)
    byte = len(text[:at].encode("utf-8", "surrogatepass"))
    node = root.descendant_for_byte_range(byte, byte)
    while node is not None:
        if node.type in spec.comments or node.type in spec.strings:
            return True
        node = node.parent
    return False
