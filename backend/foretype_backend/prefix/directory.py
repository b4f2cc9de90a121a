"""The prefix directory: which blocks of which documents are likely to be cached where, and which nobody wants any more.

Engine caches are addressed by content, so a stale entry can never be *served*; it can only waste room and mislead routing.
What is kept here is therefore about capacity and routing alone:

- which sessions use a block, and whose use an edit ends, says :mod:`foretype_backend.prefix.invalidation`;
- a block that no session has used for a minute is *retired*: no longer advertised to the router, first to be evicted below;
- a block that is placed again is no longer retired; only a purge deletes.

What a replica holds is believed from routing history, bounded by a least-recently-used model of its cache, or known from its
own events. Synchronous, with injected time; every operation costs the blocks it names.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from foretype_context.prompt.segments import Scope

from foretype_backend.prefix.chain import Block, Chain, Span
from foretype_backend.prefix.invalidation import EndedUse, LastPrompts
from foretype_backend.prefix.salt import Namespace

RETIRE_AFTER_S: Final = 60.0


class Retired(NamedTuple):
    """A block that left use: what the tiers below are told to evict first."""

    namespace: Namespace
    key: bytes
    start: int
    end: int
    spans: tuple[Span, ...]


class HeldDocument(NamedTuple):
    """What is cached of one document in a namespace, for operators. Times are on the directory's clock, in seconds."""

    document: str
    scope: Scope
    blocks: int
    tokens: int
    retired_blocks: int
    sessions: int
    replicas: tuple[str, ...]
    since: float
    last_used: float


class DirectoryStatistics(NamedTuple):
    blocks: int
    used_blocks: int
    retired_blocks: int
    replicas: int
    sessions: int
    namespaces: int


@dataclass(slots=True)
class _Entry:
    namespace: Namespace
    block: Block
    since: float
    last_used: float
    users: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  # session, document
    replicas: set[str] = field(default_factory=set[str])
    retired: bool = False


@dataclass(slots=True)
class _Replica:
    capacity_blocks: int
    keys: OrderedDict[bytes, None] = field(default_factory=OrderedDict[bytes, None])
    tells: bool = False  # its own events say what it holds


