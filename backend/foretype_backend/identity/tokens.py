"""OIDC bearer tokens: verified with keys in memory. Fetching them is `store_watch`'s; this module never touches a network.

Algorithms are asymmetric alone: a token that names `none` or an HMAC would be signed with what everybody knows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple, cast

import jwt

from foretype_backend.config.names import is_name
from foretype_backend.config.settings import OidcConfig
from foretype_backend.identity.directory import Denial, Directory, Principal, Scope

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LEEWAY_S: Final = 30
_LATEST_S: Final = 1e11  # the year 5138
_REMEMBERED: Final = 4096
_MAX_TOKEN_CHARS: Final = 16_384


class _Verified(NamedTuple):
    claims: Mapping[str, Any]
    until_s: float


class TokenVerifier:
    """Who a bearer token proves its holder to be.

    A signature is checked once (some 50 µs); the token is remembered by its digest until it expires or the keys change.
    """

    def __init__(self, config: OidcConfig) -> None:
        self.config = config
        self._keys: dict[str, jwt.PyJWK] = {}
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        self.unknown_kid = False
        """A token named a key that is not here: the issuer may have rotated. Fetching the keys clears it."""

    @property
    def has_keys(self) -> bool:
        return bool(self._keys)

    def use(self, jwks: Mapping[str, Any]) -> int:
        """Take a key set, in place of the former. Returns how many keys can be used. Raises ValueError for none."""
        found: dict[str, jwt.PyJWK] = {}
        for entry in cast("list[Any]", jwks.get("keys") if isinstance(jwks.get("keys"), list) else []):
            try:
                key = jwt.PyJWK(entry)
            except (jwt.PyJWTError, TypeError, ValueError, AttributeError):
                continue  # a key of a kind that nobody here can use
            if key.algorithm_name in ALGORITHMS and entry.get("use", "sig") == "sig":
                found[str(key.key_id or "")] = key
        if not found:
            raise ValueError("the key set holds no key for signatures of an algorithm that is allowed")
        self._keys, self.unknown_kid = found, False
        self._verified.clear()
        return len(found)

    def principal(self, token: str, directory: Directory, now_s: float) -> Principal | Denial:
        """Verify, and look the tenant up. `now_s` is Unix seconds."""
        known = self._known(token, now_s)
        if isinstance(known, Denial):
            return known
        config, claims = self.config, known.claims
        tenant, team, user = (claims.get(name, "") for name in (config.tenant_claim, config.team_claim, "sub"))
        tenant = config.tenant or tenant
        if not (isinstance(tenant, str) and is_name(tenant) and _is_user(user)):
            return Denial.BAD_TOKEN
        digest = blake2b(token.encode(), digest_size=8).hexdigest()
        return directory.principal(
            tenant,
            user=user,
            team=team if isinstance(team, str) and is_name(team) else "",
            scopes=_scopes(claims.get("scope")),
            credential=f"jwt:{digest}",
            expires_ms=round(known.until_s * 1000),
        )

    def _known(self, token: str, now_s: float) -> _Verified | Denial:
        if not self._keys:
            return Denial.NO_KEYS
        if len(token) > _MAX_TOKEN_CHARS or not token.isascii():
            return Denial.BAD_TOKEN
        digest = blake2b(token.encode(), digest_size=32).digest()
        known = self._verified.get(digest)
        if known is None:
            try:
                known = self._verify(token, now_s)
            except (jwt.PyJWTError, ValueError, TypeError):
                return Denial.BAD_TOKEN
            self._verified[digest] = known
            if len(self._verified) > _REMEMBERED:
                self._verified.popitem(last=False)
        return known if now_s < known.until_s else Denial.EXPIRED

    def _verify(self, token: str, now_s: float) -> _Verified:
        header = jwt.get_unverified_header(token)
        kid = str(header.get("kid", ""))
        key = self._keys.get(kid) or (next(iter(self._keys.values())) if not kid and len(self._keys) == 1 else None)
        if key is None:
            self.unknown_kid = True
            raise jwt.InvalidKeyError("unknown kid")
        if header.get("alg") != key.algorithm_name:
            raise jwt.InvalidAlgorithmError("the token names another algorithm than its key")
        # Times are checked below against the clock that was passed in; the library would read its own.
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=self.config.audience,
            issuer=self.config.issuer,
            options={
                "require": ["exp", "iss", "aud", "sub"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
        begins, ends = claims.get("nbf", 0), claims["exp"]
        if not isinstance(ends, int | float) or not isinstance(begins, int | float) or now_s + _LEEWAY_S < begins:
            raise ValueError("times")
        if not 0 <= ends < _LATEST_S:  # JSON's numbers have no end, and some parsers know NaN
            raise ValueError("exp")
        return _Verified(claims, float(ends) + _LEEWAY_S)


def _is_user(claim: object) -> bool:
    """`sub` is whatever an issuer calls people; what no store could keep (NUL, half a surrogate pair) is no name."""
    return isinstance(claim, str) and 0 < len(claim) <= 128 and claim.isprintable()


def _scopes(claim: object) -> frozenset[Scope]:
    """`scope` of OAuth 2: words; those of ours count. Without any of ours: to complete and to chat."""
    words = claim.split() if isinstance(claim, str) else []
    known = {scope.value: scope for scope in Scope}
    ours = frozenset(known[word.removeprefix("foretype:")] for word in words if word.removeprefix("foretype:") in known)
    return ours or frozenset({Scope.COMPLETE, Scope.CHAT})
