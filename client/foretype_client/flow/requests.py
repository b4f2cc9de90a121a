"""The requests of a flow on their way: sends them, reads their streams, gives them up. One owned task per request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from foretype_context.prompt.healing import HealedText
from foretype_context.prompt.segments import Segment
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import Complete, Delta
from foretype_wire.subscriptions import Subscribers
from foretype_wire.tasks import end_tasks

from foretype_client.flow.inflight import Flight
from foretype_client.flow.open_documents import TrackedDocument
from foretype_client.flow.planning import Draft
from foretype_client.flow.strands import Strand
from foretype_client.ports import Clock, Gateway

_log = logging.getLogger(__name__)


class Requests:
    """Running requests.

    Attributes:
        progressed: told after each delta and after the end of a stream, with the loop's turn still ours.
        departed: told each request that is on its way, and the call that it is.
    """

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self.progressed: Subscribers[TrackedDocument, Flight] = Subscribers()
        self.departed: Subscribers[Flight, Complete[Segment]] = Subscribers()
        self._gateway = gateway
        self._clock = clock
        self._pumps: set[asyncio.Task[None]] = set()
        self.sent: int = 0
        self.cancelled: int = 0

    @property
    def running(self) -> int:
        return len(self._pumps)

    def send(
        self,
        document: TrackedDocument,
        call: Complete[Segment],
        *,
        strand: Strand,
        draft: Draft,
        debounce_ms: float,
        supersedes: Flight | None,
    ) -> Flight:
        """Send `call`, which names `supersedes` as the request it replaces, for the question of `document`."""
        flight = self.start(document, call, strand=strand, draft=draft, debounce_ms=debounce_ms)
        if supersedes is not None:
            supersedes.dropped = True
            self.cancelled += 1
        document.flights.append(flight)
        return flight

    def start(
        self,
        document: TrackedDocument,
        call: Complete[Segment],
        *,
        strand: Strand,
        draft: Draft,
        debounce_ms: float = 0.0,
    ) -> Flight:
        """Send `call` and read its stream from now on; no question of the document knows of it."""
        flight = Flight(
            call.id,
            strand,
            draft.plan.kind,
            self._gateway.complete(call),
            self._clock(),
            class_=call.class_,
            debounce_ms=debounce_ms,
            healing=HealedText(draft.plan.healed),
            begun=strand.text,
            draft=draft,
            notes=document.gathered.notes,
        )
        self.departed.tell(flight, call)
        self.sent += 1
        pump = asyncio.create_task(self._pump(document, flight), name=f"foretype-request-{call.id}")
        self._pumps.add(pump)
        pump.add_done_callback(self._ended)
        return flight

    def drop(self, flights: Iterable[Flight]) -> None:
        """Give requests up: the engine stops at once, and what has come so far still feeds the cache."""
        for flight in flights:
            if flight.wanted:
                flight.dropped = True
                self.cancelled += 1
                flight.stream.cancel()

    async def close(self) -> None:
        """End every stream and wait until no task is left."""
        await end_tasks(*self._pumps)

    async def _pump(self, document: TrackedDocument, flight: Flight) -> None:
        try:
            async for item in flight.stream:
                if isinstance(item, Delta):
                    flight.add(item, self._clock())
                    self.progressed.tell(document, flight)
                else:
                    flight.end(item)
        except (RequestRefusedError, GatewayGoneError) as error:
            flight.error = error
        except asyncio.CancelledError:
            self.drop([flight])
            raise
        finally:
            flight.ended_s = self._clock()
            self.progressed.tell(document, flight)

    def _ended(self, pump: asyncio.Task[None]) -> None:
        self._pumps.discard(pump)
        if not pump.cancelled() and (error := pump.exception()) is not None:
            _log.error("a request's stream failed in an unforeseen way", exc_info=error)
