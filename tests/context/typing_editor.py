"""Somebody who types: keys go into a text and into the engine of the next edit, and what comes out may be taken."""

from foretype_context.edits.elsewhere import Elsewhere
from foretype_context.edits.next_edit import SETTLED_S, NextEdit, NextEditRules
from foretype_context.syntax.document import Edit
from foretype_context.syntax.parsing import parse_bounded
from tree_sitter import Tree


def parsed(text: str, language: str) -> tuple[Tree, bytes]:
    source = text.encode()
    tree = parse_bounded(source, language)
    assert tree is not None
    return tree, source


def applied(text: str, edit: Edit) -> str:
    return text[: edit.start] + edit.text + text[edit.end :]


def parses_no_worse(text: str, edit: Edit, language: str) -> bool:
    before, _ = parsed(text, language)
    after, _ = parsed(applied(text, edit), language)
    return before.root_node.has_error or not after.root_node.has_error


class Editor:
    def __init__(self, text: str, language: str = "python") -> None:
        self.text, self.language = text, language
        self.edits = NextEditRules(language, text)
        self.now_s = 0.0

    def change(self, *edits: Edit, accepted: bool = False, pause_s: float = 0.1) -> None:
        tree = parse_bounded(self.text.encode(), self.language)
        for edit in edits:
            self.text = applied(self.text, edit)
        self.now_s += pause_s
        self.edits.changed(edits, self.text, self.now_s, root=tree and tree.root_node, accepted=accepted)

    def replace(self, old: str, new: str, nth: int = 0) -> None:
        """Delete key by key, then type."""
        at = -1
        for _ in range(nth + 1):
            at = self.text.index(old, at + 1)
        for end in range(at + len(old), at, -1):
            self.change(Edit(end - 1, end, ""))
        for offset, character in enumerate(new):
            self.change(Edit(at + offset, at + offset, character))

    def next(self, cursor: int = 0, wait_s: float = 2 * SETTLED_S) -> NextEdit | None:
        tree, source = parsed(self.text, self.language)
        return self.edits.next(
            self.text,
            tree.root_node,
            source,
            cursor,
            self.now_s + wait_s,
            lambda edit: parses_no_worse(self.text, edit, self.language),
        )

    def take(self, one: NextEdit) -> None:
        self.change(one.edit, accepted=True)

    def take_all(self) -> list[NextEdit]:
        """Whatever is offered is accepted, until there is nothing more."""
        taken: list[NextEdit] = []
        cursor = 0
        while (one := self.next(cursor)) is not None and not one.jump_only and len(taken) < 50:
            self.take(one)
            taken.append(one)
            cursor = one.edit.start
        return taken

    def elsewhere(self, path: str, wait_s: float = 2 * SETTLED_S) -> Elsewhere | None:
        tree, source = parsed(self.text, self.language)
        return self.edits.elsewhere(path, self.text, tree.root_node, source, self.now_s + wait_s)


def changed(text: str, old: str, new: str, language: str = "python") -> Editor:
    editor = Editor(text, language)
    editor.replace(old, new)
    return editor


def next_in(elsewhere: Elsewhere, path: str, text: str, language: str) -> NextEdit | None:
    tree, source = parsed(text, language)
    return elsewhere.next(
        path, language, text, tree.root_node, source, lambda edit: parses_no_worse(text, edit, language)
    )


def followed_in(elsewhere: Elsewhere | None, path: str, text: str, language: str) -> str:
    """The text of another file when everything that is offered there was accepted."""
    for _ in range(50):
        one = elsewhere and next_in(elsewhere, path, text, language)
        if one is None or one.jump_only:
            return text
        text = applied(text, one.edit)
    raise AssertionError("no end of edits")
