"""What may be visible in each document: an inline suggestion or a next edit, one of both. Pure."""

from __future__ import annotations

from typing import NamedTuple


class _Place(NamedTuple):
    version: int
    offset: int


class OnScreen:
    """Documents by their URIs; a document that has changed since shows nothing that is known of here."""

    def __init__(self) -> None:
        self._inline: dict[str, _Place] = {}
        self._next_edits: dict[str, tuple[int, str]] = {}  # version, id

    def inline_answered(self, uri: str, version: int, offset: int, *, found: bool) -> None:
        """A question for an inline suggestion was answered."""
        if found:
            self._inline[uri] = _Place(version, offset)
        else:
            self._inline.pop(uri, None)

    def has_inline(self, uri: str, version: int, offset: int) -> bool:
        """Whether a suggestion stands at the cursor."""
        return self._inline.get(uri) == (version, offset)

    def next_edit_shown(self, uri: str, version: int, id: str) -> None:
        self._next_edits[uri] = (version, id)

    def next_edit_gone(self, id: str) -> None:
        self._next_edits = {uri: one for uri, one in self._next_edits.items() if one[1] != id}

    def has_next_edit(self, uri: str, version: int) -> bool:
        return self._next_edits.get(uri, (None, ""))[0] == version

    def closed(self, uri: str) -> None:
        self._inline.pop(uri, None)
        self._next_edits.pop(uri, None)
