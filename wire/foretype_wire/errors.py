"""What can go wrong on the wire, at both ends.

* `GatewayError`: the gateway refused a request; the connection lives on
* `GatewayGone`: the connection was lost or never came up
* `InvalidRequest`: what a client sent will never be served as it is
"""

from __future__ import annotations

from foretype_wire.messages import ErrorCode

__all__ = ["GatewayError", "GatewayGone", "InvalidRequest"]


class GatewayError(Exception):
    """The gateway refused a request; the connection lives on."""

    def __init__(
        self, code: ErrorCode, message: str = "", *, field: str | None = None, retry_after_ms: float | None = None
    ) -> None:
        super().__init__(f"{code}: {message}" if message else str(code))
        self.code = code
        self.field = field
        self.retry_after_ms = retry_after_ms


class GatewayGone(Exception):
    """The connection was lost or never came up; every pending call fails with this at once."""


class InvalidRequest(Exception):
    """A request that will never be served as it is.

    Attributes:
        field: path of the offending field, e.g. `segments[2].digest`.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
