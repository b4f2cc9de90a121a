"""Where replicas are announced: the addresses of a DNS name, a directory that speaks HTTP service discovery, or the same list in a file."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urljoin

import httpx
from foretype_context.authorities import trusted
from foretype_wire.credentials import without_credentials

from foretype_backend.config.fleet import DiscoveryConfig
from foretype_backend.errors import DirectoryError
from foretype_backend.fleet.members.announced import (
    Announced,
    AnnouncedRollout,
    DirectoryAnswer,
    address_of,
    read_replicas,
    read_rollouts,
)

_MOST_BYTES: Final = 4 << 20
"""Largest answer; a thousand replicas take a third of a megabyte."""


class Source(Protocol):
    async def ask(self) -> DirectoryAnswer:
        """The replicas now. Raises DirectoryError: the source is away, or its answer cannot be read."""
        ...

    async def rollout(self) -> AnnouncedRollout | None:
        """Which revisions get requests; None if the source does not say. Raises DirectoryError."""
        ...

    async def close(self) -> None: ...


Records = Callable[[str], Awaitable[list[tuple[str, int]]]]
"""Resolves a name to addresses with their ports; raises OSError."""


class DnsSource:
    """The addresses of a headless service. A replica is named by its address, since DNS has no other name for it.

    Args:
        find: resolves the name; by default the system's resolver, or for SRV records DNS itself.
    """

    def __init__(self, config: DiscoveryConfig, find: Records | None = None) -> None:
        assert config.name is not None
        self._name = config.name
        self._timeout_s = config.timeout_s
        self._find = find or (_services if config.port is None else _addresses(config.port))

    async def ask(self) -> DirectoryAnswer:
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._find(self._name)
        except TimeoutError as error:
            raise DirectoryError(f"{self._name} is not resolved within {self._timeout_s:g} s") from error
        except OSError as error:
            raise DirectoryError(f"{self._name} cannot be resolved ({error})") from error
        places = sorted({address_of(f"[{host}]:{port}" if ":" in host else f"{host}:{port}") for host, port in found})
        if not places:
            raise DirectoryError(f"{self._name} has no addresses; whoever serves goes on")
        return DirectoryAnswer(tuple(Announced(place, place) for place in places))

    async def rollout(self) -> AnnouncedRollout | None:
        return None

    async def close(self) -> None: ...


def _addresses(port: int) -> Records:
    async def find(name: str) -> list[tuple[str, int]]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        return [(str(one[4][0]), port) for one in found]

    return find


async def _services(name: str) -> list[tuple[str, int]]:
    """Resolves a name by SRV records, which the system's resolver does not ask for."""
    import dns.asyncresolver
    import dns.exception

    try:
        answer: Any = await dns.asyncresolver.resolve(name, "SRV")
        found: list[tuple[str, int]] = []
        for record in answer:
            found += await _addresses(record.port)(record.target.to_text(omit_final_dot=True))
    except dns.exception.DNSException as error:
        raise OSError(str(error) or type(error).__name__) from error
    return found


class FileSource:
    """A list that somebody keeps by hand, or a program writes."""

    def __init__(self, config: DiscoveryConfig) -> None:
        assert config.path is not None
        self._path, self._pool, self._timeout_s = Path(config.path), config.pool, config.timeout_s

    async def ask(self) -> DirectoryAnswer:
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await asyncio.to_thread(self._read)
        except TimeoutError as error:
            raise DirectoryError(f"{self._path} is not read within {self._timeout_s:g} s") from error
        except OSError as error:
            raise DirectoryError(f"{self._path} cannot be read ({error.strerror})") from error
        if len(body) > _MOST_BYTES:
            raise DirectoryError(f"{self._path} holds more than {_MOST_BYTES >> 20} MiB")
        return read_replicas(body, self._pool)

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            return file.read(_MOST_BYTES + 1)

    async def rollout(self) -> AnnouncedRollout | None:
        return None

    async def close(self) -> None: ...


class HttpSource:
    """A directory. Its last answer is kept with the ETag, so that an unchanged answer costs no more than a response's head.

    Only replicas whose label `pool` is the configured pool are taken.
    """

    def __init__(self, config: DiscoveryConfig) -> None:
        assert config.url is not None
        self._url, self._pool = config.url, config.pool
        self._rollouts_url = urljoin(config.url, "rollouts")
        self._token_file = None if config.token_file is None else Path(config.token_file)
        self._timeout_s = config.timeout_s
        self._kept: dict[str, tuple[str, bytes]] = {}
        self._read: tuple[bytes, DirectoryAnswer] | None = None  # what is unchanged is not read again
        self._client: httpx.AsyncClient | None = None

    async def ask(self) -> DirectoryAnswer:
        body = await self._get(self._url)
        if body is None:
            raise DirectoryError(f"{without_credentials(self._url)} answers 404; is it the path of a directory?")
        if self._read is None or self._read[0] is not body:
            self._read = body, read_replicas(body, self._pool)
        return self._read[1]

    async def rollout(self) -> AnnouncedRollout | None:
        body = await self._get(self._rollouts_url)
        return None if body is None else read_rollouts(body, self._pool)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _get(self, url: str) -> bytes | None:
        """The body of the answer; None for 404."""
        if self._client is None:
            tls = trusted() if self._url.startswith("https://") else False
            self._client = httpx.AsyncClient(timeout=self._timeout_s, trust_env=False, verify=tls)
        headers = {"Accept": "application/json"}
        tag, kept = self._kept.get(url, ("", b""))
        if tag:
            headers["If-None-Match"] = tag
        try:
            if self._token_file is not None:  # read each time, because the file is renewed while the gateway runs
                headers["Authorization"] = f"Bearer {self._token_file.read_text('ascii').strip()}"
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("GET", url, headers=headers) as response,
            ):
                if response.status_code == 304 and tag:
                    return kept
                if response.status_code == 404:
                    return None
                if response.status_code != 200:
                    raise DirectoryError(f"{without_credentials(url)} answers {response.status_code}")
                body = await _bounded(response, url)
        except TimeoutError as error:
            raise DirectoryError(f"{without_credentials(url)} does not answer within {self._timeout_s:g} s") from error
        except (httpx.HTTPError, OSError, UnicodeError) as error:
            raise DirectoryError(
                f"{without_credentials(url)} cannot be asked ({type(error).__name__}: {error})"
            ) from error
        self._kept[url] = response.headers.get("ETag", ""), body
        return body


async def _bounded(response: httpx.Response, url: str) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > _MOST_BYTES:
            raise DirectoryError(f"{without_credentials(url)} answers with more than {_MOST_BYTES >> 20} MiB")
    return bytes(body)


def source_of(config: DiscoveryConfig) -> Source:
    match config.source:
        case "http":
            return HttpSource(config)
        case "file":
            return FileSource(config)
        case "dns":
            return DnsSource(config)
