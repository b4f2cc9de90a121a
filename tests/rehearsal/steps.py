"""What every story needs: steps with their seconds, things that must be so, and waiting until they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["LIMIT_S", "Failed", "check", "step", "told", "until"]

LIMIT_S: Final = 300.0
"""A busy machine is slow to start what takes a quiet one seconds; it ends what would never end."""

_BEGAN: Final = time.monotonic()


class Failed(Exception):
    """Something did not do what it should, or no container can run here."""


def told(what: str) -> None:
    print(f"{time.monotonic() - _BEGAN:6.0f} s  {what}", flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    told(f"ok {time.monotonic() - began:6.1f} s  {what}")


def check(true: bool, otherwise: str) -> None:
    if not true:
        raise Failed(otherwise)


def until(what: str, met: Callable[[], bool], every_s: float = 0.5, limit_s: float = LIMIT_S) -> None:
    """Ask `met` until it is true. Raises Failed."""
    ends = time.monotonic() + limit_s
    while not met():
        if time.monotonic() > ends:
            raise Failed(f"{what}: not within {limit_s:g} s")
        time.sleep(every_s)
