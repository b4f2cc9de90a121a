"""Cache salts: two namespaces share no block, however equal their text.

An engine mixes the salt into the key of a prompt's first block, and the chain of keys carries it on. The salt is made here and
nowhere else; what a client sends under that name never reaches an engine. Bumping a namespace's epoch makes everything that
was cached for it unreachable at once.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from typing import Final

from foretype_wire.subscriptions import Subscribers

from foretype_backend.prefix.rights import CacheRights

MIN_SECRET_BYTES: Final = 32
_REMEMBERED: Final = 20_000


@dataclass(frozen=True, slots=True, order=True)
class Namespace:
    """Whose cache it is.

    Attributes:
        scope: a repository, or "" for what the whole tenant shares.
        epoch: grows with every purge.
        owner: whose alone it is; "" where it is shared.
    """

    tenant: str
    scope: str = ""
    epoch: int = 0
    owner: str = ""

    def next(self) -> Namespace:
        return replace(self, epoch=self.epoch + 1)


def cache_salt(secret: bytes, namespace: Namespace) -> str:
    """HMAC-SHA256 of the namespace in 43 base64url characters, as vLLM asks of a `cache_salt`.

    Every field is preceded by its length: no two namespaces write the same bytes.

    Raises:
        ValueError: the secret has fewer than 32 bytes.
    """
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(
            f"the salt secret has {len(secret)} bytes, at least {MIN_SECRET_BYTES} are needed; make one with "
            "`openssl rand -hex 32`"
        )
    fields = (namespace.tenant, namespace.scope, str(namespace.epoch), *([namespace.owner] if namespace.owner else []))
    message = b"".join(
        len(data).to_bytes(4, "big") + data for data in (field.encode("utf-8", "surrogatepass") for field in fields)
    )
    return base64.urlsafe_b64encode(hmac.digest(secret, message, sha256)).rstrip(b"=").decode()


def tier_namespace(salt: str) -> str:
    """What a tier files a salt's blocks under: as unguessable and as short-lived as the salt, which it does not reveal."""
    return blake2b(salt.encode(), digest_size=16, person=b"foretype-tier").hexdigest()


def tier_secret(secret: bytes) -> bytes:
    """What entries of a shared store are authenticated with: of the same secret as the salts, and of no use for making one.

    Raises:
        ValueError: the secret has fewer than 32 bytes.
    """
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(f"the salt secret has {len(secret)} bytes, at least {MIN_SECRET_BYTES} are needed")
    return hmac.digest(secret, b"foretype shared tier", sha256)


class SaltBook:
    """The current epoch of every namespace that was ever purged; all others are at epoch 0.

    Args:
        epochs: as stored at the last shutdown. Losing them would make purged caches reachable again while an engine still
            holds them, so the owner keeps them with the tenants.
    """

    def __init__(self, secret: bytes, epochs: dict[tuple[str, str], int] | None = None) -> None:
        cache_salt(secret, Namespace(""))  # refuses a short secret at start
        self._secret = secret
        self._epochs = dict(epochs or {})
        self._salts: dict[Namespace, str] = {}
        self._rights = CacheRights()
        self.ended: Subscribers[str, str] = Subscribers()
        """Who keeps something of a tenant's scope, or with "" of the whole tenant, and has to let it go."""

    def namespace(self, tenant: str, scope: str = "", *, owner: str = "") -> Namespace:
        """The namespace as it is now. A purge of the tenant ends the epochs of all its scopes, that of a scope all owners'."""
        epoch = self._epochs.get((tenant, scope), 0) + self._epochs.get((tenant, ""), 0) * bool(scope)
        return Namespace(tenant, scope, epoch, owner)

    def salt(self, namespace: Namespace) -> str:
        found = self._salts.get(namespace)
        if found is None:
            if len(self._salts) >= _REMEMBERED:  # clients name their repositories
                self._salts.clear()
            found = self._salts[namespace] = cache_salt(self._secret, namespace)
        return found

    def purge(self, tenant: str, scope: str = "") -> Namespace:
        """Ends the current epoch of a scope, or with no scope of everything of a tenant; returns the namespace from now on."""
        self.follow({(tenant, scope): self._epochs.get((tenant, scope), 0) + 1})
        return self.namespace(tenant, scope)

    @property
    def rights(self) -> CacheRights:
        """Who shares what, as the owner of the tenants last said."""
        return self._rights

    def follow(self, epochs: Mapping[tuple[str, str], int], rights: CacheRights | None = None) -> None:
        """Be where these are, by tenant and scope; an epoch never goes back. `ended` is told of each that has moved."""
        self._rights = rights or self._rights
        moved = [(key, epoch) for key, epoch in epochs.items() if epoch > self._epochs.get(key, 0)]
        for (tenant, scope), epoch in moved:
            self._epochs[tenant, scope] = epoch
            self._salts = {known: salt for known, salt in self._salts.items() if known.tenant != tenant}
            self.ended.tell(tenant, scope)

    def epochs(self) -> dict[tuple[str, str], int]:
        """What has to survive a restart."""
        return dict(self._epochs)
