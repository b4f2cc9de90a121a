"""What a fleet's gateway keeps of prompts: chains by session, which replica holds which blocks, and notices for the cache tiers.

Synchronous, with injected time. Texts are never kept, ids only of the last prompts of live sessions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from foretype_backend.prefix.block_keys import BlockKeys, keys_after
from foretype_backend.prefix.chain import Chain, ChainMaker, blocks_of
from foretype_backend.prefix.directory import HeldDocument, PrefixDirectory, Retired
from foretype_backend.prefix.events import CacheChange
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.retire_feed import PurgeNotice, RetireNotice
from foretype_backend.prefix.salt import Namespace, tier_namespace

_SESSIONS_MAX: Final = 20_000
_NAMESPACES_MAX: Final = 20_000
FORGET_AFTER_S: Final = 600.0
"""How long a session's ids stay in memory after its last request."""


class LookUp(NamedTuple):
    """A prompt, and how many tokens of its beginning each replica holds: what routing needs."""

    origin: Origin
    salt: str
    token_ids: Sequence[int]
    keys: BlockKeys
    held: Mapping[str, int]
    block_tokens: int

    @property
    def chain(self) -> Chain:
        """Made anew at each call: only the directory needs the chain, and is updated while a replica computes."""
        return blocks_of(self.keys, self.origin.placed, self.block_tokens)


class CacheBook:
    """See the module.

    Args:
        block_tokens: block size of the engines, until they report another.
    """

    def __init__(self, block_tokens: int = 16) -> None:
        self.begin(block_tokens)

    def begin(self, block_tokens: int) -> None:
        """Start anew with the block size that engines report; everything kept before is forgotten."""
        self.block_tokens = block_tokens
        self.directory = PrefixDirectory()
        self._makers: OrderedDict[str, ChainMaker] = OrderedDict()
        self._last_seen: OrderedDict[str, float] = OrderedDict()  # by session, longest ago first
        self._salts: OrderedDict[Namespace, str] = OrderedDict()

    # A request

    def look_up(self, origin: Origin, token_ids: Sequence[int], salt: str | None, now: float) -> LookUp:
        """Changes nothing but the memory of the session's last prompt, which :meth:`expire` ends even if the prompt is never sent."""
        self._touch(origin.session, now)
        maker = self._makers.pop(origin.session, None) or ChainMaker(self.block_tokens)
        self._makers[origin.session] = maker
        while len(self._makers) > _SESSIONS_MAX:
            self._makers.popitem(last=False)
        keys = maker.keys(origin.document, token_ids, salt or "")
        # One token at least is always computed, to have something to sample from: engines drop the last block for it.
        reusable = keys[: max(0, (len(token_ids) - 1) // self.block_tokens)]
        held = {name: count * self.block_tokens for name, count in self.directory.cached_blocks(reusable).items()}
        return LookUp(origin, salt or "", token_ids, keys, held, self.block_tokens)

    def sent(self, found: LookUp, replica: str | None, now: float) -> None:
        """The prompt went to a replica (None: to an unknown one), which will hold it."""
        self._place(found, found.chain, replica, now)

    def answered(self, found: LookUp, generated: Sequence[int], replica: str | None, now: float) -> None:
        """The replica also holds what it generated, except the last token: an accepted suggestion is a cached prefix."""
        size = self.block_tokens
        rest = [*found.token_ids[len(found.keys) * size :], *generated[:-1]]
        if len(rest) < size or not found.keys:
            return
        more = keys_after(found.keys[-1], rest, size)
        whole = (*found.keys, *more)
        self._place(found, blocks_of(whole, found.origin.placed, size), replica, now)

    def _place(self, found: LookUp, chain: Chain, replica: str | None, now: float) -> None:
        origin = found.origin
        self._touch(origin.session, now)
        namespace = Namespace(origin.tenant, origin.repository, owner=origin.owner)
        self._salts[namespace] = found.salt
        self._salts.move_to_end(namespace)
        if len(self._salts) > _NAMESPACES_MAX:  # clients name their repositories; losing one costs a retire message
            self._salts.popitem(last=False)
        self.directory.place(namespace, origin.session, origin.document, chain, replica=replica, now=now)

    def _touch(self, session: str, now: float) -> None:
        self._last_seen[session] = now
        self._last_seen.move_to_end(session)

    # What changes

    def changed(self, session: str, documents: Iterable[str], now: float) -> int:
        """Documents of a session changed outside the editor (an edit, a branch, a pull, a deletion)."""
        return sum(self.directory.edited(session, document, 0, now) for document in documents)

    def left(self, session: str, now: float) -> None:
        """A session disconnected: its ids leave memory."""
        self._makers.pop(session, None)
        self._last_seen.pop(session, None)
        self.directory.left(session, now)

    def apply_events(self, replica: str, change: CacheChange) -> None:
        """Take in what a replica's own events report."""
        if change.cleared:
            self.directory.join(replica)
        self.directory.stored(replica, change.stored)
        self.directory.removed(replica, change.removed)

    def expire(self, now: float) -> list[RetireNotice]:
        """Forget what nobody used for a minute. The notices for the tiers name, for each document, the first character that is not wanted."""
        while self._last_seen and next(iter(self._last_seen.values())) + FORGET_AFTER_S <= now:
            self.left(next(iter(self._last_seen)), now)
        first: dict[tuple[str, str], int] = {}
        for one in self.directory.expire(now):
            for namespace, document, start in self._spans_of(one):
                known = first.get((namespace, document))
                first[namespace, document] = start if known is None else min(known, start)
        return [RetireNotice(namespace, document, start) for (namespace, document), start in first.items()]

    def _spans_of(self, one: Retired) -> list[tuple[str, str, int]]:
        salt = self._salts.get(one.namespace, "")
        return [(tier_namespace(salt), span.document, span.start) for span in one.spans] if salt else []

    # Operators

    def contents(self, tenant: str, repository: str = "") -> list[HeldDocument]:
        return self.directory.contents(tenant, repository)

    def purge(self, tenant: str, repository: str = "") -> tuple[int, list[PurgeNotice]]:
        """Forget a repository, or without one the whole tenant. Returns the number of blocks, and the notices for the tiers."""
        blocks = self.directory.purge(tenant, repository)
        gone = [one for one in self._salts if one.tenant == tenant and (not repository or one.scope == repository)]
        notices = [PurgeNotice(tier_namespace(salt)) for one in gone if (salt := self._salts.pop(one))]
        return blocks, notices
