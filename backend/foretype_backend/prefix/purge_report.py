"""What a purge answers: the epoch that has begun, who has put it in place, and who has not."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Unreached(NamedTuple):
    """A gateway, or a worker of one, that may still serve from what was purged, and why."""

    gateway: str
    why: str


class Purged(NamedTuple):
    """The epoch is kept for good before anybody is told: who was not reached follows when it can."""

    epoch: int
    reached: tuple[str, ...]
    not_reached: tuple[Unreached, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.not_reached

    def report(self) -> dict[str, Any]:
        """As JSON tells it."""
        missing = [one._asdict() for one in self.not_reached]
        return {"complete": self.complete, "reached": list(self.reached), "not_reached": missing}


class Purger(Protocol):
    """Ends epochs, here and wherever the namespace is known."""

    async def purge(self, tenant: str, scope: str = "", *, actor: str = "") -> Purged:
        """End the epoch of a repository, or without one of the whole tenant. Raises PurgeError.

        Args:
            actor: who asks for it, for the audit log.
        """
        ...
