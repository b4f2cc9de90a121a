"""Sections of the configuration file, with their defaults. `docs/reference/settings.md` is made of their docstrings.

A sentence that begins with `Unset:` says what counts where a setting has no value.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from foretype_context.prompt.profile import Budgets, LineChance, MinMeanLogprob, StopRules
from foretype_context.prompt.strategy import Strategy
from foretype_wire.messages import MAX_FRAME_BYTES

from foretype_backend.config.fleet import DiscoveryConfig, FastConfig

DEFAULT_PORT: Final = 7878

EngineName = Literal["embedded", "llama-cpp", "lm-studio", "ollama", "openai", "scripted", "vllm", "vllm-server"]

RUNNING_SERVERS: Final = {
    "ollama": ("http://127.0.0.1:11434",),
    "llama-cpp": ("http://127.0.0.1:8012", "http://127.0.0.1:8080"),
    "lm-studio": ("http://127.0.0.1:1234/v1",),
}
"""Engines over servers that somebody already runs on this machine, and the addresses to look at where none is configured."""


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The process and its port.

    Attributes:
        host: Address to bind (`--host`). Anything but loopback needs a token or identities.
        port: Port to bind (`--port`); 0 takes a free one, which is the default of a private gateway.
        token_file: File whose first line is the bearer token, at least 16 ASCII characters (`--token-file`).
        hosts: Further names that may stand in `Host`, beside the bound address, loopback and `localhost`.
        origins: Values of `Origin` that may connect. A client that is no browser sends none.
        linger_s: Private gateway: seconds without a connection after which it ends (`--linger-s`).
        workers: Processes that share the port (`--workers`). An engine in the gateway's own process allows one.
        drain_s: Seconds that clients have to move after SIGTERM before their connections close.
        max_connections: Open stream connections; a new one beyond it is closed with 1013.
        max_connections_per_tenant: The same of one tenant, where there are identities.
        max_http_connections: Open HTTP connections; beyond it the one that has been silent longest is closed.
        max_requests: HTTP requests that are being answered; beyond it 503.
        max_requests_per_tenant: The same of one tenant, where there are identities; beyond it 429.
        http_idle_s: Seconds that an HTTP connection may be silent, or take for the head of a request.
        tls_cert_file: PEM file of the certificate. With it the gateway speaks TLS itself.
        tls_key_file: PEM file of its key.
        region: Where this gateway is, and with it every file and everything on its host that names no region of its own.
    """

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
    """The engine that computes completions.

    Attributes:
        name: One of these (`--engine`); `vllm` runs in the gateway's process, `vllm-server` on servers of its own.
        model: Model file, or base URL of a server (`--model`); `ollama` takes a model's name too. Unset: the shipped model; of
            `llama-cpp`, `lm-studio` and `ollama` their usual ports.
        api_key_file: File with the server's key.
        options: Of the engine itself, see below.
        region: Where the server is, and the Redis of its options. Unset: the gateway's, for what is on its host.
    """

    name: EngineName = "embedded"
    model: str | None = None
    api_key_file: str | None = None
    options: dict[str, Any] = {}
    region: str | None = None


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What clients are told of the model.

    Attributes:
        name: For people, logs and clients of OpenAI's door. Unset: the file's name, or what the server says.
        aliases: Other names that those clients may ask for, as `["qwen2.5-coder"]` for one that chooses its template by the name.
        tokenizer: Path of a `tokenizer.json`; `openai` needs it. Unset: the one beside the model, else what its GGUF carries.
        grammar: Id of the FIM grammar, one of `foretype models families`; `foretype models identify FILE` says which one a file
            wants. Unset: by the tokenizer's control tokens.
        grammar_rules: The grammar itself, for a family that this version does not know: see docs/models.md.
        layout: Order of the prompt: `psm_line_last`, `psm_growing`, `psm_classic` or `spm`; a layout that the grammar lacks
            counts as unset. Unset: the shipped model's own, else the grammar's first.
        context_limit_tokens: Prompt and output together. Unset: the engine's.
        block_tokens: Size of a prefix-cache block. Unset: the engine's.
        strategy: Context strategy, by name; feedback carries the name, for comparisons.
        strategy_rules: The strategy itself, for clients that do not know the name: see `foretype_context.prompt.strategy`.
        variant: A name that feedback carries. For comparisons that the gateway itself makes see docs/experiments.md.
        budgets: See below.
        free_budgets: The same for tenants of the free tier. Unset: those of everybody.
        stop: See below.
        min_mean_logprob: See below. Unset: the shipped model's own, else -100 of each.
        line_chance: See below. Unset: the shipped model's own, else every line is shown.
        local_min_confidence: Confidence from which on the client's local candidate is shown without asking the model. Unset: the shipped model's own, else
            0.9.
        drop_broken: Clients cut back or leave out what adds an error of syntax to the file (docs/evaluation.md). Unset:
            true, but false for `scripted`, whose answers are no code.
        next_edit: Format of next edits (docs/models.md) that this model was trained on too: `zeta-2.1`,
            `sweep-next-edit` or `nep-qwen2.5-coder`.
    """

    name: str | None = None
    aliases: tuple[str, ...] = ("foretype",)
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
    free_budgets: Budgets | None = None
    stop: StopRules = StopRules()
    min_mean_logprob: MinMeanLogprob | None = None
    line_chance: LineChance | None = None
    local_min_confidence: float | None = None
    drop_broken: bool | None = None
    next_edit: str | None = None


class TelemetryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of suggestions (docs/telemetry.md).

    Attributes:
        enabled: Keep what clients report; else it is acknowledged and dropped (`--no-telemetry`).
        url: `postgresql://…`, or the path of a SQLite file (`--telemetry-url`). Unset: `telemetry/events.db` in the state directory.
        text_url: Where opted-in text lies: a folder, or `s3://bucket/prefix`. Unset: `telemetry/texts` in the state directory.
        key_file: 32 bytes that texts are encrypted with, the same on every gateway (`foretype config new-secret FILE`); one that is
            named must be there. Unset: `telemetry/key` in the state directory, made on first use.
        region: Where the store of events is. Unset: the gateway's, for what is on its host.
        text_region: Where the store of texts is. Unset: the gateway's, for what is on its host.
    """

    enabled: bool = True
    url: str | None = None
    text_url: str | None = None
    key_file: str | None = None
    region: str | None = None
    text_region: str | None = None


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one client may ask for.

    Attributes:
        max_running: Requests in the engine at once.
        max_waiting: Requests that wait for it; beyond it `overloaded`.
        live_per_connection: Live requests of one connection; beyond it `overloaded`.
        max_tokens: Most tokens that one request may generate.
        max_deadline_ms: Longer deadlines are cut to this.
        max_frame_bytes: Larger frames and HTTP bodies are refused; a frame four times larger ends the connection.
        max_segments: Segments in one `complete`; at most 4096.
        segments_bytes: Bytes of text that all connections together remember; each text counts 256 bytes more than it has. Beyond it a
            connection remembers less, and asks for texts again with `need`.
        segments_bytes_per_tenant: The same of one tenant's connections.
        abort_grace_ms: How long a cancelled request may take to leave the engine.
        retry_wait_ms: How long a request waits, once and before its first token, for an engine that was lost.
    """

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
    """A separate port for `/metrics`.

    Attributes:
        host: Address that it binds.
        port: Port, served without a token and without TLS; 0 takes a free one, which the log names. Unset: the gateway's own port alone.
    """

    host: str = "127.0.0.1"
    port: int | None = None


class OidcConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bearer tokens of an issuer; the user is their `sub`.

    Attributes:
        issuer: What a token must say in `iss`.
        audience: What a token must say in `aud`.
        jwks_url: Where the issuer's keys are. Unset: by discovery.
        tenant_claim: The claim that names the tenant.
        team_claim: The claim that names the team.
        tenant: Every token's tenant, whatever it claims.
        refresh_s: How often the keys are fetched.
    """

    issuer: str
    audience: str
    jwks_url: str | None = None
    tenant_claim: str = "tenant"
    team_claim: str = "team"
    tenant: str | None = None
    refresh_s: float = 300.0


class IdentityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may use the gateway.

    Attributes:
        enabled: Demand a key or a bearer token of each user. Unset: true where `url` or `oidc` is set.
        url: Store of tenants, keys and usage: `postgresql://…`, or the path of a SQLite file (`--identity-url`). Unset:
            `identity/identity.db` in the state directory.
        read_url: A copy of that PostgreSQL for reading, in the gateway's region; it is asked while the PostgreSQL at `url` does not answer.
        poll_ms: How often a change in the store is looked for.
        salt_file: 32 bytes that cache salts are made of, the same on every gateway (`foretype config new-secret FILE`); one that is
            named must be there. Unset: `identity/salt` in the state directory, made on first use.
        oidc: See below.
        region: Where the store is. Unset: the gateway's, for what is on its host.
        read_region: Where its copy is. Unset: the gateway's, for what is on its host.
    """

    enabled: bool | None = None
    url: str | None = None
    read_url: str | None = None
    poll_ms: float = 500.0
    salt_file: str | None = None
    oidc: OidcConfig | None = None
    region: str | None = None
    read_region: str | None = None

    @property
    def on(self) -> bool:
        return self.enabled if self.enabled is not None else self.url is not None or self.oidc is not None


class ObjectivesMs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """p99 of receipt to first token, by class.

    Attributes:
        interactive: A suggestion while somebody types.
        fim: Of stateless HTTP clients.
        next_edit: A next edit.
        block: A whole block.
        chat: Chat on the gateway's own model.
        speculative: What may be wanted next.
        warm: A prompt that is computed ahead.
    """

    interactive: float = 100.0
    fim: float = 150.0
    next_edit: float = 300.0
    block: float = 500.0
    chat: float = 2000.0
    speculative: float = 150.0
    warm: float = 1000.0


class ReservedSlots(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Slots of the engine that lower classes never take.

    Attributes:
        interactive, next_edit, block, chat, speculative: Slots kept for that class.
    """

    interactive: int = 0
    next_edit: int = 0
    block: int = 0
    chat: int = 0
    speculative: int = 0


class AdmissionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a request is refused early.

    Attributes:
        shed: Refuse early when an objective is in danger. Unset: true, but false for `embedded`, `llama-cpp`, `lm-studio` and
            `ollama`.
        refuse_share: Share of an objective above which shedding begins.
        resume_share: Share of an objective below which it ends.
        objectives_ms: See below.
        chat_ttft_ms: p99 of the time to first token of chat on the quality pool.
        chat_tpot_paid_ms: p99 of chat's time per token after the first, for tenants of the paid tier.
        chat_tpot_free_ms: The same for the free tier, which is refused first.
        reserved: See below.
    """

    shed: bool | None = None
    refuse_share: float = 0.8
    resume_share: float = 0.6
    objectives_ms: ObjectivesMs = ObjectivesMs()
    chat_ttft_ms: float = 700.0
    chat_tpot_paid_ms: float = 40.0
    chat_tpot_free_ms: float = 60.0
    reserved: ReservedSlots = ReservedSlots()


class LeasesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Budgets that gateways share.

    Attributes:
        redis_url: Redis that they are shared through. Unset: each gateway counts alone.
        slice_s: Seconds' worth of a budget that one gateway holds.
        share: Part of every budget that the gateways of this Redis may use, where gateways of another region use the rest.
        region: Where that Redis is. Unset: the gateway's, for what is on its host.
    """

    redis_url: str | None = None
    slice_s: float = 1.0
    share: float = 1.0
    region: str | None = None


class ResidencyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a tenant's data may be (docs/operations.md).

    Attributes:
        tenants: Regions that a tenant is bound to, `acme = ["eu"]`; nothing outside of them is used for it.
    """

    tenants: dict[str, tuple[str, ...]] = {}


class PricesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For `foretype usage` and `foretype report`, in whatever currency the team counts.

    Attributes:
        prompt_per_million: Price of a million prompt tokens that were computed.
        cached_per_million: Price of a million prompt tokens that were cached.
        generated_per_million: Price of a million tokens that were generated.
        engine_hour: Price of an hour of the engine.
    """

    prompt_per_million: float = 0.0
    cached_per_million: float = 0.0
    generated_per_million: float = 0.0
    engine_hour: float = 0.0


class TracingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traces (docs/operations.md).

    Attributes:
        endpoint: OpenTelemetry collector (OTLP over HTTP), `http://collector:4318`; naming it sends traces there.
        sample_share: Share of the traces that begin in the gateway; a client decides for those that it begins. Unset: 1.
    """

    endpoint: str | None = None
    sample_share: float | None = None


class QualityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server for chat and whole blocks, or several replicas of one.

    Attributes:
        url: Base URL of a server that speaks OpenAI's protocol.
        replicas: In place of it: base URLs of several `vllm serve`, routed, checked and salted as those of `[pool.fast]`.
        discovery: Where the replicas are announced, as described at `[pool.fast.discovery]`; their label `pool` is `quality`.
        model: The server's name for the model. Unset: what the server serves.
        free_model: The same for tenants of the free tier, which may get a smaller one. Unset: `model`.
        api_key_file: File with the server's key.
        tokenizer: `tokenizer.json` of the server's model, for `class: block`. Unset: the fast pool serves blocks.
        grammar: Id of that model's FIM grammar, for `class: block`.
        context_limit_tokens: Prompt and answer together.
        region: Where it is. Unset: the gateway's, for what is on its host.
        max_running: Requests in it at once.
        max_waiting: Requests that wait for it.
        block_fails_over: `class: block` goes to the fast pool while this one is away.
        block_prompt_tokens: Longest prompt of a whole block; a tokenizer is needed.
    """

    url: str = ""
    replicas: tuple[str, ...] = ()
    discovery: DiscoveryConfig | None = None
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
    block_prompt_tokens: int = 4000

    @property
    def fleet(self) -> FastConfig | None:
        """The replicas as the configuration of a pool; None where a single server answers, or a router in front of several."""
        if not self.replicas and self.discovery is None:
            return None
        found = self.discovery
        if found is not None and found.pool == DiscoveryConfig(source="dns").pool:
            found = msgspec.structs.replace(found, pool="quality")
        return FastConfig(replicas=self.replicas, discovery=found, model=self.model, batch=_QUALITY_BATCH)


_QUALITY_BATCH: Final = 32
"""As `max-num-seqs` of the profiles of large models."""


class NextEditConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server of a model for next edits, in place of `model.next_edit`.

    Attributes:
        url: Base URL; it speaks OpenAI's protocol.
        format: How that model is asked: `zeta-2.1`, `sweep-next-edit` or `nep-qwen2.5-coder`.
        tokenizer: The model's `tokenizer.json`.
        model: The server's name for the model. Unset: what the server serves.
        api_key_file: File with the server's key.
        context_limit_tokens: Prompt and answer together.
        region: Where it is. Unset: the gateway's, for what is on its host.
        max_running: Requests in it at once.
        max_waiting: Requests that wait for it.
    """

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
    """Servers that compute for a gateway.

    Attributes:
        fast, quality, next_edit: See below.
        revisions: `[pool.revisions.NAME]`: grammar, tokenizer, budgets and the rest of the replicas that announce the revision NAME,
            as in `[model]` and in place of it; see docs/deploy.md.
        free_revision: One of them, that answers tenants of the free tier; its replicas announce the pool `free`.
    """

    fast: FastConfig = FastConfig()
    revisions: dict[str, ModelConfig] = {}
    free_revision: str | None = None
    quality: QualityConfig | None = None
    next_edit: NextEditConfig | None = None
