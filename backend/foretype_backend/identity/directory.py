"""The snapshot of everybody who may ask, and the one decision about a credential. Pure; time is passed in.

A gateway asks nothing but this on the path of a completion. A newer snapshot replaces it as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from foretype_backend.admission.limits import Budget
from foretype_backend.identity.keys import ApiKey, matches
from foretype_backend.prefix.rights import CacheRights

DEFAULT_TENANT: Final = "default"
_NOBODY: Final = "0" * 64
_KEY: Final = "key:"


class Scope(StrEnum):
    """What a credential may do."""

    COMPLETE = "complete"
    CHAT = "chat"
    METRICS = "metrics"
    ADMIN = "admin"


class Tier(StrEnum):
    """What a tenant is promised; pools and chat objectives depend on it."""

    FREE = "free"
    PAID = "paid"


class Denial(StrEnum):
    """Why a credential is not taken; also the metric label. A client is told nothing of it."""

    MISSING = "missing"
    UNKNOWN = "unknown"
    WRONG = "wrong"
    REVOKED = "revoked"
    EXPIRED = "expired"
    DISABLED = "disabled"
    SCOPE = "scope"
    BAD_TOKEN = "bad_token"
    NO_KEYS = "no_keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """`budgets` by what they bound: `tenant`, `user` (each of them), or a request class such as `chat`."""

    name: str
    tier: Tier = Tier.PAID
    weight: float = 1.0
    budgets: Mapping[str, Budget] = field(default_factory=dict[str, Budget])
    epoch: int = 0
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    tenant: str
    name: str
    team: str = ""
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """Times are Unix milliseconds."""

    id: str
    hash: str
    tenant: str
    user: str = ""
    scopes: frozenset[Scope] = frozenset({Scope.COMPLETE, Scope.CHAT})
    expires_ms: int | None = None
    revoked_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks. `credential` names the key or token it was proved with, and is no secret.

    Attributes:
        expires_ms: Unix milliseconds; the end of a bearer token. None for a key: its record may change.
    """

    tenant: str = DEFAULT_TENANT
    team: str = ""
    user: str = ""
    scopes: frozenset[Scope] = frozenset(Scope)
    tier: Tier = Tier.PAID
    weight: float = 1.0
    credential: str = ""
    expires_ms: int | None = None


class Directory:
    """Tenants, users and keys as of one version.

    Attributes:
        experiments: rows of those that run, for :mod:`foretype_backend.experiments`.
    """

    def __init__(
        self,
        tenants: Iterable[Tenant] = (),
        users: Iterable[User] = (),
        keys: Iterable[KeyRecord] = (),
        *,
        version: int = -1,
        epochs: Mapping[tuple[str, str], int] | None = None,
        rights: Mapping[tuple[str, str], frozenset[str]] | None = None,
        experiments: Sequence[Any] = (),
    ) -> None:
        self.version = version
        self.experiments = experiments
        self._epochs = dict(epochs or {})
        self.tenants = {tenant.name: tenant for tenant in tenants}
        self.users = {(user.tenant, user.name): user for user in users}
        self.rights = CacheRights(rights or {}, self._team_of)
        self._keys = {key.id: key for key in keys}

    @property
    def has_keys(self) -> bool:
        return bool(self._keys)

    def _team_of(self, tenant: str, user: str) -> str | None:
        person = self.users.get((tenant, user))
        return None if person is None else person.team

    def epochs(self) -> dict[tuple[str, str], int]:
        """Of every cache namespace, by tenant and repository; the repository "" is the whole tenant."""
        return self._epochs | {(tenant.name, ""): tenant.epoch for tenant in self.tenants.values()}

    def of_key(self, key: ApiKey, now_ms: int) -> Principal | Denial:
        """Who holds this key. An unknown id costs the same comparison as a known one."""
        record = self._keys.get(key.id)
        right = matches(key, _NOBODY if record is None else record.hash)
        if record is None:
            return Denial.UNKNOWN
        if not right:
            return Denial.WRONG
        denial = self._stale(record, now_ms)
        if denial is not None:
            return denial
        credential = f"{_KEY}{record.id}"
        return self.principal(record.tenant, user=record.user, scopes=record.scopes, credential=credential)

    def principal(
        self,
        tenant: str,
        *,
        user: str,
        scopes: frozenset[Scope],
        credential: str,
        team: str = "",
        expires_ms: int | None = None,
    ) -> Principal | Denial:
        """The principal of somebody proved to be this user. Users that a token names need no row; those with one obey it."""
        known = self.tenants.get(tenant)
        person = self.users.get((tenant, user))
        if known is None:
            return Denial.UNKNOWN
        if not known.enabled or (person is not None and not person.enabled):
            return Denial.DISABLED
        return Principal(
            tenant=tenant,
            team=person.team if person is not None else team,
            user=user,
            scopes=scopes,
            tier=known.tier,
            weight=known.weight,
            credential=credential,
            expires_ms=expires_ms,
        )

    def still(self, principal: Principal, now_ms: int) -> Denial | None:
        """Why a principal that was let in earlier may not go on; None where it may."""
        if principal.credential.startswith(_KEY):
            record = self._keys.get(principal.credential.removeprefix(_KEY))
            denial = Denial.UNKNOWN if record is None else self._stale(record, now_ms)
            if denial is not None:
                return denial
        if principal.expires_ms is not None and principal.expires_ms <= now_ms:
            return Denial.EXPIRED
        again = self.principal(
            principal.tenant, user=principal.user, scopes=principal.scopes, credential=principal.credential
        )
        return again if isinstance(again, Denial) else None

    @staticmethod
    def _stale(record: KeyRecord, now_ms: int) -> Denial | None:
        if record.revoked_ms is not None and record.revoked_ms <= now_ms:
            return Denial.REVOKED
        if record.expires_ms is not None and record.expires_ms <= now_ms:
            return Denial.EXPIRED
        return None
