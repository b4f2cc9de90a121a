"""Keeps the snapshot of a gateway fresh: looks at the store's version twice a second, and fetches an issuer's keys.

While the store or the issuer is away the last snapshot serves; `age_s` tells for how long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from foretype_context.authorities import trusted
from foretype_wire.redaction import log_fault
from foretype_wire.subscriptions import Subscribers
from foretype_wire.tasks import end_tasks

from foretype_backend.errors import StoreError
from foretype_backend.identity.directory import Directory
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.store_purges import Presence
from foretype_backend.identity.tokens import TokenVerifier

_log = logging.getLogger("foretype.gateway")

_ANSWER_S: Final = 1.0
"""A store that takes longer counts as away; what was revoked meanwhile is seen with its next answer."""
_JWKS_LOOK_S: Final = 1.0
_JWKS_PAUSE_S: Final = 10.0
"""At most this often for unknown key ids, which anybody can send, and for an issuer that is away."""


class DirectoryWatch:
    """The current directory, and whom to tell when it changed.

    Where the store has a copy for reading, that is read while the store is away; `age_s` is the store's own all the same.

    Attributes:
        changed: told every newer directory, and every `recheck_s` for what time alone changes: keys expire. On the event loop.

    Args:
        presence: tells others what this process has put in place.
    """

    def __init__(
        self,
        store: IdentityStore,
        *,
        poll_s: float,
        clock: Callable[[], float],
        recheck_s: float = 30.0,
        presence: Presence | None = None,
    ) -> None:
        self.directory = Directory()
        self.changed: Subscribers[Directory] = Subscribers()
        self._store = store
        self._poll_s = poll_s
        self._recheck_s = recheck_s
        self._presence = presence
        self._in_place = -1
        self._clock = clock
        self._fresh_s = clock()
        self._task: asyncio.Task[None] | None = None

    @property
    def from_copy(self) -> bool:
        """What was read last came from the store's copy for reading: the store itself is away."""
        return self._store.from_copy

    @property
    def age_s(self) -> float:
        """Seconds since the store last confirmed the snapshot."""
        return self._clock() - self._fresh_s

    async def start(self) -> None:
        """Load the first snapshot. Raises StoreError: a gateway that knows nobody must not start."""
        presence = None if self.from_copy else self._presence
        if presence is not None:
            await presence.beat(-1)  # before it is read: a purge from here on waits for this process
        self.directory = await self._store.snapshot()
        self._in_place = self.directory.version
        if presence is not None:
            await presence.beat(self._in_place)
        self._fresh_s = self._clock()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        await end_tasks(self._task)
        if self._presence is not None:
            with contextlib.suppress(StoreError, TimeoutError):  # then its row is taken away later
                async with asyncio.timeout(_ANSWER_S):
                    await self._presence.leave()
        await self._store.close()

    async def look(self) -> bool:
        """Look once; True when there was something new. Raises StoreError or TimeoutError."""
        async with asyncio.timeout(_ANSWER_S + self._store.patience_s):
            version = await self._store.version()
        new = self._is_new(version)
        if new:
            async with asyncio.timeout(10 * _ANSWER_S):
                snapshot = await self._store.snapshot()
            new = self._is_new(snapshot.version)  # the store may have gone away in between
            if new:
                self.directory = snapshot
        if not self.from_copy:
            self._fresh_s = self._clock()
        if new:
            self.changed.tell(self.directory)
            self._in_place = self.directory.version  # not before: what failed half way is done again
        await self._tell(self._in_place)
        return new

    def _is_new(self, version: int) -> bool:
        """A copy that is behind must not give a key back that was revoked; a store that was restored may go back."""
        return version > self._in_place if self.from_copy else version != self._in_place

    async def _tell(self, version: int) -> None:
        """Say what is in place, where there is something to say."""
        if self._presence is not None and self._presence.due(version):
            async with asyncio.timeout(_ANSWER_S):
                await self._presence.beat(version)

    async def _run(self) -> None:
        failing, unchecked_s = False, 0.0
        while True:
            await asyncio.sleep(self._poll_s)
            unchecked_s += self._poll_s
            try:
                if unchecked_s >= self._recheck_s:
                    unchecked_s = 0.0
                    self.changed.tell(self.directory)
                await self.look()
                failing = False
            except (StoreError, TimeoutError) as error:
                if not failing:
                    _log.warning(
                        "the identity store does not answer (%s); the last snapshot serves", type(error).__name__
                    )
                failing = True
            except Exception as error:  # noqa: BLE001 - the watch must outlive any fault: without it no key is ever revoked
                log_fault(_log, "looking at the identity store failed", error)


class JwksWatch:
    """Fetches an issuer's keys every `every_s`; sooner where that failed, and when a token names an unknown one."""

    def __init__(
        self, verifier: TokenVerifier, fetch: Callable[[], Awaitable[dict[str, Any]]], *, every_s: float
    ) -> None:
        self._verifier = verifier
        self._fetch = fetch
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Fetch once; an issuer that is away at the start is tried again, and its tokens are refused meanwhile."""
        fetched = await self.refresh()
        self._task = asyncio.get_running_loop().create_task(self._run(fetched))

    async def close(self) -> None:
        await end_tasks(self._task)

    async def refresh(self) -> bool:
        try:
            async with asyncio.timeout(10.0):
                self._verifier.use(await self._fetch())
        except Exception as error:  # noqa: BLE001 - whatever an issuer answers, the former keys stay
            log_fault(_log, "the issuer's keys were not fetched; the former ones stay", error)
            return False
        return True

    async def _run(self, fetched: bool) -> None:
        while True:
            waited_s = 0.0
            while waited_s < self._every_s:
                await asyncio.sleep(_JWKS_LOOK_S)
                waited_s += _JWKS_LOOK_S
                if waited_s >= _JWKS_PAUSE_S and (not fetched or self._verifier.unknown_kid):
                    break
            fetched = await self.refresh()


def http_fetch(issuer: str, jwks_url: str | None) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Fetches a key set over HTTP; without its URL, the issuer's discovery document names it."""
    import httpx

    async def fetch() -> dict[str, Any]:
        async with httpx.AsyncClient(timeout=5.0, follow_redirects=False, trust_env=False, verify=trusted()) as client:
            url = jwks_url
            if url is None:
                found = await client.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
                found.raise_for_status()
                url = str(found.json()["jwks_uri"])
            answer = await client.get(url)
            answer.raise_for_status()
            with contextlib.suppress(ValueError):
                body = answer.json()
                if isinstance(body, dict):
                    return body  # pyright: ignore[reportUnknownVariableType] - `use` checks what is inside
            raise ValueError("the key set is no JSON object")

    return fetch
