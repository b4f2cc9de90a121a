"""Sections of the configuration that a team's gateway adds: who asks, what they may use, what is promised, other pools.

| key | default | meaning |
|---|---|---|
| `gateway.workers` | 1 | processes that share the port; an engine in the gateway's own process allows one |
| `gateway.drain_s` | 10 | on SIGTERM: seconds that clients have to move before connections close |
| `gateway.max_connections` | 20000 | open stream connections; beyond it a new one is closed with 1013 |
| `gateway.tls_cert_file`, `tls_key_file` | none | PEM files; the gateway then speaks TLS itself |
| `identity.enabled` | false, or true where `url` or `oidc` is set | ask everybody for a key or a bearer token of their own |
| `identity.url` | `identity/identity.db` in the state directory | `postgresql://…`, or the path of a SQLite file |
| `identity.poll_ms` | 500 | how often a change in the store is looked for |
| `identity.salt_file` | `identity/salt` in the state directory, made on first use | 32 bytes that cache salts are made of; the same on every gateway; one that is named must be there |
| `identity.oidc.issuer`, `audience` | none | what a bearer token must say in `iss` and `aud` |
| `identity.oidc.jwks_url` | by discovery | where the issuer's keys are |
| `identity.oidc.tenant_claim`, `team_claim` | `tenant`, `team` | claims that name them; the user is `sub` |
| `identity.oidc.tenant` | none | every token's tenant, whatever it claims |
| `identity.oidc.refresh_s` | 300 | how often the keys are fetched |
| `admission.shed` | true, but for `embedded` | refuse early when an objective is in danger |
| `admission.refuse_share`, `resume_share` | 0.8, 0.6 | of an objective: above the one shedding begins, below the other it ends |
| `admission.objectives_ms.*` | interactive 100, fim 150, block 500, chat 2000, speculative 150, warm 1000 | p99 of the time to first token |
| `admission.chat_ttft_ms` | 700 | p99 of the time to first token of chat on the quality pool |
| `admission.chat_tpot_paid_ms`, `chat_tpot_free_ms` | 40, 60 | p99 of its time per token after the first |
| `admission.reserved.*` | none | slots that lower classes never take |
| `leases.redis_url` | none | Redis that gateways share budgets through; without it each gateway counts alone |
| `leases.slice_s` | 1 | seconds' worth of a budget that one gateway holds |
| `prices.prompt_per_million`, `cached_per_million`, `generated_per_million`, `engine_hour` | 0 | for `foretype usage` |
| `tracing.endpoint` | none | OpenTelemetry collector (OTLP over HTTP), `http://collector:4318`; naming it sends traces there |
| `tracing.sample_share` | 1 | of the traces that begin in the gateway; those of clients go by the client's choice |
| `pool.fast.*` | none | replicas of `vllm serve`: see `foretype_backend.pools.config` |
| `pool.quality.url` | none | OpenAI-compatible server for chat and `class: block` |
| `pool.quality.model`, `free_model` | what the server serves | its names; tenants of the free tier may get a smaller one |
| `pool.quality.api_key_file` | none | file with the server's key |
| `pool.quality.tokenizer`, `grammar` | none | of its model; needed for `class: block` |
| `pool.quality.context_limit_tokens` | 8000 | prompt and answer together |
| `pool.quality.max_running`, `max_waiting` | 32, 64 | requests in it at once, and waiting |
| `pool.quality.block_fails_over` | true | `class: block` goes to the fast pool while this one is away |
| `pool.quality.send_salt` | false | its server is vLLM: keep the caches of tenants apart by `cache_salt` |
"""

from __future__ import annotations

import msgspec

from foretype_backend.pools.config import FastConfig

__all__ = [
    "AdmissionConfig",
    "IdentityConfig",
    "LeasesConfig",
    "ObjectivesMs",
    "OidcConfig",
    "PoolsConfig",
    "PricesConfig",
    "QualityConfig",
    "ReservedSlots",
    "TracingConfig",
]


class OidcConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    issuer: str
    audience: str
    jwks_url: str | None = None
    tenant_claim: str = "tenant"
    team_claim: str = "team"
    tenant: str | None = None
    refresh_s: float = 300.0


class IdentityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: bool | None = None
    url: str | None = None
    poll_ms: float = 500.0
    salt_file: str | None = None
    oidc: OidcConfig | None = None

    @property
    def on(self) -> bool:
        return self.enabled if self.enabled is not None else self.url is not None or self.oidc is not None


class ObjectivesMs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """p99 of receipt to first token, by class; `fim` is for stateless HTTP clients."""

    interactive: float = 100.0
    fim: float = 150.0
    block: float = 500.0
    chat: float = 2000.0
    speculative: float = 150.0
    warm: float = 1000.0


class ReservedSlots(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    interactive: int = 0
    block: int = 0
    chat: int = 0
    speculative: int = 0


class AdmissionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    shed: bool | None = None
    refuse_share: float = 0.8
    resume_share: float = 0.6
    objectives_ms: ObjectivesMs = ObjectivesMs()
    chat_ttft_ms: float = 700.0
    chat_tpot_paid_ms: float = 40.0
    chat_tpot_free_ms: float = 60.0
    reserved: ReservedSlots = ReservedSlots()


class LeasesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    redis_url: str | None = None
    slice_s: float = 1.0


class PricesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In whatever currency the team counts."""

    prompt_per_million: float = 0.0
    cached_per_million: float = 0.0
    generated_per_million: float = 0.0
    engine_hour: float = 0.0


class TracingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    endpoint: str | None = None
    sample_share: float | None = None


class QualityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    model: str | None = None
    free_model: str | None = None
    api_key_file: str | None = None
    tokenizer: str | None = None
    grammar: str | None = None
    context_limit_tokens: int = 8000
    max_running: int = 32
    max_waiting: int = 64
    block_fails_over: bool = True
    send_salt: bool = False


class PoolsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fast: FastConfig = FastConfig()
    quality: QualityConfig | None = None
