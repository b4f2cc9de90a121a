"""The next edit of one document: evidence from its bursts, the places where it applies, one of them at a time. Pure, with injected time.

Evidence in this order: a declaration that was renamed (one example suffices), then two edits that are alike. Silent while somebody types,
after an undo, where a file does not parse better for it, in comments and strings unless an example was, and where it was refused before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.bursts import Burst, Bursts
from foretype_context.edits.elsewhere import Elsewhere, OtherFile, Site
from foretype_context.edits.evidence import Evidence, NextEdit, named
from foretype_context.edits.renames import (
    Rename,
    is_free,
    is_seen_elsewhere,
    rename_in,
    sites_elsewhere,
    sites_of,
)
from foretype_context.edits.templates import SITES_MAX, LineEdit, Template, generalised, line_edit, matches
from foretype_context.syntax.languages import LANGUAGES
from foretype_context.text.document import Edit
from foretype_context.text.lexemes import is_word

__all__ = ["SETTLED_S", "Evidence", "NextEdit", "NextEdits"]

SETTLED_S: Final = 0.4
"""Since the last key: a name that is being typed is no name yet."""
_EXAMPLES: Final = 8
_REFUSED: Final = 256


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
        self._free: Rename | None = None  # one that is known to hide nothing
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
        self._rename, self._free = _shifted(self._rename, edits), _shifted(self._free, edits)
        if self._bursts.undone:  # nothing that led here is wanted again
            self._rename = None
            self._examples.clear()

    def refused(self, text: str, edit: Edit) -> None:
        """The developer did not want this: not here again, nor where the same line stands."""
        self._refused.append(named(text, edit))

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
        rename = self._last_rename(root, source, text)
        for evidence, found in (
            (Evidence.RENAME, sites_of(rename, root, source, text, self._language) if rename else ()),
            (Evidence.LIKE_EDITS, self._alike(root, text)),
        ):
            sites = [edit for edit in found if named(text, edit) not in self._refused and parses(edit)]
            if sites:
                self._rename = rename if evidence is Evidence.RENAME else self._rename
                below = [edit for edit in sites if edit.start >= cursor]
                return NextEdit(below[0] if below else sites[-1], evidence, len(sites) - 1)
        return None

    def elsewhere(self, path: str, text: str, root: Node, source: bytes, now_s: float) -> Elsewhere | None:
        """What the surest evidence says of other files. To be asked when :meth:`next` has nothing more to say of this one.

        Args:
            path: of this document, relative to the repository, with slashes.
            root, source: of `text`, as it is now.
        """
        if now_s - self._last_s < SETTLED_S:
            return None
        rename = self._last_rename(root, source, text)
        if rename is not None and is_seen_elsewhere(rename, root, text, self._language):
            return Elsewhere(Evidence.RENAME, rename.old, partial(sites_elsewhere, rename, path), self._refused)
        found = self._template(root, text)
        if found is not None:
            template, in_text = found
            sites = partial(_alike_elsewhere, template, self._language, in_text)
            return Elsewhere(Evidence.LIKE_EDITS, _word(template), sites, self._refused)
        return None

    def _last_rename(self, root: Node, source: bytes, text: str) -> Rename | None:
        """The rename that is to be followed, if its name is still there and hides nothing."""
        burst = self._bursts.open
        rename = (burst and rename_in(burst)) or self._rename
        if rename is None or text[rename.at : rename.at + len(rename.new)] != rename.new:
            return None
        if self._free != rename:  # asked once: what was renamed since then has the new name too
            if not is_free(rename, root, source, text, self._language):
                return None
            self._free = rename
        return rename

    def _alike(self, root: Node, text: str) -> list[Edit]:
        """Places of the template of the last edit and the nearest one before it that is like it."""
        found = self._template(root, text)
        if found is None:
            return []
        template, in_text = found
        return _sites_alike(template, self._language, root, text, in_text=in_text)

    def _template(self, root: Node, text: str) -> tuple[Template, bool] | None:
        """What the last edit and one before it have in common, and whether it may apply in comments and strings."""
        examples = list(self._examples)
        burst = self._bursts.open
        if burst is not None and (own := self._example(burst, None)) is not None:
            start = burst.edit.start + len(burst.edit.text)
            examples.append(own._replace(in_text=_in_text(root, text, start, self._language)))
        if len(examples) < 2:
            return None
        last = examples.pop()
        while examples:
            other = examples.pop()
            template = generalised(last.edit, other.edit)
            if template is not None:
                return template, last.in_text or other.in_text
        return None

    def _learn(self, burst: Burst, root: Node | None) -> None:
        renamed = rename_in(burst)
        known = self._rename and self._rename[:2]
        if renamed is not None and renamed[:2] != known:  # who changes a place by hand renames nothing else
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
    word = _word(template)
    at = text.find(word)
    while word and at >= 0:
        first = text.rfind("\n", 0, at) + 1
        last = text.find("\n", at)
        last = len(text) if last < 0 else last
        for edit in matches(template, text[first:last]):
            yield Edit(first + edit.start, first + edit.end, edit.text)
        at = text.find(word, last)


def _word(template: Template) -> str:
    """The longest, which is the rarest."""
    return max((one for one in template.before if one is not None and is_word(one)), key=len, default="")


def _sites_alike(template: Template, language: str, root: Node, text: str, *, in_text: bool) -> list[Edit]:
    """Nothing where the template fits too many places."""
    places = [edit for edit in _places(template, text) if in_text or not _in_text(root, text, edit.start, language)]
    return places if len(places) <= SITES_MAX else []


def _alike_elsewhere(template: Template, language: str, in_text: bool, file: OtherFile) -> list[Site]:
    if file.language != language:
        return []
    return [Site(edit) for edit in _sites_alike(template, language, file.root, file.text, in_text=in_text)]


def _in_text(root: Node, text: str, at: int, language: str) -> bool:
    spec = LANGUAGES.get(language)
    byte = len(text[:at].encode("utf-8", "surrogatepass"))
    node = root.descendant_for_byte_range(byte, byte)
    while spec is not None and node is not None:
        if node.type in spec.comments or node.type in spec.strings:
            return True
        node = node.parent
    return False
