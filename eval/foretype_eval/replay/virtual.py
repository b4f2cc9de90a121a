"""An event loop whose time is virtual: timers fire at once, in order, and real input and output still works.

While somebody holds the clock (:meth:`VirtualLoop.held`), time stands still and the loop waits for real sockets; otherwise,
when nothing is ready, it jumps to the next timer. That is how measured latencies are laid on a drawn typing rhythm.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Generator


class _Selector(selectors.DefaultSelector):
    """Instead of sleeping it advances the loop's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.holders = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.holders:
            # Timers that are due now must still run: never block longer than they allow, but do not move the clock.
            return super().select(0 if timeout is not None and timeout <= 0 else 0.05)
        ready = super().select(0)
        if ready or timeout is None:
            return ready or super().select(0.05)
        self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """`asyncio` loop on virtual seconds, starting at 0."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Stop the clock while real work (a gateway's answer) is awaited."""
        self._virtual.holders += 1
        try:
            yield
        finally:
            self._virtual.holders -= 1
