"""Entries of the audit log, how each is chained to the one before, and the check of a whole log. Pure.

An entry's digest is SHA-256 over its fields and the digest before it: whatever is changed, taken out or swapped is found at that
entry. Who can write to the database could compute the digests again; so each is sealed by HMAC with a key that is not there.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

BEGINNING: Final = "0" * 64
"""What stands for the digest before the first entry."""

Detail = str | int | float | bool | None


class Act(NamedTuple):
    """Something that somebody did. Never holds source text or a secret.

    Attributes:
        action: what, e.g. `key.revoke` or `experiment.start`.
        subject: on what: a key's id, a user, a repository's id, an experiment's name.
        tenant: whose, "" where it is nobody's.
        details: what else tells it; names, numbers, ids.
        actor: who, e.g. a principal's `credential`; "" is the actor that the log was opened for.
    """

    action: str
    subject: str = ""
    tenant: str = ""
    details: Mapping[str, Detail] = {}
    actor: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry as it is kept and exported.

    Attributes:
        number: from 1 on, without gaps.
        details: a JSON object, as it was hashed.
        key: id of the key it is sealed with; "" for none.
        digest: SHA-256 in hex, over all of the above and the digest before.
        seal: HMAC-SHA256 of the digest in hex; "" without a key.
    """

    number: int
    at_ms: int
    actor: str
    action: str
    tenant: str
    subject: str
    details: str
    key: str
    digest: str
    seal: str


class AuditKey:
    """What entries are sealed with: made of the same secret as cache salts, and of no use for making one. `id` is no secret."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"foretype audit log", sha256)
        self.id = hmac.digest(secret, b"foretype audit key id", sha256)[:8].hex()

    def seal(self, digest: str) -> str:
        return hmac.digest(self._key, digest.encode(), sha256).hex()

    def sealed(self, entry: Entry) -> bool:
        """Whether the seal is of this key, in constant time."""
        return hmac.compare_digest(self.seal(entry.digest).encode(), entry.seal.encode())

    def __repr__(self) -> str:
        return f"<AuditKey {self.id}>"


def entry_of(act: Act, *, number: int, at_ms: int, before: str, key: AuditKey | None) -> Entry:
    """The entry that tells an act, after the entry with the digest `before`."""
    texts = (_clean(text) for text in (act.actor, act.action, act.tenant, act.subject))
    actor, action, tenant, subject = texts
    details = msgspec.json.encode(
        {name: _clean(value) if isinstance(value, str) else value for name, value in act.details.items()},
        order="sorted",
    ).decode()
    entry = Entry(
        number=number,
        at_ms=at_ms,
        actor=actor,
        action=action,
        tenant=tenant,
        subject=subject,
        details=details,
        key="" if key is None else key.id,
        digest="",
        seal="",
    )
    digest = _digest(entry, before)
    return msgspec.structs.replace(entry, digest=digest, seal="" if key is None else key.seal(digest))


class NotedHead(NamedTuple):
    """An entry that somebody noted elsewhere: its number and digest, written `NUMBER:DIGEST`."""

    number: int
    digest: str

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> NotedHead:
        """Raises ValueError."""
        number, _, digest = text.strip().partition(":")
        if not number.isdecimal() or len(digest) != len(BEGINNING) or not set(digest) <= set("0123456789abcdef"):
            raise ValueError(
                f"--anchor: {text!r} is no head of an audit log; it looks like 17:{BEGINNING[:8]}… with 64 digits"
            )
        return cls(int(number), digest)


class ChainVerdict(NamedTuple):
    """What was found of a log.

    Attributes:
        broken_at: the first entry that is not as it was written, or is missing; None where all are.
        sealed: whether seals were checked.
    """

    entries: int
    broken_at: int | None
    why: str
    head: NotedHead
    sealed: bool


class ChainCheck:
    """Follows a chain from its beginning, entry by entry.

    Args:
        keys: that entries may be sealed with; with none the chain alone is checked.
        anchor: of an entry that must be there still.
    """

    def __init__(self, keys: Iterable[AuditKey] = (), anchor: NotedHead | None = None) -> None:
        self._keys = {key.id: key for key in keys}
        self._anchor = anchor
        self._found = self._last = 0
        self._head = NotedHead(0, BEGINNING)
        self._broken_at: int | None = None
        self._why = ""

    @property
    def number(self) -> int:
        """Of the last entry that was taken."""
        return self._last

    def take(self, entry: Entry) -> None:
        """The next entry."""
        self._found += 1
        self._last = entry.number
        if self._broken_at is not None:
            return
        why = _wrong(entry, self._head, self._keys, self._anchor)
        if why:
            self.broken(why)
        else:
            self._head = NotedHead(entry.number, entry.digest)

    def broken(self, why: str) -> None:
        """What comes next is no entry, or none of this log."""
        if self._broken_at is None:
            self._broken_at, self._why = self._head.number + 1, why

    def verdict(self, count: int | None = None) -> ChainVerdict:
        """After the last entry.

        Args:
            count: how many were written; None where that is not known.
        """
        least = 0 if self._anchor is None else self._anchor.number
        if (count is not None and count != self._found) or self._found < least:
            written = f"{max(count or 0, least)} entries were written, {self._found} are there"
            self.broken(f"{written}: the end was taken away, or the count changed")
        return ChainVerdict(self._found, self._broken_at, self._why, self._head, bool(self._keys))


def _wrong(entry: Entry, head: NotedHead, known: Mapping[str, AuditKey], anchor: NotedHead | None) -> str:
    """Why this is not what was written after `head`; "" where it is."""
    if entry.number != head.number + 1:
        return f"entry {head.number + 1} is missing; entry {entry.number} comes instead"
    if _digest(entry, head.digest) != entry.digest:
        return "its digest is another one: it was changed, or stood elsewhere"
    if anchor is not None and anchor.number == entry.number and anchor.digest != entry.digest:
        return "it is not the entry that was noted: all from some entry on were written again"
    if known:
        key = known.get(entry.key)
        if key is None:
            named = f"the key {entry.key}" if entry.key else "no key"
            return f"it is sealed with {named}, which was not given; give it with --key-file, or it is forged"
        if not key.sealed(entry):
            return "its seal is another one: it was forged by somebody without the key"
    return ""


def _digest(entry: Entry, before: str) -> str:
    """Over a JSON array: no two entries write the same bytes."""
    fields = [value for name, value in msgspec.structs.asdict(entry).items() if name not in ("digest", "seal")]
    return sha256(msgspec.json.encode([*fields, before])).hexdigest()


def _clean(text: str) -> str:
    """What every database keeps as it is: no surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{SYMBOL FOR NULL}")
