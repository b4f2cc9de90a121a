"""What operators are told of a gateway: load, caches, purges."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from foretype_context.prompt.segments import Scope

from foretype_backend.doors.answers.probes import EngineFigures


class PoolStatus(TypedDict):
    model: str
    running: int
    stopping: int
    waiting: int
    slots: int
    queued_uncached_tokens: int
    hit_rate: float | None
    shedding_level: int
    p99_ttft_ms: dict[str, float]
    decisions: dict[str, dict[str, int]]
    engine: EngineFigures
    replicas: int
    membership: NotRequired[MembershipStatus]


class ChatTemplate(TypedDict):
    template: str
    requests: int
    hit_rate: float | None
    changing: bool
    stable_characters: int


class IdentityStatus(TypedDict):
    """`age_s`: how old the list of tenants and keys is that this gateway decides by."""

    version: int
    age_s: float


class KeptTelemetry(TypedDict):
    """How far back a tenant's events and texts go (UTC days), and for how many days they may be kept."""

    tenant: str
    oldest_event: str | None
    events_days: int
    oldest_text: str | None
    text_days: int


class Status(TypedDict):
    """A gateway at a glance; `rungs`, how much less a tenant is served, of one's own tenant and `other_rungs` of how many more."""

    version: str
    uptime_s: float
    connections: int
    draining: bool
    service: str
    rungs: dict[str, int]
    pools: dict[str, PoolStatus]
    chat_tpot_p99_ms: dict[str, float]
    chat_templates: list[ChatTemplate]
    identity: IdentityStatus | None
    retention: list[KeptTelemetry]
    other_rungs: NotRequired[int]
    workers: NotRequired[int]


class FirstTokens(TypedDict):
    """Milliseconds, of the last few thousand answers."""

    p50: float
    p99: float


class RevisionSignals(TypedDict):
    """Counts since the gateway's start; `failed` by the replica that was asked, another one may have answered."""

    shown: int
    accepted: int
    cancelled: int
    syntax_errors: int
    requests: int
    failed: int
    ttft_ms: FirstTokens


class PoolSignals(TypedDict):
    """`kv_use`: mean over the replicas that say; `predicted_p99_ms`: of the worst class somebody waits for; null where not known."""

    queued_uncached_tokens: int
    running: int
    kv_use: float | None
    predicted_p99_ms: float | None
    replicas: int
    revisions: dict[str, RevisionSignals]


class FleetSignals(TypedDict):
    """By pool."""

    fast: PoolSignals
    quality: NotRequired[PoolSignals]
    block: NotRequired[PoolSignals]
    next_edit: NotRequired[PoolSignals]


class MemberStatus(TypedDict):
    """Where an announced replica stands; `in_flight` of one that has joined."""

    replica: str
    phase: str
    standing: str
    revision: str
    region: str
    in_flight: int
    reason: str


class RefusedReplica(TypedDict):
    replica: str
    why: str
    reason: str


class MembershipStatus(TypedDict):
    """`failure`: why the directory is not believed now; `age_s`: since it was."""

    members: list[MemberStatus]
    refused: list[RefusedReplica]
    failure: str
    age_s: float


class CachedDocument(TypedDict):
    document: str
    scope: Scope
    blocks: int
    tokens: int
    retired_blocks: int
    sessions: int
    replicas: list[str]
    since_s: float
    last_used_s: float


class ReplicaHealth(TypedDict):
    standing: str
    reason: str
    in_flight: int
    outages: int
    checks: int


class CacheAgreement(TypedDict):
    """What was predicted to be cached, beside what the engines said."""

    requests: int
    within_block: int
    predicted_tokens: int
    cached_tokens: int


class Sharing(TypedDict):
    """Who shares the cache of a repository: `teams`, null for the whole tenant; `apart` who have one of their own."""

    repository: str
    teams: list[str] | None
    apart: list[str]


class Cached(TypedDict):
    """What is believed, or known by the replicas' events, to be cached of a repository."""

    tenant: str
    repository: str
    tokens: int
    block_tokens: int
    documents: list[CachedDocument]
    sharing: list[Sharing]
    replicas: dict[str, ReplicaHealth]
    agreement: CacheAgreement


class NotReached(TypedDict):
    gateway: str
    why: str


class Purge(TypedDict):
    """`blocks`: how many were believed to be cached, where somebody counts. Who was not reached follows when it can."""

    tenant: str
    repository: str
    blocks: int | None
    epoch: int
    complete: bool
    reached: list[str]
    not_reached: list[NotReached]
