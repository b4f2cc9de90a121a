"""The next edit of one document: evidence from its bursts, the places where it applies, one of them at a time. Pure, with injected time.

Evidence in this order: a declaration that was renamed (one example suffices), then two edits that are alike. Silent while somebody types,
after an undo, where a file does not parse better for it, in comments and strings unless an example was, and where it was refused before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.bursts import Burst, Bursts, How
from foretype_context.edits.renames import Rename, is_free, rename_in, sites_of
from foretype_context.edits.templates import SITES_MAX, LineEdit, Template, generalised, line_edit, matches
from foretype_context.syntax.languages import LANGUAGES
from foretype_context.text.document import Edit

__all__ = ["SETTLED_S", "Evidence", "NextEdit", "NextEdits"]

SETTLED_S: Final = 0.4
"""Since the last key: a name that is being typed is no name yet."""
_EXAMPLES: Final = 8
_REFUSED: Final = 256


class Evidence(StrEnum):
    """What a next edit rests on."""

    RENAME = "rename"
    LIKE_EDITS = "like_edits"


class NextEdit(NamedTuple):
    """`edit` of the text that was asked about, and how many places are left with it."""

    edit: Edit
    evidence: Evidence
    left: int


class _Example(NamedTuple):
    edit: LineEdit
    in_text: bool
    """In a comment or a string."""


class NextEdits:
    """Of one document.

    Args:
        language: LSP language id; one without syntax gets nothing.
    """

    def __init__(self, language: str, text: str) -> None:
        self._language = language
        self._bursts = Bursts(text)
        self._rename: Rename | None = None
        self._free: tuple[str, str] | None = None  # old and new name of a rename that hides nothing
        self._examples = deque[_Example](maxlen=_EXAMPLES)
        self._refused = deque[tuple[str, str]](maxlen=_REFUSED)
        self._last_s = float("-inf")

    def changed(
        self, edits: Sequence[Edit], after: str, now_s: float, *, root: Node | None, accepted: bool = False
    ) -> None:
        """The text became `after`.

        Args:
            root: of the text before, to know whether an example stood in a comment; None where there is none.
            accepted: it is a suggestion that was taken, a next edit among them.
        """
        ended = self._bursts.changed(edits, after, now_s, accepted=accepted)
        self._last_s = now_s
        if ended is not None:
            self._learn(ended, root)
        self._rename = _shifted(self._rename, edits)
        if self._bursts.undone:  # nothing that led here is wanted again
            self._rename = None
            self._examples.clear()

    def refused(self, text: str, edit: Edit) -> None:
        """The developer did not want this: not here again, nor where the same line stands."""
        self._refused.append(_named(text, edit))

    def next(
        self, text: str, root: Node, source: bytes, cursor: int, now_s: float, parses: Callable[[Edit], bool]
    ) -> NextEdit | None:
        """What is likely wanted next, the nearest place below the cursor first, then above.

        Args:
            root, source: of `text`, as it is now.
            parses: whether the text has no more errors with this edit than without.
        """
        if now_s - self._last_s < SETTLED_S:
            return None
        burst = self._bursts.open
        rename = self._rename
        if burst is not None and burst.how is How.TYPED:
            rename = rename_in(burst) or rename
        for evidence, found in (
            (Evidence.RENAME, self._renamed(rename, root, source, text)),
            (Evidence.LIKE_EDITS, self._alike(burst, root, text)),
        ):
            sites = [edit for edit in found if _named(text, edit) not in self._refused and parses(edit)]
            if sites:
                self._rename = rename if evidence is Evidence.RENAME else self._rename
                below = [edit for edit in sites if edit.start >= cursor]
                return NextEdit(below[0] if below else sites[-1], evidence, len(sites) - 1)
        return None

    def _renamed(self, rename: Rename | None, root: Node, source: bytes, text: str) -> list[Edit]:
        if rename is None or text[rename.at : rename.at + len(rename.new)] != rename.new:
            return []
        if self._free != rename[:2]:  # asked once: what was renamed since then has the new name too
            if not is_free(rename, root, source, text, self._language):
                return []
            self._free = rename[:2]
        return sites_of(rename, root, source, text, self._language)

    def _alike(self, burst: Burst | None, root: Node, text: str) -> list[Edit]:
        """Places of the template of the last edit and the nearest one before it that is like it."""
        examples = list(self._examples)
        if burst is not None and (own := self._example(burst, None)) is not None:
            start = burst.edit.start + len(burst.edit.text)
            examples.append(own._replace(in_text=_in_text(root, text, start, self._language)))
        if len(examples) < 2:
            return []
        last = examples.pop()
        while examples:
            other = examples.pop()
            template = generalised(last.edit, other.edit)
            if template is not None:
                wanted = last.in_text or other.in_text
                found = [
                    edit
                    for edit in _places(template, text)
                    if wanted or not _in_text(root, text, edit.start, self._language)
                ]
                return found if len(found) <= SITES_MAX else []
        return []

    def _learn(self, burst: Burst, root: Node | None) -> None:
        renamed = rename_in(burst)
        if renamed is not None:
            self._rename = renamed
        example = self._example(burst, root)
        if example is not None:
            self._examples.append(example)

    def _example(self, burst: Burst, root: Node | None) -> _Example | None:
        edit = line_edit(burst)
        if edit is None or not edit.before:
            return None
        inside = root is not None and _in_text(root, burst.after, burst.edit.start, self._language)
        return _Example(edit, inside)


def _shifted(rename: Rename | None, edits: Sequence[Edit]) -> Rename | None:
    """Where the renamed declaration stands after edits; None where one of them touched it."""
    for start, end, text in edits:
        if rename is None or (start < rename.at + len(rename.new) and end > rename.at):
            return None
        if end <= rename.at:
            rename = rename._replace(at=rename.at + len(text) - (end - start))
    return rename


def _places(template: Template, text: str) -> Iterator[Edit]:
    """In lines that hold the template's longest word."""
    word = max((one for one in template.before if one is not None), key=len, default="")
    at = text.find(word)
    while word and at >= 0:
        first = text.rfind("\n", 0, at) + 1
        last = text.find("\n", at)
        last = len(text) if last < 0 else last
        for edit in matches(template, text[first:last]):
            yield Edit(first + edit.start, first + edit.end, edit.text)
        at = text.find(word, last)


def _in_text(root: Node, text: str, at: int, language: str) -> bool:
    spec = LANGUAGES.get(language)
    byte = len(text[:at].encode("utf-8", "surrogatepass"))
    node = root.descendant_for_byte_range(byte, byte)
    while spec is not None and node is not None:
        if node.type in spec.comments or node.type in spec.strings:
            return True
        node = node.parent
    return False


def _named(text: str, edit: Edit) -> tuple[str, str]:
    """A place as it is remembered when everything around it moves: its line, and what it would say."""
    first = text.rfind("\n", 0, edit.start) + 1
    last = text.find("\n", edit.end)
    return text[first : len(text) if last < 0 else last].strip(), edit.text