class PrefixDirectory:
    """See the module.

    Args:
        capacity_blocks: what a replica's cache is believed to hold unless :meth:`join` says otherwise.
        retire_after_s: time without a user after which a block is retired.
    """

    def __init__(self, *, capacity_blocks: int = 32_768, retire_after_s: float = RETIRE_AFTER_S) -> None:
        if capacity_blocks < 1:
            raise ValueError(f"capacity_blocks must be at least 1, not {capacity_blocks}")
        self._capacity_blocks = capacity_blocks
        self._retire_after_s = retire_after_s
        self._entries: dict[bytes, _Entry] = {}
        self._replicas: dict[str, _Replica] = {}
        self._prompts = LastPrompts(self._spans_of)
        self._released: deque[tuple[float, bytes]] = deque()

    # Replicas

    def join(self, replica: str, *, capacity_blocks: int | None = None) -> None:
        """A replica is there; what it held before is forgotten (a restart empties a cache)."""
        self.leave(replica)
        self._replicas[replica] = _Replica(capacity_blocks or self._capacity_blocks)

    def leave(self, replica: str) -> None:
        gone = self._replicas.pop(replica, None)
        for key in gone.keys if gone is not None else ():
            self._drop(replica, key)

    def stored(self, replica: str, keys: Iterable[bytes]) -> None:
        """A replica's own event: it holds these blocks. From now on its history is no longer believed."""
        holder = self._holder(replica)
        holder.tells = True
        for key in keys:
            holder.keys[key] = None
            entry = self._entries.get(key)
            if entry is not None:
                entry.replicas.add(replica)

    def removed(self, replica: str, keys: Iterable[bytes]) -> None:
        holder = self._holder(replica)
        holder.tells = True
        for key in keys:
            if holder.keys.pop(key, key) is None:
                self._drop(replica, key)

    # Sessions

    def place(
        self, namespace: Namespace, session: str, document: str, chain: Chain, *, replica: str | None, now: float
    ) -> None:
        """A prompt was sent.

        Args:
            document: whose prompt it is; the chain replaces the one before of this session and document.
            replica: where it went, and where it is therefore believed to be; None where that is not known.
        """
        user = session, document
        keys = tuple(block.key for block in chain)
        self._release(self._prompts.place(session, document, keys), now)
        for block in chain:
            entry = self._entries.get(block.key)
            if entry is None:
                entry = self._entries[block.key] = _Entry(namespace, block, now, now)
                entry.replicas.update(name for name, one in self._replicas.items() if block.key in one.keys)
            entry.users.add(user)
            entry.last_used = now
            entry.retired = False
        if replica is not None:
            self._believe(replica, keys)

    def edited(self, session: str, document: str, start: int, now: float) -> int:
        """A session changed a document from character `start` on: its use of the blocks from there on ends.

        Returns:
            blocks whose use by this session ended.
        """
        ended = self._prompts.edited(session, document, start)
        self._release(ended, now)
        return len(ended)

    def closed(self, session: str, document: str, now: float) -> None:
        """A session closed a document."""
        self._release(self._prompts.closed(session, document), now)

    def left(self, session: str, now: float) -> None:
        """A session disconnected."""
        self._release(self._prompts.left(session), now)

    # Questions

    def cached_blocks(self, keys: Sequence[bytes]) -> dict[str, int]:
        """Per replica, the unbroken run from the first block on that it is believed to hold; replicas with none left out."""
        runs: dict[str, int] = {}
        alive: set[str] | None = None
        for length, key in enumerate(keys):
            entry = self._entries.get(key)
            holders = entry.replicas if entry is not None and not entry.retired else set[str]()
            still = set(holders) if alive is None else alive & holders
            for replica in (alive or set()) - still:
                runs[replica] = length
            alive = still
            if not alive:
                return runs
        for replica in alive or ():
            runs[replica] = len(keys)
        return runs

    def contents(self, tenant: str, scope: str = "") -> list[HeldDocument]:
        """What is believed to be cached for a repository (or, with no scope, a tenant), by document, largest first."""
        grouped: dict[str, list[_Entry]] = {}
        for entry in self._entries.values():
            if entry.namespace.tenant == tenant and (not scope or entry.namespace.scope == scope) and entry.replicas:
                for document in {span.document for span in entry.block.spans} or {""}:
                    grouped.setdefault(document, []).append(entry)
        held = [_held(document, entries) for document, entries in grouped.items()]
        return sorted(held, key=lambda one: (-one.tokens, one.document))

    # Time and purge

    def expire(self, now: float) -> list[Retired]:
        """Retires what has had no user for long enough. Call every few seconds, and hand the result to the tiers."""
        retired: list[Retired] = []
        while self._released and self._released[0][0] + self._retire_after_s <= now:
            released, key = self._released.popleft()
            entry = self._entries.get(key)
            if entry is None or entry.users or entry.retired or entry.last_used > released:
                continue
            if not entry.replicas:
                del self._entries[key]
                continue
            entry.retired = True
            block = entry.block
            retired.append(Retired(entry.namespace, key, block.start, block.end, block.spans))
        return retired

    def purge(self, tenant: str, scope: str = "") -> int:
        """Forgets everything of a repository, or with no scope of a tenant; returns the number of blocks forgotten."""
        gone = self._of(tenant, scope)
        for key in gone:
            entry = self._entries.pop(key)
            for replica in entry.replicas:
                self._replicas[replica].keys.pop(key, None)
            for session, document in entry.users:
                self._prompts.purged(session, document)
        return len(gone)

    def _of(self, tenant: str, scope: str) -> list[bytes]:
        return [
            key
            for key, entry in self._entries.items()
            if entry.namespace.tenant == tenant and (not scope or entry.namespace.scope == scope)
        ]

    def apart(self, tenant: str) -> dict[str, list[str]]:
        """Which users have a cache of their own, by repository."""
        found: dict[str, set[str]] = {}
        for entry in self._entries.values():
            if entry.namespace.tenant == tenant and entry.namespace.owner and entry.replicas:
                found.setdefault(entry.namespace.scope, set()).add(entry.namespace.owner)
        return {scope: sorted(owners) for scope, owners in found.items()}

    def count(self, tenant: str, scope: str = "") -> int:
        """Blocks that a purge would forget."""
        return len(self._of(tenant, scope))

    def statistics(self) -> DirectoryStatistics:
        entries = self._entries.values()
        return DirectoryStatistics(
            blocks=len(self._entries),
            used_blocks=sum(1 for entry in entries if entry.users),
            retired_blocks=sum(1 for entry in entries if entry.retired),
            replicas=len(self._replicas),
            sessions=len(self._prompts),
            namespaces=len({entry.namespace for entry in entries}),
        )

    def _holder(self, replica: str) -> _Replica:
        if replica not in self._replicas:
            self.join(replica)
        return self._replicas[replica]

    def _believe(self, replica: str, keys: Sequence[bytes]) -> None:
        holder = self._holder(replica)
        if holder.tells:
            return
        for key in reversed(keys):  # the head last: a head that is gone makes its tail useless
            holder.keys[key] = None
            holder.keys.move_to_end(key)
            self._entries[key].replicas.add(replica)
        while len(holder.keys) > holder.capacity_blocks:
            oldest, _ = holder.keys.popitem(last=False)
            self._drop(replica, oldest)

    def _drop(self, replica: str, key: bytes) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            entry.replicas.discard(replica)
            if not entry.replicas and not entry.users:
                del self._entries[key]

    def _release(self, ended: Iterable[EndedUse], now: float) -> None:
        for key, user in ended:
            entry = self._entries.get(key)
            if entry is None or user not in entry.users:
                continue
            entry.users.discard(user)
            if not entry.users:
                entry.last_used = now
                if entry.replicas:
                    self._released.append((now, key))
                else:
                    del self._entries[key]

    def _spans_of(self, key: bytes) -> tuple[Span, ...]:
        entry = self._entries.get(key)
        return () if entry is None else entry.block.spans


def _held(document: str, entries: list[_Entry]) -> HeldDocument:
    return HeldDocument(
        document=document,
        scope=max((entry.block.scope for entry in entries), key=list(Scope).index),
        blocks=len(entries),
        tokens=sum(entry.block.end - entry.block.start for entry in entries),
        retired_blocks=sum(entry.retired for entry in entries),
        sessions=len({session for entry in entries for session, _ in entry.users}),
        replicas=tuple(sorted({replica for entry in entries for replica in entry.replicas})),
        since=min(entry.since for entry in entries),
        last_used=max(entry.last_used for entry in entries),
    )
