"""Where a server's name leads. A name server that hangs or fails takes no server out of service that was found before."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import httpcore
import httpx
from foretype_wire.tasks import end_tasks, in_own_thread

_T = TypeVar("_T")

_PATIENCE_S: Final = 0.3
"""For a lookup where addresses are known: longer than name servers take that work, shorter than a check of a replica may."""


class KnownAddresses:
    """The addresses that a lookup last found, and how long the next is waited for. Pure; time is passed in."""

    def __init__(self) -> None:
        self.last: tuple[str, ...] = ()
        self._asked_s = 0.0

    def asked(self, now: float) -> None:
        self._asked_s = now

    def found(self, addresses: Iterable[str]) -> None:
        """They take the place of the former, which may be another server's by now."""
        self.last = tuple(dict.fromkeys(addresses)) or self.last

    def patience_s(self, now: float) -> float | None:
        """What is left of it for the lookup under way; None is as long as that takes."""
        return max(0.0, self._asked_s + _PATIENCE_S - now) if self.last else None


class ServerName:
    """One host. All who connect share a lookup, in a thread of its own: one that hangs holds no other work of the process up."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self._port = host, port
        self._known = KnownAddresses()
        self._lookup: asyncio.Task[OSError | None] | None = None

    @classmethod
    def of(cls, url: httpx.URL) -> ServerName:
        return cls(url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80))

    async def connected(self, connect: Callable[[str], Awaitable[_T]]) -> _T:
        """What `connect` makes of the first address that takes it. Raises OSError: there is no address, or none takes it."""
        if _is_address(self.host):
            return await connect(self.host)
        lookup = self._asked()
        await asyncio.wait([lookup], timeout=self._known.patience_s(asyncio.get_running_loop().time()))
        tried = self._known.last
        if not tried:
            raise lookup.result() or OSError(f"{self.host} has no address")
        try:
            return await _first(tried, connect)
        except OSError:
            await asyncio.wait([lookup])
            if self._known.last == tried:
                raise
        return await _first(self._known.last, connect)  # a container that comes back has another

    async def close(self) -> None:
        await end_tasks(self._lookup)

    def _asked(self) -> asyncio.Task[OSError | None]:
        if self._lookup is None or self._lookup.done():
            loop = asyncio.get_running_loop()
            self._known.asked(loop.time())
            self._lookup = loop.create_task(self._look(), name=f"address of {self.host}")
        return self._lookup

    async def _look(self) -> OSError | None:
        """What went wrong."""
        try:
            self._known.found(await in_own_thread(lambda: resolved(self.host, self._port)))
        except OSError as error:
            return error
        except UnicodeError as error:  # no name at all
            return OSError(str(error))
        return None


class _NamedBackend(httpcore.AsyncNetworkBackend):
    """Connects as `inner` does, to the addresses of one name."""

    def __init__(self, name: ServerName, inner: httpcore.AsyncNetworkBackend) -> None:
        self._name, self._inner = name, inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        async def connect(address: str) -> httpcore.AsyncNetworkStream:
            try:
                return await self._inner.connect_tcp(address, port, None, local_address, socket_options)
            except httpcore.ConnectError as error:
                raise OSError(str(error)) from error

        try:
            async with asyncio.timeout(timeout):
                return await self._name.connected(connect)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout("no connection in time") from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error


def named_transport(name: ServerName, verify: ssl.SSLContext | bool, limits: httpx.Limits) -> httpx.AsyncHTTPTransport:
    """Of a general client that asks this server alone."""
    transport = httpx.AsyncHTTPTransport(verify=verify, limits=limits, trust_env=False)
    pool: Any = transport._pool  # pyright: ignore[reportPrivateUsage]  # httpx hands no such parameter on
    pool._network_backend = _NamedBackend(name, pool._network_backend)
    return transport


def resolved(host: str, port: int) -> list[str]:
    """Blocks. Raises OSError, UnicodeError."""
    return [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False


async def _first(addresses: Sequence[str], connect: Callable[[str], Awaitable[_T]]) -> _T:
    for address in addresses[:-1]:
        with suppress(OSError):
            return await connect(address)
    return await connect(addresses[-1])
