"""An event loop whose time is virtual: timers fire at once, in order, and real input and output still works.

While somebody holds the clock (:meth:`VirtualLoop.held`), time stands still and the loop waits for real sockets; otherwise,
when nothing is ready, it jumps to the next timer. That is how measured latencies are laid on a drawn typing rhythm.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Generator, Mapping
from typing import Any


class _Selector(selectors.BaseSelector):
    """Wraps the real selector; instead of sleeping it advances the loop's clock."""

    def __init__(self, real: selectors.BaseSelector) -> None:
        self._real = real
        self.now = 0.0
        self.holders = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.holders:
            # Timers that are due now must still run: never block longer than they allow, but do not move the clock.
            return self._real.select(0 if timeout is not None and timeout <= 0 else 0.05)
        ready = self._real.select(0)
        if ready or timeout is None:
            return ready or self._real.select(0.05)
        self.now += max(timeout, 0.0)
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """`asyncio` loop on virtual seconds, starting at 0."""

    def __init__(self) -> None:
        self._virtual = _Selector(selectors.DefaultSelector())
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
