"""The whole configuration of a gateway: the tables of its file, and what flags and a token file add."""

from __future__ import annotations

from pathlib import Path

import msgspec

from foretype_backend.config.settings import (
    AdmissionConfig,
    EngineConfig,
    GatewayConfig,
    IdentityConfig,
    LeasesConfig,
    LimitsConfig,
    MetricsConfig,
    ModelConfig,
    PoolsConfig,
    PricesConfig,
    ResidencyConfig,
    TelemetryConfig,
    TracingConfig,
)


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tables of a profile file."""

    gateway: GatewayConfig = GatewayConfig()
    engine: EngineConfig = EngineConfig()
    model: ModelConfig = ModelConfig()
    limits: LimitsConfig = LimitsConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    metrics: MetricsConfig = MetricsConfig()
    identity: IdentityConfig = IdentityConfig()
    admission: AdmissionConfig = AdmissionConfig()
    leases: LeasesConfig = LeasesConfig()
    prices: PricesConfig = PricesConfig()
    residency: ResidencyConfig = ResidencyConfig()
    tracing: TracingConfig = TracingConfig()
    pool: PoolsConfig = PoolsConfig()


class Config(ConfigFile, frozen=True, kw_only=True):
    """Everything that a gateway needs to know, checked.

    Attributes:
        token: bearer token that every door but those for probes asks for; None leaves a loopback gateway open.
        private: one user's own gateway: free port, `gateway.json`, ends by itself.
        state_dir: where `gateway.json` is written, in private mode.
    """

    token: str | None = None
    private: bool = False
    state_dir: Path | None = None

    def __repr__(self) -> str:
        token = "set" if self.token else "none"
        return f"<Config: {self.engine.name} on {self.gateway.host}:{self.gateway.port}, token {token}>"
