"""Data keys of opted-in texts, kept beside them, each wrapped by the master key that is in a file.

Without any the master key seals the texts itself. A rotation adds a data key, which gateways find within half a minute; what older
keys sealed is sealed again, and then those are removed. A key's id begins with its time, so that the newest sorts last.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import obstore
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from obstore.exceptions import BaseError

from foretype_backend.config.secret_files import SECRET_BYTES
from foretype_backend.errors import StoreError

MASTER: Final = ""
"""Stands for the master key among ids."""
NONCE_BYTES: Final = 12
RETIRE_S: Final = 600.0
"""A former key stays this long after its successor was made: a gateway may still be writing with it."""
_FOLDER: Final = ".keys"
"""No tenant's: their names have no dot."""
_FRESH_S: Final = 30.0


class TextKeys:
    """The keys under one URL. Every method raises StoreError alone.

    Args:
        store: obstore's.
        master: 32 bytes.
        clock: monotonic seconds.
    """

    def __init__(self, store: Any, place: str, master: bytes, clock: Callable[[], float]) -> None:
        self._store = store
        self._place = place
        self._master = master
        self._clock = clock
        self._seen_s: float | None = None
        self._ids: list[str] = []
        self._keys: dict[str, bytes] = {MASTER: master}

    async def newest(self) -> str:
        """The id of the key that seals now; looked for every half minute."""
        if self._seen_s is None or self._clock() - self._seen_s > _FRESH_S:
            await self.look()
        return self._ids[-1] if self._ids else MASTER

    async def former(self) -> list[str]:
        """Ids of data keys that have a successor."""
        await self.newest()
        return self._ids[:-1]

    async def key(self, id: str) -> bytes:
        if id not in self._keys:
            await self.look()
        if id not in self._keys:
            raise StoreError(
                f"telemetry.key_file: the key {id} of {self._place} is wrapped by another file than this one; name the file that "
                "`foretype privacy rotate-key` was given with --to"
            )
        return self._keys[id]

    async def add(self, now_ms: int, also: bytes | None = None) -> str:
        """Make the key that seals from now on.

        Args:
            also: another master key, which is to open this key and all before.
        """
        await self.look()
        id = f"{now_ms:012x}{secrets.token_hex(4)}"
        self._keys[id] = secrets.token_bytes(SECRET_BYTES)
        for each in [*self._ids, id]:  # the new one last: a reader that sees it finds the others readable
            for master in (self._master, also):
                if master is not None:
                    await self._wrap(each, await self.key(each), master)
        await self.look()
        return id

    async def retire(self, now_ms: int) -> int:
        """Remove former keys, where their successor is old enough; only when nothing is sealed with them. Returns how many."""
        former = await self.former()
        if not former or now_ms - int(self._ids[-1][:12], 16) < RETIRE_S * 1000:
            return 0
        try:
            gone = [path for path in await self._paths() if _id(path) in former]
            await obstore.delete_async(self._store, gone)
        except (BaseError, OSError) as error:
            raise self._fault(error) from error
        await self.look()
        return len(former)

    async def look(self) -> None:
        """See which keys there are."""
        own = _master_id(self._master)
        try:
            paths = await self._paths()
            for path in paths:
                if _id(path) not in self._keys and path.endswith(f".{own}"):
                    sealed = bytes(await (await obstore.get_async(self._store, path)).bytes_async())
                    plain = _wrapping(self._master).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], path.encode())
                    self._keys[_id(path)] = plain
        except InvalidTag as error:
            raise StoreError(f"a key of {self._place} was changed; restore {_FOLDER} from a backup") from error
        except (BaseError, OSError) as error:
            raise self._fault(error) from error
        self._ids = sorted({_id(path) for path in paths})
        self._seen_s = self._clock()

    async def _wrap(self, id: str, key: bytes, master: bytes) -> None:
        path, nonce = f"{_FOLDER}/{id}.{_master_id(master)}", secrets.token_bytes(NONCE_BYTES)
        try:
            await obstore.put_async(self._store, path, nonce + _wrapping(master).encrypt(nonce, key, path.encode()))
        except (BaseError, OSError) as error:
            raise self._fault(error) from error

    async def _paths(self) -> list[str]:
        listing: Any = obstore.list(self._store, prefix=_FOLDER)  # pyright: ignore[reportUnknownMemberType]
        return [str(entry["path"]) async for batch in listing for entry in batch]

    def _fault(self, error: Exception) -> StoreError:
        return StoreError(f"keys of the text store {self._place}: {str(error).splitlines()[0]}")


def _id(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def _master_id(master: bytes) -> str:
    return sha256(b"foretype telemetry master key id\0" + master).hexdigest()[:16]


def _wrapping(master: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), SECRET_BYTES, salt=None, info=b"foretype telemetry key wrap").derive(master))
