"""Purges that survive a restart: the epochs of namespaces on disk, written before a purge takes effect."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from foretype_backend.prefix.salt import SaltBook

__all__ = ["EpochFile", "EpochsUnreadable", "read_epochs"]


class EpochsUnreadable(ValueError):
    """The file is damaged. Without it, purged caches would be reachable again; the message says how to go on."""


def read_epochs(path: Path) -> dict[tuple[str, str], int]:
    """Epochs by tenant and scope; none where there is no file. Raises EpochsUnreadable."""
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[tuple[str, str, int]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EpochsUnreadable(
            f"cannot read {path} ({error}); delete it and make a new salt secret, so that no purged cache is reachable"
        ) from error
    return {(tenant, scope): epoch for tenant, scope, epoch in rows}


class EpochFile:
    """The epochs of a salt book, kept in a file of one gateway (a tenant's own epoch is the identity store's)."""

    def __init__(self, path: Path, salts: SaltBook) -> None:
        self._path = path
        self._salts = salts

    def purge(self, tenant: str, scope: str = "") -> int:
        """Ends an epoch for good; returns the new one. Raises OSError where it cannot be written: then nothing is purged."""
        key = tenant, scope
        epochs = self._salts.epochs()
        self._write({**epochs, key: epochs.get(key, 0) + 1})
        return self._salts.purge(tenant, scope).epoch

    def _write(self, epochs: Mapping[tuple[str, str], int]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        rows = [(tenant, scope, epoch) for (tenant, scope), epoch in sorted(epochs.items())]
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(rows))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
