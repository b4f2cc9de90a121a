"""Python's cycle collector in a process that somebody waits for: seldom, and never over what was there before; and the heap's free pieces.

With Python's own thresholds a quarter of a loaded gateway's processor time went into looking for cycles (py-spy, native frames),
and a full collection in a language server with open files held up the next key by 80 to 250 ms. Requests and keys leave few
cycles: reference counts free the rest at once.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import gc
import sys
from collections.abc import Callable, Generator
from typing import Final

IDLE_S: Final = 5.0
_YOUNG_OBJECTS: Final = 20_000
_OLDER_OBJECTS: Final = 400_000
_OLD_RUNS: Final = 50
_HARDLY_EVER: Final = 100_000
_WHILE_STARTING: Final = (100_000, 20, 100)
_M_ARENA_MAX: Final = -8
_QUIET: Final = 6
"""How many times as long a process sleeps in which nothing has moved since it was looked through."""


def spare_start_and_end() -> None:
    """To be called where a process begins, before it imports much.

    What modules bring is no garbage: looking through it while they are imported, and once more when Python ends, was 0.1 to 0.2 s of
    the 0.95 s of processor time of a gateway that started and stopped, and with a database 0.5 of 1.7.
    """
    gc.set_threshold(*_WHILE_STARTING)
    atexit.register(gc.freeze)
    if (libc := _glibc()) is not None:  # a heap for each thread keeps its own free pieces: 10 MiB in an engine
        libc.mallopt(_M_ARENA_MAX, 1)


@contextlib.contextmanager
def calm_collector(*, full: bool = True, young_objects: int = _YOUNG_OBJECTS) -> Generator[None]:
    """Collects seldom while the block runs, and never again what is there at its start: modules, tokenizer, routes.

    Args:
        full: whether all generations are collected by themselves; else the caller runs :func:`collect_when_idle`.
        young_objects: new ones that are looked through at once. That is a pause, whose length goes with what is in them: a list of
            2,000 token ids is 2,000 looks, an `array` of them none.
    """
    before = gc.get_threshold()
    gc.freeze()  # without looking through it first: that would be a tenth of a second of every start
    give_back()
    gc.set_threshold(young_objects, _OLDER_OBJECTS // young_objects, _OLD_RUNS if full else _HARDLY_EVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def collect_when_idle(activity: Callable[[], int], *, idle_s: float = IDLE_S) -> None:
    """Collects everything when `activity`, a count of events, stood still for `idle_s` after it had moved, and gives back what is free. Never ends."""
    collected_at = seen = activity()
    pause_s = idle_s
    while True:
        await asyncio.sleep(pause_s)
        now = activity()
        if now == seen and now != collected_at:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            give_back()
            collected_at = now
        pause_s = idle_s if now != collected_at else _QUIET * idle_s
        seen = now


def give_back() -> None:
    """Give the system what is free of the heap, in a few milliseconds. Of glibc alone: other allocators do it by themselves."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") else None
