"""Which slot of llama.cpp a document has: each slot keeps the cache of one prompt, so a document comes back to its own. Pure."""

from __future__ import annotations

from collections import OrderedDict


class Slots:
    """Of one server.

    Args:
        total: how many it has, at least 1.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._of: OrderedDict[object, int] = OrderedDict()

    def of(self, document: object) -> int:
        """The document's slot: the one that it had, else one that nobody has, else that of the document that was asked about longest ago."""
        slot = self._of.pop(document, None)
        if slot is None:
            slot = len(self._of) if len(self._of) < self._total else self._of.popitem(last=False)[1]
        self._of[document] = slot
        return slot

    def __repr__(self) -> str:
        return f"<Slots: {len(self._of)} of {self._total} taken>"
