"""A declaration got another name: the places that still have the old one.

One example is enough here, and nowhere else: of thirteen replacements of a name in a recorded session one was repeated by hand, but a
name whose declaration is gone is an error until it follows.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tree_sitter import Node

from foretype_context.edits.bursts import Burst, ChangeOrigin
from foretype_context.edits.elsewhere import OtherFile, Site
from foretype_context.edits.imports import imported
from foretype_context.edits.keywords import keywords_renamed
from foretype_context.edits.member_rules import MEMBERS
from foretype_context.edits.members import (
    Member,
    is_member_free,
    is_seen_from_outside,
    member_at,
    members_of,
    members_renamed,
)
from foretype_context.edits.names import (
    NamePlace,
    is_declared_around,
    is_global,
    is_named_near,
    places_elsewhere,
    places_renamed,
)
from foretype_context.edits.offsets import byte_of, char_of
from foretype_context.edits.owners import Owner
from foretype_context.syntax.document import Edit

_NAME: Final = re.compile(r"[^\W\d]\w*")
_NAME_CHARS_MAX: Final = 64
_FIELD: Final = re.compile(r"\b(\w+)[ \t]*:[ \t]*\Z")
_FIELD_ENDS: Final = re.compile(r"\s*[,}]")
_SELVES: Final = MEMBERS["python"].selves
"""Who gives such a parameter another name makes the function another one."""


class Rename(NamedTuple):
    """`old` became `new` at character `at` of the text as it is now."""

    old: str
    new: str
    at: int


def rename_in(burst: Burst) -> Rename | None:
    """The one name that a burst replaced by another; None where it did anything else.

    A letter more or less is a name replaced as well: what counts are the whole words before and after. `_` is no name.
    """
    if burst.how is not ChangeOrigin.TYPED:
        return None
    start, end, text = burst.edit
    head = tail = 0
    while start - head > 0 and _in_name(burst.before[start - head - 1]) and head <= _NAME_CHARS_MAX:
        head += 1
    while end + tail < len(burst.before) and _in_name(burst.before[end + tail]) and tail <= _NAME_CHARS_MAX:
        tail += 1
    old = burst.before[start - head : end + tail]
    new = burst.after[start - head : start + len(text) + tail]
    if old == new or max(len(old), len(new)) > _NAME_CHARS_MAX or old in _SELVES:
        return None
    if _NAME.fullmatch(old) is None or _NAME.fullmatch(new) is None or not new.strip("_"):
        return None
    return Rename(old, new, start - head)


def is_free(
    rename: Rename, root: Node, source: bytes, text: str, language: str, touched: Sequence[tuple[int, int]] = ()
) -> bool:
    """Whether the new name stood for nothing else around its declaration, and what is left of the old one can mean nothing else.

    To be asked before anything follows it.

    Args:
        touched: spans of characters that were edited: a new name there is one that was renamed by hand.
    """
    at = byte_of(text, rename.at)
    spans = [(byte_of(text, start), byte_of(text, end)) for start, end in touched]

    def is_renamed(byte: int) -> bool:
        return byte == at or any(start <= byte <= end for start, end in spans)

    member = member_at(root, source, language, at)
    if member is not None:
        if rename.new.lstrip("_") == rename.old:
            return False  # a property of the old name often comes next
        if not is_member_free(member, root, source, language, rename.new, but=is_renamed):
            return False
        if not member.bare:
            return True
    return not is_named_near(root, source, language, at, rename.new, but=is_renamed) and not is_declared_around(
        root, source, language, at, rename.old
    )


def sites_of(rename: Rename, root: Node, source: bytes, text: str, language: str) -> list[Edit]:
    """What the rename leaves to do, in order of the text; empty if that is not certain.

    Args:
        root, source: of `text`, as it is now.
    """
    at = byte_of(text, rename.at)
    member = member_at(root, source, language, at)
    bare = member is None or member.bare
    places = places_renamed(root, source, language, at, old=rename.old, new=rename.new) if bare else []
    owned = [] if member is None else members_renamed(member, root, source, language, rename.old)
    if places is None or owned is None:
        return []
    given = keywords_renamed(root, source, language, at, old=rename.old, new=rename.new)
    return sorted(_edit(place, rename, source, text, language) for place in [*places, *owned, *given])


def is_seen_elsewhere(rename: Rename, root: Node, source: bytes, text: str, language: str) -> bool:
    """Whether other files may name what was renamed."""
    at = byte_of(text, rename.at)
    return is_seen_from_outside(root, source, language, at) or is_global(root, language, at)


def elsewhere_of(
    rename: Rename, root: Node, source: bytes, text: str, language: str, path: str
) -> Callable[[OtherFile], list[Site]]:
    """What a rename in the file at `path` leaves to do in another one."""
    member = member_at(root, source, language, byte_of(text, rename.at))
    return (
        partial(_sites_elsewhere, rename, path) if member is None else partial(_members_elsewhere, rename, path, member)
    )


def _sites_elsewhere(rename: Rename, path: str, file: OtherFile) -> list[Site]:
    """In a file that imports the name from the one at `path`; empty if that is not certain."""
    listed = "__all__" in file.text and re.search(rf"""["']{re.escape(rename.old)}["']""", file.text) is not None
    if listed or posixpath.basename(file.path) == "__init__.py":
        return []  # it hands the name on, who knows to whom
    seen = imported(file.root, file.source, file.language, file.path, path)
    places = places_elsewhere(file.root, file.source, file.language, seen, old=rename.old, new=rename.new)
    return [Site(_edit(place, rename, file.source, file.text, file.language)) for place in places or ()]


def _members_elsewhere(rename: Rename, path: str, member: Member, file: OtherFile) -> list[Site]:
    """In a file that has the class from the one at `path`; empty if that is not certain."""
    seen = imported(file.root, file.source, file.language, file.path, path)
    name = member.owner.name
    if name in seen.taken or not (seen.whole or any(one.local == one.name == name for one in seen.specifiers)):
        return []
    named = member._replace(owner=Owner(name, -1), first=True)
    taken = members_of(named, file.root, file.source, file.language, rename.new)
    if taken is None or any(one.declares for one in taken):
        return []
    places = members_renamed(named, file.root, file.source, file.language, rename.old)
    return [Site(_edit(place, rename, file.source, file.text, file.language)) for place in places or ()]


def _edit(place: NamePlace, rename: Rename, source: bytes, text: str, language: str) -> Edit:
    start = char_of(text, source, place.start)
    end = start + len(rename.old)
    if place.shorthand:
        return Edit(start, end, f"{rename.old}: {rename.new}")
    if language == "rust" and rename.old[:1].islower() and _FIELD_ENDS.match(text, end):
        key = _FIELD.search(text, max(0, start - 256), start)
        if key is not None and key[1] == rename.new:
            return Edit(key.start(), end, rename.new)  # `size: size` is written `size`, and clippy asks for it
    return Edit(start, end, rename.new)


def _in_name(character: str) -> bool:
    return character == "_" or character.isalnum()
