"""How long the start of a gateway took, by phase: what a fleet that grows has to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable


class StartPhases:
    """Measures phases that follow each other, and one that runs beside them.

    - `plan`: configuration, parts, sockets;
    - `stores`: imports, identities, telemetry, while the engine loads;
    - `engine`: from the end of the plan until the engine could be asked: process, weights, compilation;
    - `canary`: an answer from each server that computes;
    - `doors`: the rest, until the first request could be served.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._ended: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        """Of the phases that are over, by name."""

    def over(self, phase: str) -> None:
        """A phase is over that began when the last one ended."""
        now = self._clock()
        self.seconds[phase], self._began = now - self._began, now
        self._ended[phase] = now

    def overall(self, phase: str, *, since: str) -> None:
        """A phase is over that began with the end of another, and ran beside those since then."""
        self.seconds[phase] = self._clock() - self._ended[since]

    def skip(self) -> None:
        """What was waited for since the last phase belongs to one that ran beside."""
        self._began = self._clock()
