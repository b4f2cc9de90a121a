"""Feedback batches that come over the stream: checked, handed to the store, acknowledged when they are safe."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from foretype_wire.errors import InvalidRequestError
from foretype_wire.messages import Ack, Error, ErrorCode, Feedback, GatewayMessage
from foretype_wire.redaction import log_fault
from foretype_wire.subscriptions import Subscribers

from foretype_backend.errors import StoreError
from foretype_backend.telemetry.intake import Sender
from foretype_backend.telemetry.sink import Receipt

MAX_BATCHES: Final = 8
"""Batches of one connection that may wait for the store."""
_MAX_EVENTS: Final = 1000

_log = logging.getLogger("foretype.gateway")


class FeedbackSink(Protocol):
    """Where feedback goes. Returning means that the batch is safe; raising leaves it with the client.

    The answer names events that were refused, each by its field, and says whether the sender's tenant wants texts.
    """

    async def __call__(self, sender: Sender, batch: str, events: Sequence[dict[str, object]]) -> Receipt | None: ...


class FeedbackIntake:
    """Stores batches.

    Args:
        stored: told the events of a batch that is safe, but for those that were refused.
    """

    def __init__(self, sink: FeedbackSink, stored: Callable[[Sequence[dict[str, object]]], None]) -> None:
        self._sink = sink
        self._stored = stored
        self.told: Subscribers[Sender, Sequence[dict[str, object]]] = Subscribers()
        """Told the sender and the events of a batch that is safe."""
        self._failing = False

    async def store(self, sender: Sender, message: Feedback, send: Callable[[GatewayMessage], None]) -> None:
        """Acknowledge a batch only when the sink has it; without an `ack` the client sends it again."""
        try:
            receipt = await self._sink(sender, message.batch, message.events) or Receipt()
        except Exception as error:  # noqa: BLE001 - not acknowledged, so the batch stays with the client
            if not self._failing and isinstance(error, StoreError):
                _log.error("feedback is not stored; clients keep it: %s", error)  # its message is made for operators
            elif not self._failing:
                log_fault(_log, "feedback is not stored; clients keep it", error)
            self._failing = True
            told = f"batch {message.batch} is not stored; send it again"
            send(Error(code=ErrorCode.OVERLOADED, field="batch", message=told, retry_after_ms=30_000.0))
            return
        self._failing = False
        refused = {one.at for one in receipt.refused}
        taken = [event for index, event in enumerate(message.events) if index not in refused]
        self._stored(taken)
        self.told.tell(sender, taken)
        if receipt.refused:
            first, many = receipt.refused[0], len(receipt.refused)
            more = f" (and {many - 1} more of this batch)" if many > 1 else ""
            send(Error(code=ErrorCode.INVALID_REQUEST, field=first.field, message=f"{first.message}{more}"))
        send(Ack(batch=message.batch, refused=len(receipt.refused), store_text=receipt.store_text))


def check_feedback(message: Feedback) -> None:
    """Raises InvalidRequestError."""
    if not 0 < len(message.batch) <= 64:
        raise InvalidRequestError("batch", "must be 1 to 64 characters")
    if len(message.events) > _MAX_EVENTS:
        raise InvalidRequestError("events", f"at most {_MAX_EVENTS} events in a batch")


def busy() -> Error:
    """The answer to a batch too many."""
    many = f"{MAX_BATCHES} batches wait for the store already; send it again"
    return Error(code=ErrorCode.OVERLOADED, field="batch", message=many, retry_after_ms=1000.0)
