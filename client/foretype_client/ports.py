"""Ports between the rooms of the client: what the flow needs from a gateway and from an assembler.

`flow` is written against these and never against a socket; the session, the replay and the tests implement them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from foretype_context.prompt.profile import Profile
from foretype_context.prompt.segments import Segment
from foretype_wire.credentials import keep_secret, without_credentials
from foretype_wire.messages import ChangeReason, Complete, Delta, Done


class Clock(Protocol):
    """Monotonic seconds. Injected everywhere; nothing below the edge reads a clock of its own."""

    def __call__(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a gateway listens: `ws://` or `wss://` URL of its `/v1/stream`, and the bearer token it wants.

    `token_in_clear`: the token may be sent over `ws://` to another machine. `process`: its id, of a private gateway on this machine.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    token_in_clear: bool = False
    process: int | None = field(default=None, compare=False)

    def headers(self) -> dict[str, str]:
        """What a request to it carries.

        Raises:
            TokenInClearError: everybody on the way could read the token.
        """
        keep_secret(self.url, self.token, in_clear=self.token_in_clear)
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def __repr__(self) -> str:
        return f"<Endpoint: {without_credentials(self.url)}>"


class CompletionStream(Protocol):
    """Deltas of one completion, then exactly one `Done`. Iterating raises RequestRefusedError or GatewayGoneError (`foretype_wire.errors`)."""

    @property
    def id(self) -> str: ...

    def __aiter__(self) -> AsyncIterator[Delta | Done]: ...

    def cancel(self) -> None:
        """Stop the engine's work. Idempotent and immediate; the stream then ends with `Done(finish=cancelled)`."""
        ...


class Gateway(Protocol):
    """A gateway as the flow sees it. `complete` never blocks and never raises: a failure comes out of the stream."""

    @property
    def profile(self) -> Profile | None: ...

    @property
    def connected(self) -> bool: ...

    def complete(self, call: Complete[Segment]) -> CompletionStream: ...

    def changed(self, documents: Sequence[str], reason: ChangeReason) -> None: ...
