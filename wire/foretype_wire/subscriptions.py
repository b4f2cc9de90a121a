"""Subscriptions: any number of functions that are called when something happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

_Told = ParamSpec("_Told")


class Subscribers(Generic[_Told]):
    """Functions that are called at once, in the order of subscription; what one of them raises reaches the caller."""

    def __init__(self) -> None:
        self._all: dict[object, Callable[_Told, object]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, subscriber: Callable[_Told, object]) -> Callable[[], None]:
        """Tell `subscriber` too, which must not block; what is returned ends that, and may be called twice."""
        key = object()

        def leave() -> None:
            self._all = {one: other for one, other in self._all.items() if one is not key}

        self._all = {**self._all, key: subscriber}
        return leave

    def tell(self, *args: _Told.args, **kwargs: _Told.kwargs) -> None:
        for (
            subscriber
        ) in self._all.values():  # never changed in place: who comes or leaves meanwhile does so from the next time on
            subscriber(*args, **kwargs)
