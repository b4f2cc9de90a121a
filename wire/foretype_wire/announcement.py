"""How a user's processes find their own gateway: what it writes to `gateway.json` in the state directory."""

from __future__ import annotations

from typing import Final

import msgspec

FILE_NAME: Final = "gateway.json"


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What a private gateway says of itself, readable by its user alone; `started` is ISO 8601 in UTC."""

    pid: int
    host: str
    port: int
    token: str
    version: str = ""
    started: str | float = ""

    @property
    def base(self) -> str:
        """Its HTTP address."""
        return f"http://{self._authority}"

    @property
    def stream_url(self) -> str:
        """Its `/v1/stream`."""
        return f"ws://{self._authority}/v1/stream"

    @property
    def _authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __repr__(self) -> str:  # never the token
        return f"<Announcement: pid {self.pid}, {self._authority}, version {self.version or 'unknown'}>"
