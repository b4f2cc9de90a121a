"""The answer to one call, as its caller iterates over it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

import msgspec
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import Delta, Done, Edited, Timings

_ItemT = TypeVar("_ItemT", Delta, Edited)


class AnswerStream(Generic[_ItemT]):
    """Deltas of one completion, or one `Edited`, then exactly one `Done` or one exception; for one consumer.

    `put` never blocks: an answer is bounded by `max_tokens`, so there is nothing to push back against.
    """

    def __init__(self, id: str, cancel: Callable[[str], None]) -> None:
        self._id = id
        self._cancel = cancel
        self._items: deque[_ItemT | Done | RequestRefusedError | GatewayGoneError] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False

    @property
    def id(self) -> str:
        return self._id

    def cancel(self) -> None:
        self._cancel(self._id)

    def put(self, item: _ItemT | Done | RequestRefusedError | GatewayGoneError) -> None:
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> AsyncIterator[_ItemT | Done]:
        return self

    async def __anext__(self) -> _ItemT | Done:
        while not self._items:
            if self._over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        item = self._items.popleft()
        if isinstance(item, Delta | Edited):
            return item
        self._over = True
        if isinstance(item, RequestRefusedError | GatewayGoneError):
            raise item
        return item


def with_network(done: Done, elapsed_ms: float) -> Timings:
    """The gateway's stages as they are; what they leave of the client's measurement is the network's."""
    theirs = done.timings_ms
    inside_ms = theirs.admit + theirs.queue + theirs.prefill + theirs.decode_first + theirs.stream + theirs.finish
    return msgspec.structs.replace(theirs, network=max(0.0, elapsed_ms - inside_ms))
