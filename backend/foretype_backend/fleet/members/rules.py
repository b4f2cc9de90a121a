"""Which replicas are let into a pool, by how they are announced and by what they serve, and how fast it may shrink. Pure; time is passed in."""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from foretype_backend.engines.vllm.server import ReplicaIdentity
from foretype_backend.fleet.members.announced import Announced, RefusalReason, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRules:
    """What is let in, and how fast a pool may shrink.

    Attributes:
        takes: which revisions are this pool's; those of another pool of the same name are not.
        networks: that replicas may be in; empty for any.
        is_own: whether an address is the gateway's own.
        grammar: of the profile; "" where any will do.
        block_tokens: of the pool's book of caches, once it is known; 0 before.
        shrink_interval_s: in which at most half of those that serve are drained.
        drain_s: how long requests in flight may hold a replica that leaves.
        most: replicas that a pool may have; who does not answer takes nobody's place.
        apart: those that compute prompts for others are let in, too; they are not counted among those that serve.
    """

    takes: Callable[[str], bool] = lambda _: True
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    is_own: Callable[[str], bool] = lambda _: False
    grammar: str = ""
    block_tokens: int = 0
    shrink_interval_s: float = 5.0
    drain_s: float = 120.0
    most: int = 256
    apart: bool = False

    def unfit(self, one: Announced) -> tuple[RefusalReason, str] | None:
        """What is wrong with it by its entry alone."""
        host, _, _ = one.address.rpartition(":")
        ip = ipaddress.ip_address(host.strip("[]"))
        if self.networks and not any(ip in network for network in self.networks):
            return RefusalReason.STRANGER, f"{one.address} is outside of pool.fast.discovery.networks"
        if self.is_own(one.address):
            return RefusalReason.OURSELVES, f"{one.address} is this gateway"
        if one.role is Role.PREFILL and not self.apart:
            return (
                RefusalReason.ROLE,
                "its role is prefill; pool.fast.prefill_from_tokens says which prompts are computed apart",
            )
        if self.grammar and one.grammar and one.grammar != self.grammar:
            return RefusalReason.MISFIT, f"its grammar is {one.grammar}, the profile's {self.grammar}"
        if self.block_tokens and one.block_tokens and one.block_tokens != self.block_tokens:
            return RefusalReason.MISFIT, f"its blocks have {one.block_tokens} tokens, the pool's {self.block_tokens}"
        return None


class Likeness:
    """What replicas serve: those of one revision the same, and none of them less than the pool's prompts are made for."""

    def __init__(self) -> None:
        self._of: dict[str, ReplicaIdentity] = {}  # by revision
        self._made_for: ReplicaIdentity | None = None

    def unlike(self, revision: str, own: ReplicaIdentity) -> str:
        """How a replica differs; empty where it does not."""
        expected, made_for = self._of.get(revision), self._made_for or own
        if expected is not None and own != expected:
            those = f"others of revision {revision!r}" if revision else "the pool"
            return f"serves {own}, {those} {expected}"
        if own.block_tokens != made_for.block_tokens or own.context_limit_tokens < made_for.context_limit_tokens:
            return f"serves {own}, and prompts are made for {made_for}"
        return ""

    def learn(self, revision: str, identity: ReplicaIdentity) -> None:
        """A replica came into service: the first one says what the others must be."""
        self._of.setdefault(revision, identity)
        self._made_for = self._made_for or identity

    def forget(self, revision: str) -> None:
        """Nobody of a revision is left."""
        self._of.pop(revision, None)


class WantsOut(NamedTuple):
    """A member that is to leave: whether it answers completions now, and whether it says itself that it goes."""

    name: str
    serves: bool
    says_so: bool


class ShrinkBound:
    """Which of the replicas that want out are drained now, whatever is announced.

    In an interval at most half of those that serve, and never the last one that serves. A replica that does not serve is not counted:
    there health agrees. What a drained replica waits for is :mod:`.membership`'s.
    """

    def __init__(self) -> None:
        self._drained_s: deque[float] = deque()

    def drained(self, wanting: Iterable[WantsOut], serving: int, *, interval_s: float, now: float) -> list[str]:
        """Who goes now, in this order: those that say so themselves come before those that are only missing.

        Args:
            serving: members that serve, those that want out among them.
        """
        drained = self._drained_s
        while drained and drained[0] <= now - interval_s:
            drained.popleft()
        allowed = max(1, (serving + len(drained)) // 2) - len(drained)
        gone: list[str] = []
        for one in sorted(wanting, key=lambda one: not one.says_so):
            if one.serves:
                if serving <= 1 or allowed <= 0:
                    continue
                serving, allowed = serving - 1, allowed - 1
                drained.append(now)
            gone.append(one.name)
        return gone
