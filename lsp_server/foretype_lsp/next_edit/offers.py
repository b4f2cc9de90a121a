"""Next edits that were given to the editor: their items, and what is known of each until it has ended."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from foretype_client.telemetry.next_edits import NextEditOutcome, TakenEdit
from foretype_context.edits.next_edit import NextEdit
from foretype_context.edits.pace import RememberedEdit

from foretype_lsp.next_edit.places import EditPlace

ACCEPT_COMMAND: Final = "foretype.nextEdit.accept"

_KEPT: Final = 64


@dataclass(slots=True, eq=False)
class GivenEdit:
    """A next edit that was given to the editor.

    Attributes:
        uri: of the document that it is an edit of; `asked_in` of the one that was asked about.
        version: of `asked_in` when it was asked.
        text: in characters of which `found` is.
        chain, order: the first of those that followed each other by acceptance, and its number among them.
        jump: it is not near enough to be shown in place.
        origin: document whose edits say so.
        told: by what a refusal is remembered.
    """

    id: str
    uri: str
    asked_in: str
    version: int
    text: str
    origin: str
    found: NextEdit
    told: RememberedEdit
    given_s: float
    chain: str
    order: int
    jump: bool
    shown_s: float | None = None
    jumped: bool = False
    accepted: bool = False
    ended: bool = False

    def outcome(self, language: str, end: str) -> NextEditOutcome:
        """What became of it, for telemetry."""
        start, stop, new = self.found.edit
        old = self.text[start:stop]
        taken: TakenEdit | None = None
        if end == "accepted" and not self.found.jump_only:
            first, last = self.text.rfind("\n", 0, start) + 1, self.text.find("\n", stop)
            last = len(self.text) if last < 0 else last
            before = self.text[first:last]
            after = before[: start - first] + new + before[stop - first :]
            taken = TakenEdit(self.uri, first, before, after, old, new)
        return NextEditOutcome(
            id=self.id,
            chain=self.chain,
            order=self.order,
            language=language,
            evidence=str(self.found.evidence),
            end=end,
            shown_s=self.given_s if self.shown_s is None else self.shown_s,
            inserted=len(new),
            deleted=len(old),
            elsewhere=self.uri != self.asked_in,
            jump=self.jump,
            jumped=self.jumped,
            taken=taken,
        )

    @property
    def result(self) -> str:
        """The text with the edit."""
        start, end, new = self.found.edit
        return f"{self.text[:start]}{new}{self.text[end:]}"


class Offers:
    """By their ids; the newest `_KEPT`."""

    def __init__(self) -> None:
        self._all: OrderedDict[str, GivenEdit] = OrderedDict()
        self._count = 0

    def new_id(self) -> str:
        self._count += 1
        return f"n{self._count}"

    def add(self, offer: GivenEdit) -> None:
        self._all[offer.id] = offer
        if len(self._all) > _KEPT:
            self._all.popitem(last=False)

    def get(self, id: str) -> GivenEdit | None:
        return self._all.get(id)

    def live(self, uri: str) -> GivenEdit | None:
        """The newest that was asked for in a document, or is of it, and has not ended."""
        of = (one for one in reversed(self._all.values()) if uri in (one.asked_in, one.uri))
        return next((one for one in of if not one.ended), None)


def item(id: str, place: EditPlace) -> dict[str, Any]:
    """What the editor gets."""
    found, lines = place.found, place.lines
    start, end = found.edit.start - place.start, found.edit.end - place.start
    first, last = lines.position_at(start), lines.position_at(end)
    return {
        "text": found.edit.text,
        "range": {
            "start": {"line": first.line, "character": first.character},
            "end": {"line": last.line, "character": last.character},
        },
        "textDocument": {"uri": place.uri, "version": place.version},
        "command": {"title": "Accept next edit", "command": ACCEPT_COMMAND, "arguments": [id]},
        "data": {
            "id": id,
            "evidence": str(found.evidence),
            "left": found.left,
            "jumpOnly": found.jump_only,
            "replaces": lines.part(start, end),
        },
    }
