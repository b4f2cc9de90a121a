"""One gateway's view of identity: credentials in, principals out, from memory alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from foretype_backend.config.settings import IdentityConfig
from foretype_backend.identity.audit import AuditLog
from foretype_backend.identity.directory import Denial, Directory, Principal
from foretype_backend.identity.keys import parse
from foretype_backend.identity.store import IdentityStore
from foretype_backend.identity.store_purges import Presence, Purges
from foretype_backend.identity.store_watch import DirectoryWatch, JwksWatch, http_fetch
from foretype_backend.identity.tokens import TokenVerifier


class Identity:
    """Authenticates. Keys are told from bearer tokens by their form.

    Args:
        wall_ms: Unix milliseconds, for expiry.
        purges: of the store; None where nobody can ask for one.
    """

    def __init__(
        self,
        watch: DirectoryWatch,
        *,
        wall_ms: Callable[[], int],
        verifier: TokenVerifier | None = None,
        jwks: JwksWatch | None = None,
        purges: Purges | None = None,
    ) -> None:
        self.watch = watch
        self.purges = purges
        self.verifier = verifier
        self._jwks = jwks
        self._wall_ms = wall_ms

    @property
    def directory(self) -> Directory:
        return self.watch.directory

    def authenticate(self, token: str) -> Principal | Denial:
        """Who presents this bearer token."""
        now_ms = self._wall_ms()
        key = parse(token)
        if key is not None:
            return self.directory.of_key(key, now_ms)
        if self.verifier is None:
            return Denial.UNKNOWN
        return self.verifier.principal(token, self.directory, now_ms / 1000)

    @property
    def admits(self) -> bool:
        """False where nobody can be let in: the issuer's keys were never fetched, and there are no others."""
        return self.verifier is None or self.verifier.has_keys or self.directory.has_keys

    def still(self, principal: Principal) -> Denial | None:
        """Why somebody who was let in may not go on; None where they may."""
        return self.directory.still(principal, self._wall_ms())

    async def start(self) -> None:
        """Load everybody. Raises StoreError."""
        await self.watch.start()
        if self._jwks is not None:
            await self._jwks.start()

    async def close(self) -> None:
        if self._jwks is not None:
            await self._jwks.close()
        await self.watch.close()


async def open_identity(
    config: IdentityConfig,
    url: str,
    *,
    clock: Callable[[], float],
    wall_ms: Callable[[], int],
    name: str,
    audit: AuditLog | None = None,
) -> Identity:
    """Open the store of a configuration; `start` loads it. Raises StoreError.

    Args:
        url: of the store.
        clock: monotonic seconds.
        name: of this gateway's process, as others are told of it.
        audit: writes who did what; by default without a seal.
    """
    store = await IdentityStore.open(url, audit=audit, read_url=config.read_url)
    presence = Presence(store, name, secrets.token_hex(8), wall_ms=wall_ms)
    watch = DirectoryWatch(store, poll_s=config.poll_ms / 1000, clock=clock, presence=presence)
    purges = Purges(store, wall_ms=wall_ms)
    if config.oidc is None:
        return Identity(watch, wall_ms=wall_ms, purges=purges)
    verifier = TokenVerifier(config.oidc)
    jwks = JwksWatch(verifier, http_fetch(config.oidc.issuer, config.oidc.jwks_url), every_s=config.oidc.refresh_s)
    return Identity(watch, wall_ms=wall_ms, verifier=verifier, jwks=jwks, purges=purges)
