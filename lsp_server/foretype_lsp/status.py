"""What the server says about itself: `foretype/status` and `foretype/didChangeStatus`.

Failures are silent in the editor, so this is where they can be seen: a state, and for each state that is not `ready` the
reason and what to do about it. Events go in, and a payload comes out when there is something new.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from foretype_client.session.connecting import without_credentials
from foretype_context.prompt.profile import Service
from foretype_wire.subscriptions import Subscribers

_REDUCED = {
    Service.NO_RETRIEVAL: "the gateway is loaded: suggestions without other files, for now",
    Service.SHORT_CONTEXT: "the gateway is loaded: suggestions from less context, for now",
    Service.CACHE_ONLY: "the gateway is overloaded: suggestions from this machine alone, for now",
}


class State(StrEnum):
    STARTING = "starting"  # the gateway is being reached or started; local suggestions work
    READY = "ready"
    DEGRADED = "degraded"  # no gateway, or one that refuses; local suggestions work
    OFF = "off"  # switched off by the user


class Counts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Figures since the start.

    Attributes:
        last_latency_ms: LSP request to answer of the last suggestion, or None.
        last_ttft_ms: request to first text of the last one that reached a model, or None.
        cached_share: prompt tokens that were not computed, of all prompt tokens, 0 to 1, or None.
        requests: that reached a gateway.
        cache_hits: answers without one.
        answered: LSP requests answered, with a suggestion or without.
        suggested: LSP requests answered with a suggestion.
        superseded, cancelled, stale: LSP requests that a newer one, the editor, or a change made void.
        accepted: suggestions.
        late: times that a source of other files' snippets was late or failed, and a prompt went without it.
    """

    last_latency_ms: float | None = None
    last_ttft_ms: float | None = None
    cached_share: float | None = None
    requests: int = 0
    cache_hits: int = 0
    answered: int = 0
    suggested: int = 0
    superseded: int = 0
    cancelled: int = 0
    stale: int = 0
    accepted: int = 0
    late: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """Payload of `foretype/status` and `foretype/didChangeStatus`.

    Attributes:
        detail: why, and what to do; when ready, why the document that was asked about last gets no suggestions.
        advice: what would make suggestions better, and how; empty where nothing is known to.
        problems: options that were not taken.
        gateway: its address without credentials.
        index: for each source of other files' snippets, what it has and what it does.
        late: why such a source was last missing in a prompt.
    """

    state: State
    detail: str = ""
    model: str = ""
    advice: str = ""
    gateway: str = ""
    index: str = ""
    late: str = ""
    problems: tuple[str, ...] = ()
    counts: Counts = Counts()
    version: str = ""


class StatusMachine:
    """Keeps the status and says when it is worth a notification: a changed figure alone is not."""

    def __init__(self, version: str) -> None:
        self.status = Status(state=State.STARTING, detail="starting", version=version)
        self.changed: Subscribers[Status] = Subscribers()
        """Told each status that says something new."""
        self._on = True
        self._lost: str | None = None
        self._model = self._advice = ""
        self._service = Service.FULL
        self._gateway = ""
        self._index = ""
        self._obstacle = ""
        self._problems: tuple[str, ...] = ()

    def connecting(self, gateway: str) -> Status | None:
        """A gateway is being reached or started."""
        self._gateway = without_credentials(gateway)
        return self._step()

    def connected(
        self, model: str, service: Service = Service.FULL, advice: str = "", *, gateway: str = ""
    ) -> Status | None:
        """The gateway serves, as much as `service` says; `gateway` is which of several, "" the one that was told last."""
        self._gateway = without_credentials(gateway) or self._gateway
        self._model, self._lost, self._service, self._advice = model, None, service, advice
        return self._step()

    def lost(self, reason: str) -> Status | None:
        """The gateway cannot be reached; `reason` says why and what to do."""
        self._model, self._advice, self._lost = "", "", reason
        return self._step()

    def switched(self, on: bool) -> Status | None:
        self._on = on
        return self._step()

    def configured(self, problems: tuple[str, ...]) -> Status | None:
        self._problems = problems
        return self._step()

    def asked(self, obstacle: str) -> Status | None:
        """A suggestion was asked for; `obstacle` says why there is none in this document, or is empty."""
        if obstacle == self._obstacle:
            return None
        self._obstacle = obstacle
        return self._step()

    def indexed(self, index: str) -> Status | None:
        """What the sources say about themselves."""
        self._index = index
        return self._step()

    def counted(self, counts: Counts, *, index: str = "", late: str = "") -> Status:
        """The status with new figures."""
        self._index = index
        self.status = msgspec.structs.replace(self.status, counts=counts, index=index, late=late)
        return self.status

    def _step(self) -> Status | None:
        if not self._on:
            state, detail = State.OFF, "switched off"
        elif self._lost is not None:
            state, detail = State.DEGRADED, self._lost
        elif not self._model:
            state, detail = (
                State.STARTING,
                f"connecting to {self._gateway}" if self._gateway else "starting the gateway",
            )
        elif self._service is not Service.FULL:
            state, detail = State.DEGRADED, _REDUCED[self._service]
        else:
            state, detail = State.READY, self._obstacle
        before = self.status
        self.status = msgspec.structs.replace(
            before,
            state=state,
            detail=detail,
            model=self._model,
            advice=self._advice,
            gateway=self._gateway,
            index=self._index,
            problems=self._problems,
        )
        if self.status == before:
            return None
        self.changed.tell(self.status)
        return self.status
