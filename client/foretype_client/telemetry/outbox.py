"""Batches on their way to the gateway. Pure: what to write, send and remove is decided here, and done by the shell.

A batch leaves only when it was acknowledged, or when there are too many: then the oldest leaves, and is counted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NamedTuple

BATCHES_MOST: Final = 500
IN_FLIGHT_MOST: Final = 4
RESEND_S: Final = 30.0
RESEND_MOST_S: Final = 480.0


class OutboxStatistics(NamedTuple):
    waiting: int
    in_flight: int
    acknowledged: int
    dropped: int


@dataclass(slots=True)
class _Batch:
    """`due_s`: when it may be sent, again if it was before; `tries` of this connection and those before."""

    due_s: float = 0.0
    tries: int = 0
    in_flight: bool = False


class Outbox:
    """Names of batches, oldest first; their content is the shell's."""

    def __init__(self, *, batches: int = BATCHES_MOST) -> None:
        self._most = batches
        self._batches: OrderedDict[str, _Batch] = OrderedDict()
        self._acknowledged = self._dropped = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __contains__(self, name: object) -> bool:
        return name in self._batches

    def put(self, name: str) -> list[str]:
        """A batch to send. Returns those that had to go for it."""
        self._batches.setdefault(name, _Batch())
        gone: list[str] = []
        while len(self._batches) > self._most:
            gone.append(self._batches.popitem(last=False)[0])
            self._dropped += 1
        return gone

    def to_send(self, now: float) -> list[str]:
        """Batches to send now, in order; they are in flight until acknowledged, lost, or silent for too long."""
        names: list[str] = []
        for batch in self._batches.values():
            if batch.in_flight and now >= batch.due_s:
                batch.in_flight = False  # refused, or its answer was lost
        room = IN_FLIGHT_MOST - sum(batch.in_flight for batch in self._batches.values())
        for name, batch in self._batches.items():
            if room <= 0:
                break
            if not batch.in_flight and now >= batch.due_s:
                batch.in_flight, batch.tries = True, batch.tries + 1
                batch.due_s = now + min(RESEND_MOST_S, RESEND_S * 2.0 ** min(batch.tries - 1, 10))
                names.append(name)
                room -= 1
        return names

    def acknowledged(self, name: str) -> bool:
        """The gateway has committed it. False if it is not known here (any more)."""
        if self._batches.pop(name, None) is None:
            return False
        self._acknowledged += 1
        return True

    def forget(self, name: str) -> None:
        """It cannot be sent at all."""
        if self._batches.pop(name, None) is not None:
            self._dropped += 1

    def lost(self) -> None:
        """The connection is gone: what was in flight may or may not have arrived, and is sent again."""
        for batch in self._batches.values():
            if batch.in_flight:
                batch.in_flight, batch.due_s = False, 0.0

    def statistics(self) -> OutboxStatistics:
        flying = sum(batch.in_flight for batch in self._batches.values())
        return OutboxStatistics(len(self._batches) - flying, flying, self._acknowledged, self._dropped)
