"""Opted-in text: encrypted objects in a blob store, a local folder by default, anything S3-compatible otherwise.

AES-256-GCM with a key per tenant, derived (HKDF-SHA256) from one key file. An object's path is its associated data, so that no
object can be passed off as another. Paths say tenant, user and day, which is what retention and deletion go by.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final

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

__all__ = ["Texts", "read_key"]

_NONCE_BYTES: Final = 12


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
    """

    def __init__(self, url: str, key: bytes) -> None:
        self.place = url
        self._key = key
        try:
            self._store: Any = (
                from_url(url) if "://" in url else LocalStore(Path(url).absolute(), mkdir=True, automatic_cleanup=True)
            )
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise StoreError(f"telemetry.text_url: {url}: {error}") from error

    async def put(self, tenant: str, user: str, day: str, name: str, samples: Sequence[msgspec.Struct]) -> None:
        """Keep samples as one object; the same name again replaces it."""
        path = f"{tenant}/{user}/{day}/{name}"
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher(tenant).encrypt(nonce, msgspec.msgpack.encode(list(samples)), path.encode())
        try:
            await obstore.put_async(self._store, path, sealed)
        except (BaseError, OSError) as error:
            raise StoreError(f"the text store {self.place} takes nothing: {str(error).splitlines()[0]}") from error

    async def read(self, path: str) -> list[dict[str, object]]:
        """The samples of one object."""
        try:
            sealed = bytes(await (await obstore.get_async(self._store, path)).bytes_async())
            plain = self._cipher(path.split("/", 1)[0]).decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], path.encode()
            )
        except InvalidTag as error:
            raise StoreError(
                f"{path} cannot be decrypted: the key is another one, or the object was changed"
            ) from error
        except (BaseError, OSError, ValueError) as error:
            raise StoreError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
        return msgspec.msgpack.decode(plain, type=list[dict[str, object]])

    async def paths(self, prefix: str) -> AsyncGenerator[str]:
        """Paths of all objects under `TENANT` or `TENANT/USER`."""
        try:
            listing: Any = obstore.list(self._store, prefix=prefix)  # pyright: ignore[reportUnknownMemberType]
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

    def _cipher(self, tenant: str) -> AESGCM:
        derived = HKDF(SHA256(), SECRET_BYTES, salt=None, info=b"foretype telemetry text\0" + tenant.encode())
        return AESGCM(derived.derive(self._key))
