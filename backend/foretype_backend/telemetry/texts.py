"""Opted-in text: encrypted objects in a blob store, a local folder by default, anything S3-compatible otherwise.

AES-256-GCM with a key per tenant, derived (HKDF-SHA256) from the key in use (:mod:`.text_keys`). An object's path is its associated
data, so that no object can be passed off as another. Paths say tenant, user and day, which is what retention and deletion go by, and
end in the id of the key.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import obstore
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from foretype_backend.config.secret_files import KEY_FIELD, SECRET_BYTES, read_secret
from foretype_backend.errors import ConfigError, StoreError
from foretype_backend.telemetry.text_keys import MASTER, NONCE_BYTES, TextKeys


class Resealed(NamedTuple):
    """Objects that were sealed again, and how many are left under former keys."""

    done: int
    left: int


def read_key(named: str | Path | None, own: Path) -> bytes:
    """The key in the file that is named, or in `own`, made on first use with mode 0600. Raises StoreError."""
    try:
        return read_secret(KEY_FIELD, named, own)
    except ConfigError as error:
        raise StoreError(str(error)) from error


class Texts:
    """Objects under one URL. Every method raises StoreError alone.

    Args:
        url: `s3://bucket/prefix` and the like, or the path of a folder.
        key: 32 bytes.
        clock: monotonic seconds.
    """

    def __init__(self, url: str, key: bytes, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.place = url
        try:
            self._store: Any = (
                from_url(url) if "://" in url else LocalStore(Path(url).absolute(), mkdir=True, automatic_cleanup=True)
            )
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise StoreError(f"telemetry.text_url: {url}: {error}") from error
        self.keys = TextKeys(self._store, url, key, clock)

    async def put(self, tenant: str, user: str, day: str, name: str, samples: Sequence[msgspec.Struct]) -> None:
        """Keep samples as one object; the same name again replaces it."""
        await self._put(f"{tenant}/{user}/{day}/{name}", msgspec.msgpack.encode(list(samples)))

    async def read(self, path: str) -> list[dict[str, object]]:
        """The samples of one object, also where it was sealed again since it was listed."""
        if not await self._is_there(path):
            folder, name = path.rpartition("/")[0], _name_of(path)
            path = next((one for one in [one async for one in self.paths(folder)] if _name_of(one) == name), path)
        return msgspec.msgpack.decode(await self._plain(path), type=list[dict[str, object]])

    async def reseal(self, most: int) -> Resealed:
        """Seal again up to so many objects that a former key sealed. Killed half way, it has lost nothing: go on with it.

        What removes objects must not run meanwhile (:meth:`.store.Store.alone`): one would come back.
        """
        newest = await self.keys.newest()
        old = [path async for path in self.paths("") if _key_of(path) != newest and not path.startswith(".")]
        for path in old[:most]:
            await self._put(path.rpartition("/")[0] + "/" + _name_of(path), await self._plain(path))
            try:
                await obstore.delete_async(self._store, path)
            except (BaseError, OSError) as error:
                raise StoreError(f"{path} cannot be removed: {str(error).splitlines()[0]}") from error
        return Resealed(len(old[:most]), len(old[most:]))

    async def _is_there(self, path: str) -> bool:
        try:
            await obstore.head_async(self._store, path)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            raise StoreError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
        return True

    async def _put(self, path: str, plain: bytes) -> None:
        id = await self.keys.newest()
        path = f"{path}.{id}" if id != MASTER else path
        nonce = secrets.token_bytes(NONCE_BYTES)
        cipher = _cipher(await self.keys.key(id), path.split("/", 1)[0])
        try:
            await obstore.put_async(self._store, path, nonce + cipher.encrypt(nonce, plain, path.encode()))
        except (BaseError, OSError) as error:
            raise StoreError(f"the text store {self.place} takes nothing: {str(error).splitlines()[0]}") from error

    async def _plain(self, path: str) -> bytes:
        cipher = _cipher(await self.keys.key(_key_of(path)), path.split("/", 1)[0])
        try:
            sealed = bytes(await (await obstore.get_async(self._store, path)).bytes_async())
            return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], path.encode())
        except InvalidTag as error:
            raise StoreError(
                f"{path} cannot be decrypted: the key is another one, or the object was changed"
            ) from error
        except (BaseError, OSError, ValueError) as error:
            raise StoreError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error

    async def paths(self, prefix: str) -> AsyncGenerator[str]:
        """Paths of all objects under `TENANT` or `TENANT/USER`, or of everything."""
        try:
            listing: Any = obstore.list(self._store, prefix=prefix or None)  # pyright: ignore[reportUnknownMemberType]
            async for batch in listing:
                for entry in batch:
                    yield str(entry["path"])
        except (BaseError, OSError) as error:
            raise StoreError(f"the text store {self.place} cannot be listed: {str(error).splitlines()[0]}") from error

    async def delete(self, *, tenant: str, user: str | None = None, before_day: str | None = None) -> int:
        """Remove the objects of a tenant, of one user of it, or those older than a day. Returns how many."""
        found = [path async for path in self.paths(tenant if user is None else f"{tenant}/{user}")]
        old = [path for path in found if before_day is None or path.split("/")[2] < before_day]
        try:
            if old:
                await obstore.delete_async(self._store, old)
        except (BaseError, OSError) as error:
            raise StoreError(f"the text store {self.place} keeps objects: {str(error).splitlines()[0]}") from error
        return len(old)


def _key_of(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[2]


def _name_of(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def _cipher(key: bytes, tenant: str) -> AESGCM:
    derived = HKDF(SHA256(), SECRET_BYTES, salt=None, info=b"foretype telemetry text\0" + tenant.encode())
    return AESGCM(derived.derive(key))
