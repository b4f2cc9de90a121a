"""Purges that survive a restart: the epochs of namespaces on disk, written before a purge takes effect."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from filelock import FileLock

from foretype_backend.errors import EpochFileError, PurgeError
from foretype_backend.prefix.purge_report import Purged, Unreached
from foretype_backend.prefix.salt import SaltBook

_LOCK_S: Final = 5.0


def read_epochs(path: Path) -> dict[tuple[str, str], int]:
    """Epochs by tenant and scope; none where there is no file. Raises EpochFileError."""
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[tuple[str, str, int]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EpochFileError(
            f"cannot read {path} ({error}); delete it and make a new salt secret, so that no purged cache is reachable"
        ) from error
    return {(tenant, scope): epoch for tenant, scope, epoch in rows}


class EpochFile:
    """The epochs of one gateway without an identity store; its workers share the file.

    Args:
        path: the file; read once at the start, when `salts` is made.
        salts: of this process.
    """

    def __init__(self, path: Path, salts: SaltBook) -> None:
        self._path = path
        self._salts = salts

    def follow(self) -> None:
        """Put in place what stands in the file. Raises EpochFileError."""
        self._salts.follow(read_epochs(self._path))

    async def purge(self, tenant: str, scope: str = "") -> int:
        """Ends an epoch for good; returns the new one. Raises OSError or EpochFileError: then nothing is purged."""
        epoch = await asyncio.to_thread(self._end, tenant, scope)
        self.follow()
        return epoch

    def _end(self, tenant: str, scope: str) -> int:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(self._path.with_name(f".{self._path.name}.lock"), timeout=_LOCK_S):
            epochs = read_epochs(self._path)
            for key, epoch in self._salts.epochs().items():  # a file that was deleted takes nothing back
                epochs[key] = max(epoch, epochs.get(key, 0))
            epochs[tenant, scope] = epochs.get((tenant, scope), 0) + 1
            self._write(epochs)
            return epochs[tenant, scope]

    def _write(self, epochs: Mapping[tuple[str, str], int]) -> None:
        rows = [(tenant, scope, epoch) for (tenant, scope), epoch in sorted(epochs.items())]
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(rows))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)


class WorkerPurger:
    """Purges of a gateway without an identity store: in its file, and in each of its workers.

    Args:
        ask: the other workers, who answer `True` by slot, None where they do not.
        note: writes a purge (tenant, scope, who asks) to the audit log before it is done. Raises PurgeError.
        slot: of this worker.
    """

    def __init__(
        self,
        file: EpochFile,
        ask: Callable[[], Awaitable[Mapping[int, bool | None]]],
        *,
        note: Callable[[str, str, str], Awaitable[None]],
        slot: int = 0,
    ) -> None:
        self._file = file
        self._ask = ask
        self._note = note
        self._slot = slot

    async def purge(self, tenant: str, scope: str = "", *, actor: str = "") -> Purged:
        """See :class:`.purge.Purger`."""
        await self._note(tenant, scope, actor)
        try:
            epoch = await self._file.purge(tenant, scope)
        except (OSError, EpochFileError) as error:
            raise PurgeError(f"its epoch cannot be kept ({error})") from error
        answers = {self._slot: True, **await self._ask()}
        return Purged(
            epoch=epoch,
            reached=tuple(f"worker {slot}" for slot, there in sorted(answers.items()) if there),
            not_reached=tuple(
                Unreached(f"worker {slot}", "does not answer; it follows when it does, or when it has started again")
                for slot, there in sorted(answers.items())
                if not there
            ),
        )
