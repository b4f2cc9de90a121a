"""What can go wrong on the wire, at both ends.

::

    ForetypeError                       (foretype_context.errors)
    └── WireError                       of this package
        ├── RequestRefusedError         the gateway refused a request; the connection lives on
        ├── GatewayGoneError            the connection was lost or never came up
        ├── InvalidRequestError         what a client sent will never be served as it is
        ├── BadFrameError               what a client sent is no message of this protocol
        ├── UnreadableFrameError        (ValueError) what the gateway sent is no message of this protocol
        ├── FrameTooLargeError          (ValueError) a message that is too large to be sent
        ├── TokenInClearError           (ValueError) a credential would go over the network in clear
        └── TracingError                (ValueError) tracing was asked for and cannot be
"""

from __future__ import annotations

from foretype_context.errors import ForetypeError

from foretype_wire.messages import ErrorCode


class WireError(ForetypeError):
    """What `foretype_wire` raises, and a session with a gateway."""


class RequestRefusedError(WireError):
    """The gateway refused a request; the connection lives on.

    Attributes:
        code: why, as on the wire.
        field: path of the field that is wrong, e.g. `segments[2].digest`, where one is.
        retry_after_ms: when to ask again, where the gateway says so.
    """

    def __init__(
        self, code: ErrorCode, message: str = "", *, field: str | None = None, retry_after_ms: float | None = None
    ) -> None:
        super().__init__(f"{code}: {message}" if message else str(code))
        self.code = code
        self.field = field
        self.retry_after_ms = retry_after_ms


class GatewayGoneError(WireError):
    """The connection was lost or never came up; every pending call fails with this at once."""


class InvalidRequestError(WireError):
    """A request that will never be served as it is.

    Attributes:
        field: path of the offending field, e.g. `segments[2].digest`.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class BadFrameError(WireError):
    """A frame that is no message of this protocol.

    Attributes:
        id: the request it meant, where that could still be read.
    """

    def __init__(self, message: str, *, field: str | None = None, id: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.id = id


class UnreadableFrameError(WireError, ValueError):
    """A frame that is not of this protocol. `type` and `id` are what could be read of it all the same, else empty."""

    def __init__(self, reason: str, *, type: str = "", id: str = "") -> None:
        super().__init__(reason)
        self.type = type
        self.id = id


class FrameTooLargeError(WireError, ValueError):
    """A message that needs more than `MAX_FRAME_BYTES`."""


class TokenInClearError(WireError, ValueError):
    """A credential would go over the network for everybody on the way to read; the message has the remedy."""


class TracingError(WireError, ValueError):
    """Tracing was asked for and cannot be; `field` is the variable or option that asks for it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
