"""What is computed ahead of the first key: the repository part of prompts, and the file part of open documents. Pure.

Everybody arrives at nine, on caches that are cold. What a hundred colleagues ask to have warmed is then mostly one part, their
repository's: it is computed once, and before the parts of single files. On a replica at most one warm-up runs at a time, none
where people wait, and what could not be computed in half a minute is dropped: the user who wanted it has asked by then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from foretype_context.prompt.segments import Scope

from foretype_backend.prefix.chain import Chain
from foretype_backend.prefix.origin import Origin

_SHARED: Final = (Scope.GLOBAL, Scope.REPOSITORY)


class PromptBeginning(NamedTuple):
    """The beginning of a prompt.

    Attributes:
        key: of its last block, which is the same for everybody who has this part.
        rank: 0 for what a repository shares, 1 for a file's; lower goes first.
    """

    key: bytes
    rank: int
    token_ids: Sequence[int]
    salt: str
    origin: Origin


def stable_parts(chain: Chain, token_ids: Sequence[int], salt: str, origin: Origin) -> list[PromptBeginning]:
    """The repository part of a prompt and its file part, the first inside the second; those of no whole block left out."""
    ends = [0, 0]
    for block in chain:
        if block.scope in _SHARED:
            ends = [block.end, block.end]
        elif block.scope is Scope.FILE:
            ends[1] = block.end
        else:
            break
    by_end = {block.end: block.key for block in chain}
    parts = [PromptBeginning(by_end[end], rank, token_ids[:end], salt, origin) for rank, end in enumerate(ends) if end]
    return parts[:1] if len(parts) == 2 and parts[0].key == parts[1].key else parts


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmOptions:
    """How much is warmed.

    Attributes:
        capacity: parts that wait; beyond it the least wanted is dropped.
        busy_from: requests in flight from which on a replica takes no warm-up.
        expire_s: a part that waited so long is dropped.
        fresh_s: a part warmed on a replica is not warmed there again for so long.
    """

    capacity: int = 512
    busy_from: int = 2
    expire_s: float = 30.0
    fresh_s: float = 60.0


class WarmStatistics(NamedTuple):
    """Parts: offered, of these already waiting or fresh, begun, dropped for want of room or time, and waiting now."""

    offered: int
    merged: int
    begun: int
    dropped: int
    waiting: int


class WarmQueue:
    """See the module."""

    def __init__(self, options: WarmOptions | None = None) -> None:
        self.options = options or WarmOptions()
        self._waiting: OrderedDict[bytes, tuple[PromptBeginning, float]] = OrderedDict()
        self._running: dict[str, bytes] = {}
        self._fresh: OrderedDict[tuple[str, bytes], float] = OrderedDict()  # replica, key → when
        self._offered = self._merged = self._begun = self._dropped = 0

    def offer(self, part: PromptBeginning, now: float) -> None:
        """Somebody would profit from this part."""
        self._offered += 1
        if part.key in self._waiting or part.key in self._running.values():
            self._merged += 1
            return
        self._waiting[part.key] = part, now
        if len(self._waiting) > self.options.capacity:
            least = max(self._waiting, key=lambda key: (self._waiting[key][0].rank, self._waiting[key][1]))
            del self._waiting[least]
            self._dropped += 1

    def take(
        self, loads: Mapping[str, int], place: Callable[[PromptBeginning], str | None], now: float
    ) -> list[tuple[str, PromptBeginning]]:
        """What to begin now, and where.

        Args:
            loads: requests in flight by replica, warm-ups not counted; replicas out of service are left out.
            place: the replica that would serve a prompt with this part; None where it holds the part already.
        """
        self._forget(now)
        begun: list[tuple[str, PromptBeginning]] = []
        for key, (part, _) in sorted(self._waiting.items(), key=lambda item: (item[1][0].rank, item[1][1])):
            if all(name in self._running or load >= self.options.busy_from for name, load in loads.items()):
                break
            replica = place(part)
            if replica is None or (replica, key) in self._fresh:
                del self._waiting[key]
                self._merged += 1
            elif replica in loads and replica not in self._running and loads[replica] < self.options.busy_from:
                del self._waiting[key]
                self._running[replica] = key
                self._begun += 1
                begun.append((replica, part))
        return begun

    def done(self, replica: str, now: float, *, computed: bool) -> None:
        """The warm-up on a replica is over."""
        key = self._running.pop(replica, None)
        if key is not None and computed:
            self._fresh[replica, key] = now

    def lost(self, replica: str) -> None:
        """A replica's cache is empty now."""
        self._fresh = OrderedDict((at, when) for at, when in self._fresh.items() if at[0] != replica)

    def statistics(self) -> WarmStatistics:
        return WarmStatistics(self._offered, self._merged, self._begun, self._dropped, len(self._waiting))

    def _forget(self, now: float) -> None:
        while self._fresh and next(iter(self._fresh.values())) + self.options.fresh_s <= now:
            self._fresh.popitem(last=False)
        while self._waiting and next(iter(self._waiting.values()))[1] + self.options.expire_s <= now:
            self._waiting.popitem(last=False)
            self._dropped += 1
