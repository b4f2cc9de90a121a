"""The gateway's tokenizer, kept on the user's disk: downloaded once, verified by its digest, never half a file."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Final

from foretype_wire.credentials import without_credentials
from foretype_wire.errors import TokenInClearError

from foretype_client.errors import TokenizerFetchError
from foretype_client.ports import Endpoint
from foretype_client.session.connecting import http_base, http_client

_log = logging.getLogger("foretype.client")

MAX_TOKENIZER_BYTES: Final = 64 << 20

_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_TIMEOUT_S: Final = 10.0
_READ_TIMEOUT_S: Final = 30.0


class TokenizerStore:
    """`{directory}/{digest}.json`, one file per tokenizer, readable by the user alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def fetch(self, endpoint: Endpoint, digest: str) -> bytes:
        """The tokenizer with this digest, downloaded if it is not there yet. If the disk does not take it, each process downloads it.

        Raises:
            TokenizerFetchError: with the reason.
        """
        if _DIGEST.fullmatch(digest) is None:
            raise TokenizerFetchError(f"tokenizer_digest {digest!r} is not 32 hexadecimal digits")
        path = self.directory / f"{digest}.json"
        if (kept := await asyncio.to_thread(_read_intact, path, digest)) is not None:
            return kept
        data = await self._download(endpoint, digest)
        if _digest_of(data) != digest:
            raise TokenizerFetchError(
                f"the gateway sent a tokenizer whose digest is not {digest}; is a proxy in between?"
            )
        try:
            await asyncio.to_thread(_write, path, data)
        except OSError as error:
            _log.warning(
                "cannot keep the tokenizer in %s (%s): it is fetched again next time", self.directory, error.strerror
            )
        return data

    async def _download(self, endpoint: Endpoint, digest: str) -> bytes:
        import httpx  # needed once per tokenizer and machine; at the top of the module every editor would wait for this import

        url = f"{http_base(endpoint.url)}/v1/tokenizers/{digest}"
        timeout = httpx.Timeout(_TIMEOUT_S, read=_READ_TIMEOUT_S)
        shown = without_credentials(url)
        try:
            async with (
                http_client(url, timeout) as client,
                client.stream("GET", url, headers=endpoint.headers()) as response,
            ):
                if response.status_code != 200:
                    raise TokenizerFetchError(f"{shown} answered {response.status_code}")
                data = bytearray()
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > MAX_TOKENIZER_BYTES:
                        raise TokenizerFetchError(f"{shown} sent more than {MAX_TOKENIZER_BYTES} bytes")
        except (httpx.HTTPError, httpx.InvalidURL, TokenInClearError) as error:
            raise TokenizerFetchError(f"{shown}: {error or type(error).__name__}") from error
        return bytes(data)


def _digest_of(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _read_intact(path: Path, digest: str) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if _digest_of(data) == digest else None


def _write(path: Path, data: bytes) -> None:
    """Atomic: other processes see the whole file or none. `mkstemp` makes it 0600."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
