"""API keys: `ft_ID_SECRET`. The id finds the record, the secret is compared by its hash in constant time. Pure."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

PREFIX: Final = "ft_"
"""Secret scanners find keys by it."""
_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_FORM: Final = re.compile(r"ft_([0-9a-f]{12})_([0-9a-f]{64})")


class ApiKey(NamedTuple):
    """A key as its owner holds it. Never log it: :func:`redacted` is for that."""

    id: str
    secret: str

    @property
    def text(self) -> str:
        return f"{PREFIX}{self.id}_{self.secret}"

    @property
    def hash(self) -> str:
        """What is stored. A secret of 256 random bits needs no slow hash: there is nothing to guess."""
        return sha256(self.secret.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"<ApiKey {self.id}>"


def mint(random_bytes: Callable[[int], bytes]) -> ApiKey:
    """A new key of `random_bytes`, e.g. `secrets.token_bytes`."""
    return ApiKey(random_bytes(_ID_BYTES).hex(), random_bytes(_SECRET_BYTES).hex())


def parse(text: str) -> ApiKey | None:
    """The key in a bearer token; None where it has another form."""
    found = _FORM.fullmatch(text)
    return None if found is None else ApiKey(found[1], found[2])


def matches(key: ApiKey, hash_: str) -> bool:
    """Whether the secret has this hash, in constant time."""
    return hmac.compare_digest(key.hash, hash_)


def redacted(text: str) -> str:
    """What may be shown of a credential: the id of a key, nothing of anything else."""
    key = parse(text)
    return f"{PREFIX}{key.id}_…" if key is not None else "…"
