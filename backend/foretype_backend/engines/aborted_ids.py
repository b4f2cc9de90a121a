"""Which request ids were aborted before they started: an abort that overtakes its request still wins."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_REMEMBERED: Final = 1024
"""Ids kept of each; the oldest are forgotten first."""


class AbortLedger:
    """Remembers early aborts and recent ends, so that a late abort of a finished id cannot hit its successor."""

    def __init__(self) -> None:
        self._early: OrderedDict[str, None] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    def aborted(self, request_id: str) -> None:
        """An abort arrived for an id that is not live."""
        if request_id not in self._ended:
            self._put(self._early, request_id)

    def begin(self, request_id: str) -> bool:
        """A request starts; true when it was aborted before."""
        self._ended.pop(request_id, None)
        if request_id not in self._early:
            return False
        del self._early[request_id]
        return True

    def end(self, request_id: str) -> None:
        self._put(self._ended, request_id)

    def _put(self, ids: OrderedDict[str, None], request_id: str) -> None:
        ids.pop(request_id, None)
        ids[request_id] = None
        if len(ids) > _REMEMBERED:
            ids.popitem(last=False)
