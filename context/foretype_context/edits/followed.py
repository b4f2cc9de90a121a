"""The engine of next edits on one document, with the tree of its whole text. Pure, with injected time; for one thread at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from tree_sitter import Node, Tree

from foretype_context.edit_models.question import RecentEdit, recent_edit
from foretype_context.edits.bursts import Burst, Bursts
from foretype_context.edits.elsewhere import Elsewhere
from foretype_context.edits.next_edit import SETTLED_S, NextEdit, NextEditRules
from foretype_context.syntax.document import Edit
from foretype_context.syntax.languages import parser_for
from foretype_context.syntax.neighbourhood import edited_tree
from foretype_context.syntax.parsing import PARSE_STEPS, parse_in_steps

_RECENT: Final = 16

MAX_CHARS: Final = 1_000_000
"""Of a document; a larger one gets no next edits: its tree takes thirty times its size."""


class Followed:
    """Args are those of the document when it was opened."""

    def __init__(self, language: str, text: str) -> None:
        self.text: str = text
        self._language = language
        self._engine = NextEditRules(language, text)
        self._parser = parser_for(language)
        self._tree: Tree | None = None
        self._fresh = False  # the tree is of the text, and not only told of its edits
        self._slow = False  # it took too long to parse: not tried again before the text is another
        self._errors: int | None = None
        self._ends = -1  # of the change before
        self._bursts: Bursts | None = None  # for a model, from when on one is asked
        self._done = deque[RecentEdit | None](maxlen=_RECENT)
        self._last_s = float("-inf")

    def recent(self) -> tuple[list[RecentEdit], Burst | None]:
        """What was done here lately, the oldest first, and the last of it; nothing before this was asked for the first time."""
        if self._bursts is None:
            self._bursts = Bursts(self.text)
        last = self._bursts.open
        done = [*self._done] if last is None else [*self._done, _recent(last)]
        return [one for one in done if one is not None], last

    def parses(self, edit: Edit) -> bool:
        """Whether the text has no more errors of syntax with an edit than without; so it has where nobody can tell."""
        return self._parser is None or (self._root() is not None and self._parses(edit))

    def changed(self, edits: Sequence[Edit], at_s: float, *, accepted: bool = False) -> None:
        """The text changed by `edits`, each in the coordinates that the one before it left.

        Args:
            accepted: it is a suggestion, or a next edit, that was taken.

        Raises:
            ValueError: the edits do not fit: this is no text of theirs.
        """
        text = applied(self.text, edits)
        starts = min(edit.start for edit in edits) if edits else self._ends
        elsewhere = abs(starts - self._ends) > 1 and self._ends >= 0
        root = self._root() if elsewhere else None
        before = self.text
        for edit in edits:
            if self._tree is not None:
                self._tree = edited_tree(self._tree, before, *edit)
            before = applied(before, (edit,))
            self._ends = edit.start + len(edit.text)
        self._fresh = self._slow = False
        self._errors = None
        self.text, self._last_s = text, at_s
        self._engine.changed(edits, text, at_s, root=root, accepted=accepted)
        if self._bursts is not None:
            ended = self._bursts.changed(edits, text, at_s, accepted=accepted)
            if ended is not None:
                self._done.append(_recent(ended))

    def refused(self, text: str, edit: Edit) -> None:
        """The developer did not want this edit of `text`."""
        self._engine.refused(text, edit)

    def next(self, cursor: int, now_s: float = float("-inf")) -> NextEdit | None:
        """What is likely wanted next. The caller has waited until it is time to ask."""
        root = self._root()
        if root is None:
            return None
        return self._engine.next(self.text, root, self.text.encode(), cursor, self._settled_s(now_s), self._parses)

    def elsewhere(self, path: str, now_s: float = float("-inf")) -> Elsewhere | None:
        """What the edits of this document say of other files; `path` is its own, relative to its folder."""
        root = self._root()
        if root is None:
            return None
        return self._engine.elsewhere(path, self.text, root, self.text.encode(), self._settled_s(now_s))

    def follow(self, elsewhere: Elsewhere, path: str) -> NextEdit | None:
        """What another document's edits say of this one, at `path`."""
        if elsewhere.token not in self.text or (root := self._root()) is None:
            return None
        return elsewhere.next(path, self._language, self.text, root, self.text.encode(), self._parses)

    def forget_tree(self) -> None:
        """It is made anew when somebody asks."""
        self._tree, self._fresh = None, False

    def _settled_s(self, now_s: float) -> float:
        return max(now_s, self._last_s + 2 * SETTLED_S)

    def _root(self) -> Node | None:
        """Of the text as it is now; None: no grammar, or too slow."""
        if self._parser is None or self._slow:
            return None
        if not self._fresh:
            self._tree = parse_in_steps(self._parser, self.text.encode(), PARSE_STEPS, self._tree)
            self._fresh, self._slow = self._tree is not None, self._tree is None
        return None if self._tree is None else self._tree.root_node

    def _parses(self, edit: Edit) -> bool:
        """Whether the text has no more errors of syntax with an edit than without."""
        if self._parser is None or self._tree is None:
            return False
        if self._errors is None:
            self._errors = _errors(self._tree)
        copy = edited_tree(self._tree, self.text, *edit)
        after = parse_in_steps(self._parser, applied(self.text, (edit,)).encode(), PARSE_STEPS, copy)
        return after is not None and _errors(after) <= self._errors


def _recent(burst: Burst) -> RecentEdit | None:
    start, end, inserted = burst.edit
    return recent_edit("", burst.before, start, end, inserted)


def applied(text: str, edits: Sequence[Edit]) -> str:
    """A text after edits, each in the coordinates that the one before it left. Raises ValueError where one lies outside."""
    for start, end, new in edits:
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"edit [{start}, {end}) outside a text of {len(text)} characters")
        text = f"{text[:start]}{new}{text[end:]}"
    return text


def _errors(tree: Tree) -> int:
    """Nodes that are errors, or missing; only what holds any is looked into."""
    count, left = 0, [tree.root_node]
    while left:
        node = left.pop()
        if node.is_error or node.is_missing:
            count += 1
        if node.has_error:
            left += [child for child in node.children if child.has_error]
    return count
