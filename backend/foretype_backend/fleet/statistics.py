"""What a pool says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from foretype_backend.fleet.health import ReplicaHealthStatistics
from foretype_backend.fleet.members.membership import MembershipStatistics
from foretype_backend.fleet.prefill_apart import ApartStatistics
from foretype_backend.fleet.routing.router import RouterStatistics
from foretype_backend.fleet.warmups import WarmStatistics


class Agreement(NamedTuple):
    """The directory's prediction beside what the engines said: requests, and those at most one block apart."""

    requests: int
    within_block: int
    predicted_tokens: int
    cached_tokens: int


class PoolStatistics(NamedTuple):
    """A consistent snapshot.

    Attributes:
        replicas: by name, which is the URL where a list names them.
        retried: requests that a second replica answered.
        kv_use: of replicas that say.
        prompt_tokens_by_tier: by replica, where their prompt tokens came from.
        membership: of replicas that are announced.
        apart: of prompts that replicas of their own compute.
    """

    replicas: Mapping[str, ReplicaHealthStatistics]
    router: RouterStatistics
    agreement: Agreement
    retried: int
    warm: WarmStatistics
    kv_use: Mapping[str, float]
    prompt_tokens_by_tier: Mapping[str, Mapping[str, int]]
    membership: MembershipStatistics | None = None
    apart: ApartStatistics | None = None
