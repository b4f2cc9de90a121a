"""What prompts were turned into, taken over where the next one begins as the one before: it grows by what is typed."""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

UNUSED_S: Final = 300.0
"""What was not asked for twice as long has left memory, whether or not anything else is asked for."""


class Made(Protocol):
    """A sequence that is put together piece by piece: `array` and `bytearray`."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: slice, /) -> Self: ...

    def __iadd__(self, more: Any, /) -> Self: ...


_ENTRY_BYTES: Final = 1024
"""Of one that is remembered, beside its contents: key with its head, places in tables."""

_Given = TypeVar("_Given", bound=Sequence[Any])
_Made = TypeVar("_Made", bound=Made)


class _Known(NamedTuple):
    """One that was asked for; `cuts` and `ends` say where its pieces end, and what was made of them."""

    given: Any
    made: Any
    cuts: array[int]
    ends: array[int]

    @property
    def bytes(self) -> int:
        return _ENTRY_BYTES + sum(map(sys.getsizeof, self))

    def same(self, given: Any) -> int:
        """Pieces that another begins with, and one more behind them: where a piece ends may depend on how the next one begins."""
        low, high = 0, len(self.cuts)
        while low < high:
            middle = (low + high + 1) // 2
            cut = self.cuts[middle - 1]
            low, high = (middle, high) if given[:cut] == self.given[:cut] else (low, middle - 1)
        return max(low - 1, 0)


class PrefixMemo(Generic[_Given, _Made]):
    """Used on one event loop and never in a thread; apart for each owner, within a bound for all of them.

    There are two generations: what the younger one lacks is taken over from the older one, or goes with it.

    Args:
        head: what those that go on from each other have in common.
        least: length below which nothing is remembered.
        pieces: the parts in their order. Whether one ends at a place depends on nothing behind the part that follows it, and what is behind
            a place is cut as it is in the whole.
        make: what a piece is turned into; joined they are what the whole is turned into.
        empty: what nothing is turned into.
        most: bytes that a generation holds.
    """

    def __init__(
        self,
        *,
        head: Callable[[_Given], Hashable],
        least: int,
        pieces: Callable[[_Given], Sequence[_Given]],
        make: Callable[[_Given], Any],
        empty: Callable[[], _Made],
        most: int,
    ) -> None:
        self._head = head
        self._least = least
        self._pieces = pieces
        self._make = make
        self._empty = empty
        self._most = most
        self._young: dict[Hashable, _Known] = {}
        self._old: dict[Hashable, _Known] = {}
        self._held = 0
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, owner: str | None, given: _Given) -> _Made:
        """What it is turned into. It is shared: nobody changes it."""
        if len(given) < self._least:
            made = self._empty()
            made += self._make(given)
            return made
        key = owner, self._head(given)
        known = self._young.get(key) or self._old.get(key)
        if known is not None and known.given == given:
            if key not in self._young:
                self._keep(key, known)
            return known.made
        same = 0 if known is None else known.same(given)
        cuts, ends = (array("Q"), array("Q")) if known is None else (known.cuts[:same], known.ends[:same])
        start, made = (cuts[-1], known.made[: ends[-1]]) if known is not None and same else (0, self._empty())
        for piece in self._pieces(given[start:]):  # pyright: ignore[reportArgumentType] - a part is of the same type
            made += self._make(piece)
            start += len(piece)
            cuts.append(start)
            ends.append(len(made))
        self._keep(key, _Known(given, made, cuts, ends))
        return made

    def forget(self) -> None:
        """Drop everything."""
        self._young, self._old, self._held = {}, {}, 0

    def _keep(self, key: Hashable, known: _Known) -> None:
        former = self._young.get(key)
        self._young[key] = known
        self._held += known.bytes - (0 if former is None else former.bytes)
        if self._held > self._most:
            self._turn()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(UNUSED_S, self._unused)

    def _turn(self) -> None:
        self._young, self._old, self._held = {}, self._young, 0

    def _unused(self) -> None:
        self._turn()
        self._timer = asyncio.get_running_loop().call_later(UNUSED_S, self._unused) if self._old else None
