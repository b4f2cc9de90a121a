"""Sections of the configuration file, with their defaults: what one gateway is, then what a team's adds.

| key | default | meaning |
|---|---|---|
| `gateway.host` | `127.0.0.1` | address to bind; anything but loopback requires a token |
| `gateway.port` | 7878 (private: 0) | port to bind; 0 takes a free one |
| `gateway.token_file` | none | file that holds the bearer token (first line) |
| `gateway.hosts` | none | further names that may stand in `Host`, beside the bound address, loopback and `localhost` |
| `gateway.origins` | none | values of `Origin` that may connect; a client that is no browser sends none |
| `gateway.linger_s` | 60 | private mode: seconds without a connection after which the gateway ends |
| `engine.name` | `embedded` | `embedded`, `llama-cpp`, `lm-studio`, `ollama`, `openai`, `scripted`, `vllm`, `vllm-server` |
| `engine.model` | shipped model; of `llama-cpp`, `lm-studio`, `ollama` their usual ports | model file, or the base URL of a server; `ollama` takes a model's name too |
| `engine.api_key_file` | none | of a server: file that holds its key |
| `engine.options` | none | passed to the engine as they are |
| `model.name` | from the engine | name for people and logs |
| `model.tokenizer` | beside the model, else what its GGUF carries | `tokenizer.json` |
| `model.grammar` | detected | id of the FIM grammar: `foretype models families` |
| `model.grammar_rules.*` | none | the grammar itself, for a family that this version does not know: see docs/models.md |
| `model.layout` | the shipped model's own, else the grammar's first | prompt layout that clients use |
| `model.context_limit_tokens` | from the engine | prompt and output together |
| `model.strategy` | `default-1` | context strategy, by name |
| `model.strategy_rules.*` | none | the strategy itself, for clients that do not know the name: see `foretype_context.prompt.strategy` |
| `model.budgets.*`, `model.stop.*` | see `foretype_context.prompt.profile` | |
| `model.min_mean_logprob.*`, `model.local_min_confidence` | the shipped model's own, else see `foretype_context.prompt.profile` | |
| `model.drop_broken` | true, but false for `scripted` | clients take away what adds an error of syntax to the file |
| `telemetry.enabled` | true | keep what clients report of suggestions; else it is acknowledged and dropped |
| `telemetry.url` | `telemetry/events.db` in the state directory | `postgresql://…`, or the path of a SQLite file |
| `telemetry.text_url` | `telemetry/texts` in the state directory | opted-in text: a folder, or `s3://bucket/prefix` |
| `telemetry.key_file` | `telemetry/key` in the state directory | 32 bytes that texts are encrypted with, made on first use where none is named |
| `limits.max_running`, `max_waiting` | 64, 256 | requests in the engine at once, and waiting |
| `limits.live_per_connection` | 64 | live requests of one connection; beyond it `overloaded` |
| `limits.max_tokens` | 1024 | most tokens that one request may generate |
| `limits.max_deadline_ms` | 120000 | longer deadlines are cut to this |
| `limits.max_frame_bytes` | 1048576 | larger frames are refused, four times larger ones end the connection |
| `limits.max_segments` | 1024 | segments in one `complete`; at most 4096 |
| `limits.segments_bytes`, `segments_bytes_per_tenant` | 2147483648, 536870912 | remembered texts of all connections, each counted 256 bytes more than it has; beyond it a connection remembers less |
| `limits.abort_grace_ms` | 1000 | how long a cancelled request may take to leave the engine |
| `limits.retry_wait_ms` | 2000 | how long a request waits for a lost engine to come back, once, before its first token |
| `gateway.workers` | 1 | processes that share the port; an engine in the gateway's own process allows one |
| `gateway.drain_s` | 10 | on SIGTERM: seconds that clients have to move before connections close |
| `gateway.max_connections`, `max_connections_per_tenant` | 20000, 5000 | open stream connections; beyond it a new one is closed with 1013 |
| `gateway.max_http_connections` | 4096 | open HTTP connections; beyond it a new one is closed |
| `gateway.max_requests`, `max_requests_per_tenant` | 2048, 512 | HTTP requests that are being answered; beyond it `overloaded` |
| `gateway.http_idle_s` | 30 | an HTTP connection without a request, or with a head that does not end, is closed after so many seconds |
| `gateway.tls_cert_file`, `tls_key_file` | none | PEM files; the gateway then speaks TLS itself |
| `metrics.port` | none | a port that `/metrics` has of its own, without a token and without TLS; 0 takes a free one |
| `metrics.host` | `127.0.0.1` | address that it binds |
| `identity.enabled` | false, or true where `url` or `oidc` is set | ask everybody for a key or a bearer token of their own |
| `identity.url` | `identity/identity.db` in the state directory | `postgresql://…`, or the path of a SQLite file |
| `identity.poll_ms` | 500 | how often a change in the store is looked for |
| `identity.salt_file` | `identity/salt` in the state directory, made on first use | 32 bytes that cache salts are made of; the same on every gateway; one that is named must be there |
| `identity.oidc.issuer`, `audience` | none | what a bearer token must say in `iss` and `aud` |
| `identity.oidc.jwks_url` | by discovery | where the issuer's keys are |
| `identity.oidc.tenant_claim`, `team_claim` | `tenant`, `team` | claims that name them; the user is `sub` |
| `identity.oidc.tenant` | none | every token's tenant, whatever it claims |
| `identity.oidc.refresh_s` | 300 | how often the keys are fetched |
| `admission.shed` | true, but for `embedded`, `llama-cpp`, `lm-studio`, `ollama` | refuse early when an objective is in danger |
| `admission.refuse_share`, `resume_share` | 0.8, 0.6 | of an objective: above the one shedding begins, below the other it ends |
| `admission.objectives_ms.*` | interactive 100, fim 150, next_edit 300, block 500, chat 2000, speculative 150, warm 1000 | p99 of the time to first token |
| `admission.chat_ttft_ms` | 700 | p99 of the time to first token of chat on the quality pool |
| `admission.chat_tpot_paid_ms`, `chat_tpot_free_ms` | 40, 60 | p99 of its time per token after the first |
| `admission.reserved.*` | none | slots that lower classes never take |
| `leases.redis_url` | none | Redis that gateways share budgets through; without it each gateway counts alone |
| `leases.slice_s` | 1 | seconds' worth of a budget that one gateway holds |
| `prices.prompt_per_million`, `cached_per_million`, `generated_per_million`, `engine_hour` | 0 | for `foretype usage` and `foretype report` |
| `tracing.endpoint` | none | OpenTelemetry collector (OTLP over HTTP), `http://collector:4318`; naming it sends traces there |
| `tracing.sample_share` | 1 | of the traces that begin in the gateway; those of clients go by the client's choice |
| `residency.tenants` | none | regions that a tenant is bound to, `acme = ["eu"]`; nothing outside of them is used for it |
| `gateway.region` | none | where this gateway is, and all that is on its host or says nothing else and is a file |
| `engine.region`, `identity.region`, `telemetry.region`, `telemetry.text_region`, `leases.region`, `pool.quality.region`, `pool.next_edit.region` | of what is on the gateway's host: the gateway's | where each is; `engine.region` counts for the Redis of its options too |
| `pool.fast.*` | none | replicas of `vllm serve`: see `foretype_backend.config.fleet` |
| `pool.quality.url` | none | OpenAI-compatible server for chat and `class: block` |
| `pool.quality.model`, `free_model` | what the server serves | its names; tenants of the free tier may get a smaller one |
| `pool.quality.api_key_file` | none | file with the server's key |
| `pool.quality.tokenizer`, `grammar` | none | of its model; needed for `class: block` |
| `pool.quality.context_limit_tokens` | 8000 | prompt and answer together |
| `pool.quality.max_running`, `max_waiting` | 32, 64 | requests in it at once, and waiting |
| `pool.quality.block_fails_over` | true | `class: block` goes to the fast pool while this one is away |
| `model.next_edit` | none | format of next edits (`zeta-2.1`, `sweep-next-edit`, `nep-qwen2.5-coder`) that the gateway's own model was trained on too |
| `pool.next_edit.url` | none | OpenAI-compatible server of a model for next edits, in place of `model.next_edit` |
| `pool.next_edit.format`, `tokenizer` | none | how that model is asked, and its `tokenizer.json`; both are needed |
| `pool.next_edit.model` | what the server serves | its name |
| `pool.next_edit.api_key_file` | none | file with the server's key |
| `pool.next_edit.context_limit_tokens` | 4096 | prompt and answer together |
| `pool.next_edit.max_running`, `max_waiting` | 32, 64 | requests in it at once, and waiting |
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from foretype_context.prompt.profile import Budgets, MinMeanLogprob, StopRules
from foretype_context.prompt.strategy import Strategy
from foretype_wire.messages import MAX_FRAME_BYTES

from foretype_backend.config.fleet import FastConfig

__all__ = [
    "DEFAULT_PORT",
    "RUNNING_SERVERS",
    "AdmissionConfig",
    "EngineConfig",
    "EngineName",
    "GatewayConfig",
    "IdentityConfig",
    "LeasesConfig",
    "LimitsConfig",
    "MetricsConfig",
    "ModelConfig",
    "NextEditConfig",
    "ObjectivesMs",
    "OidcConfig",
    "PoolsConfig",
    "PricesConfig",
    "QualityConfig",
    "ReservedSlots",
    "ResidencyConfig",
    "TelemetryConfig",
    "TracingConfig",
]


DEFAULT_PORT: Final = 7878

EngineName = Literal["embedded", "llama-cpp", "lm-studio", "ollama", "openai", "scripted", "vllm", "vllm-server"]

RUNNING_SERVERS: Final = {
    "ollama": ("http://127.0.0.1:11434",),
    "llama-cpp": ("http://127.0.0.1:8012", "http://127.0.0.1:8080"),
    "lm-studio": ("http://127.0.0.1:1234/v1",),
}
"""Engines over servers that somebody already runs on this machine, and where those are found when nobody says."""


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token_file: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    linger_s: float = 60.0
    workers: int = 1
    drain_s: float = 10.0
    max_connections: int = 20_000
    max_connections_per_tenant: int = 5_000
    max_http_connections: int = 4_096
    max_requests: int = 2_048
    max_requests_per_tenant: int = 512
    http_idle_s: float = 30.0
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    region: str | None = None


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: EngineName = "embedded"
    model: str | None = None
    api_key_file: str | None = None
    options: dict[str, Any] = {}
    region: str | None = None


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str | None = None
    tokenizer: str | None = None
    grammar: str | None = None
    grammar_rules: dict[str, Any] | None = None
    layout: str | None = None
    context_limit_tokens: int | None = None
    block_tokens: int | None = None
    strategy: str = "default-1"
    strategy_rules: Strategy | None = None
    variant: str = "control"
    budgets: Budgets = Budgets()
    stop: StopRules = StopRules()
    min_mean_logprob: MinMeanLogprob | None = None
    local_min_confidence: float | None = None
    drop_broken: bool | None = None
    next_edit: str | None = None


class TelemetryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: bool = True
    url: str | None = None
    text_url: str | None = None
    key_file: str | None = None
    region: str | None = None
    text_region: str | None = None


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_running: int = 64
    max_waiting: int = 256
    live_per_connection: int = 64
    max_tokens: int = 1024
    max_deadline_ms: float = 120_000.0
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_segments: int = 1024
    segments_bytes: int = 1 << 31
    segments_bytes_per_tenant: int = 1 << 29
    abort_grace_ms: float = 1000.0
    retry_wait_ms: float = 2000.0


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int | None = None


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
    region: str | None = None

    @property
    def on(self) -> bool:
        return self.enabled if self.enabled is not None else self.url is not None or self.oidc is not None


class ObjectivesMs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """p99 of receipt to first token, by class; `fim` is for stateless HTTP clients."""

    interactive: float = 100.0
    fim: float = 150.0
    next_edit: float = 300.0
    block: float = 500.0
    chat: float = 2000.0
    speculative: float = 150.0
    warm: float = 1000.0


class ReservedSlots(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    interactive: int = 0
    next_edit: int = 0
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
    region: str | None = None


class ResidencyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenants: dict[str, tuple[str, ...]] = {}


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
    region: str | None = None
    max_running: int = 32
    max_waiting: int = 64
    block_fails_over: bool = True


class NextEditConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    format: str
    tokenizer: str
    model: str | None = None
    api_key_file: str | None = None
    context_limit_tokens: int = 4096
    region: str | None = None
    max_running: int = 32
    max_waiting: int = 64


class PoolsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fast: FastConfig = FastConfig()
    quality: QualityConfig | None = None
    next_edit: NextEditConfig | None = None
