"""What can be wrong with a store, in words that name the remedy. Nothing is acknowledged while any of it is."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

__all__ = ["StoreBusy", "StoreError", "explain"]


class StoreError(Exception):
    """The store cannot take or give anything now; the message names what is wrong and what to do."""


class StoreBusy(StoreError):
    """Too much waits for the store already; the sender keeps its batch and tries again."""


def explain(error: BaseException, place: str) -> StoreError:
    """Turn what a driver raised into what an operator can act on. Values of a statement never reach the message."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = str(cause).split("\n", 1)[0].strip() or type(cause).__name__
    lower = text.lower()
    if "readonly" in lower or "read-only" in lower or "permission denied" in lower:
        return StoreError(f"{place} is read-only ({text}); make it writable, or start with --no-telemetry")
    if "disk is full" in lower or "no space left" in lower or "disk full" in lower:
        return StoreError(
            f"{place} is full ({text}); make room: nothing is acknowledged, and clients keep their events"
        )
    if "unable to open" in lower or "not a database" in lower or "malformed" in lower:
        return StoreError(f"{place} cannot be opened ({text}); check the path, or move the file away for a new one")
    if "already exists" in lower:
        return StoreError(
            f"{place} was migrated halfway ({text}); restore it from a backup, or move it away for a new one"
        )
    if "locked" in lower:
        return StoreError(f"{place} is locked by another process ({text}); end it, or give another --telemetry-url")
    if "connect" in lower or "refused" in lower or "password" in lower or "does not exist" in lower:
        return StoreError(f"{place} cannot be reached ({text}); check telemetry.url and the server")
    kind = type(error).__name__ if isinstance(error, SQLAlchemyError) else type(cause).__name__
    return StoreError(f"{place}: {kind}: {text}")
