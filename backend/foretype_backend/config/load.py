"""Reads a gateway's configuration, once, at the edge.

Sources, strongest first: command-line flags, the TOML file given by `--profile`, the defaults below. Of the environment only
`OTEL_*` is read, by the OpenTelemetry SDK.

What may stand in the file, and the defaults, is in `settings`; the whole is `config.Config`.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from foretype_wire.errors import TracingError
from foretype_wire.tracing.opening import check_endpoint

from foretype_backend.config.config import Config, ConfigFile
from foretype_backend.config.fleet import DiscoveryConfig, FastConfig
from foretype_backend.config.former import without_former
from foretype_backend.config.residency import check_residency
from foretype_backend.config.rules import check_values
from foretype_backend.config.settings import (
    RUNNING_SERVERS,
    EngineConfig,
    PoolsConfig,
    TelemetryConfig,
    TracingConfig,
)
from foretype_backend.errors import ConfigError

MIN_TOKEN_CHARS: Final = 16
_ABOVE_ZERO: Final = (
    "gateway.max_connections",
    "gateway.max_connections_per_tenant",
    "gateway.max_http_connections",
    "gateway.max_requests",
    "gateway.max_requests_per_tenant",
    "gateway.http_idle_s",
    "model.context_limit_tokens",
    "model.block_tokens",
    "identity.poll_ms",
    "identity.oidc.refresh_s",
    "leases.slice_s",
    "pool.quality.context_limit_tokens",
    "pool.quality.max_running",
    "pool.next_edit.context_limit_tokens",
    "pool.next_edit.max_running",
)
"""Of `limits` all. An interval of zero would ask a store without a pause."""

_UNKNOWN: Final = re.compile(r"contains unknown field `([^`]+)`")

_T = TypeVar("_T")


def load_config(
    *,
    profile: Path | None = None,
    engine: str | None = None,
    model: str | None = None,
    host: str | None = None,
    port: int | None = None,
    token_file: Path | None = None,
    private: bool = False,
    state_dir: Path | None = None,
    linger_s: float | None = None,
    telemetry: bool | None = None,
    telemetry_url: str | None = None,
    identity_url: str | None = None,
    workers: int | None = None,
    token: str | None = None,
) -> Config:
    """Merge flags over the profile file over the defaults, and check the whole.

    Args:
        profile: TOML file with tables `gateway`, `engine`, `model`, `limits`, `telemetry`; relative paths in it are relative to it.
        token: a token made at the edge (private mode); stronger than any file.

    Raises:
        ConfigError: names the field and the remedy.
    """
    file = _read_profile(profile) if profile is not None else ConfigFile()
    base = profile.parent if profile is not None else Path()
    gateway: dict[str, Any] = _given(host=host, port=port, linger_s=linger_s, workers=workers)
    if private:
        if port is None:
            gateway["port"] = 0
        if host is None:
            gateway["host"] = "127.0.0.1"
    if token_file is not None:
        gateway["token_file"] = str(token_file)
    elif file.gateway.token_file is not None:
        gateway["token_file"] = str(base / file.gateway.token_file)
    gateway |= _relative(file.gateway, base, "tls_cert_file", "tls_key_file")
    merged_engine = msgspec.structs.replace(file.engine, **_given(model=model))
    if engine is not None:
        merged_engine = convert(msgspec.to_builtins(merged_engine) | {"name": engine}, EngineConfig, "engine")
    named = bool(file.pool.fast.replicas) or file.pool.fast.discovery is not None
    if named and engine is None and merged_engine == EngineConfig():
        merged_engine = EngineConfig(name="vllm-server")
    is_path = "://" not in (merged_engine.model or "") and merged_engine.name not in RUNNING_SERVERS
    if merged_engine.model is not None and model is None and is_path:
        merged_engine = msgspec.structs.replace(merged_engine, model=str(base / merged_engine.model))
    if merged_engine.api_key_file is not None:
        merged_engine = msgspec.structs.replace(merged_engine, api_key_file=str(base / merged_engine.api_key_file))
    merged_model = file.model
    if merged_model.tokenizer is not None:
        merged_model = msgspec.structs.replace(merged_model, tokenizer=str(base / merged_model.tokenizer))
    merged_engine, merged_model = without_former(merged_engine, merged_model)
    identity = _relative(file.identity, base, "url", "salt_file") | _given(url=identity_url)
    merged = msgspec.structs.replace(
        file,
        gateway=msgspec.structs.replace(file.gateway, **gateway),
        engine=merged_engine,
        model=merged_model,
        telemetry=_telemetry(file.telemetry, base, enabled=telemetry, url=telemetry_url),
        identity=msgspec.structs.replace(file.identity, **identity),
        pool=_pools(file.pool, base),
    )
    config = Config(**msgspec.structs.asdict(merged), private=private, state_dir=state_dir)
    if token is None and config.gateway.token_file is not None:
        token = read_token(Path(config.gateway.token_file))
    config = msgspec.structs.replace(config, token=token)
    _check(config)
    return config


def read_token(path: Path, field: str = "token_file", *, min_chars: int = MIN_TOKEN_CHARS) -> str:
    """The first line of a token file. Raises ConfigError when it cannot be read or is too short."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(field, f"cannot read {path} ({error}); write the token into it, mode 0600") from error
    token = lines[0].strip() if lines else ""
    if len(token) < min_chars or not token.isascii():
        raise ConfigError(
            field,
            f"{path} holds no token of at least {min_chars} ASCII characters; make one with `openssl rand -hex 32`",
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether binding `host` is reachable from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _telemetry(file: TelemetryConfig, base: Path, *, enabled: bool | None, url: str | None) -> TelemetryConfig:
    paths = _relative(file, base, "url", "text_url", "key_file")
    return msgspec.structs.replace(file, **(paths | _given(enabled=enabled, url=url)))


def _pools(file: PoolsConfig, base: Path) -> PoolsConfig:
    fast = msgspec.structs.replace(file.fast, **_relative(file.fast, base, "api_key_file"))
    if fast.discovery is not None:
        fast = msgspec.structs.replace(fast, discovery=_discovery(fast.discovery, base))
    found: dict[str, Any] = {}
    for name in ("quality", "next_edit"):
        pool = getattr(file, name)
        if pool is not None:
            paths = _relative(pool, base, "api_key_file", "tokenizer")
            if name == "quality" and pool.discovery is not None:
                paths["discovery"] = _discovery(pool.discovery, base)
            found[name] = msgspec.structs.replace(pool, **paths)
    revisions = {
        name: msgspec.structs.replace(model, **_relative(model, base, "tokenizer"))
        for name, model in file.revisions.items()
    }
    return msgspec.structs.replace(file, fast=fast, revisions=revisions, **found)


def _discovery(found: DiscoveryConfig, base: Path) -> DiscoveryConfig:
    return msgspec.structs.replace(found, **_relative(found, base, "token_file", "path"))


def _relative(section: msgspec.Struct, base: Path, *names: str) -> dict[str, Any]:
    """Paths of the file are relative to it; URLs stay as they are."""
    found = _given(**{name: getattr(section, name) for name in names})
    return {name: value if "://" in value else str(base / value) for name, value in found.items()}


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _read_profile(path: Path) -> ConfigFile:
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError("profile", f"cannot read {path} ({error.strerror}); give the path of a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("profile", f"{path} is no TOML: {error}; correct it there") from error
    return convert(raw, ConfigFile, "")


def convert(raw: object, type_: type[_T], prefix: str, *, table: str = "docs/reference/settings.md") -> _T:
    """Of TOML. Raises ConfigError with the field, and the page whose table has what may stand there."""
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        where = where.strip("`").removeprefix("$.").removeprefix("$")
        unknown = _UNKNOWN.search(message)
        path = ".".join(part for part in (prefix, where, unknown[1] if unknown else "") if part)
        raise ConfigError(path or "profile", f"{message}; see the table of defaults in {table}") from error


def _check(config: Config) -> None:
    gateway, limits = config.gateway, config.limits
    check_values(config)
    if not 0 <= gateway.port <= 65535:
        raise ConfigError("gateway.port", f"{gateway.port} is no port; choose 1 to 65535, or 0 for a free one")
    if config.token is None and not config.identity.on and not is_loopback(gateway.host):
        raise ConfigError(
            "gateway.token_file",
            f"binding {gateway.host} without a token would open the gateway to the network; "
            "give --token-file FILE (make a token with `openssl rand -hex 32`), or bind 127.0.0.1",
        )
    if config.private and config.state_dir is None:
        raise ConfigError("state_dir", "--private needs --state-dir DIR, where gateway.json is written")
    if config.private and not is_loopback(gateway.host):
        raise ConfigError(
            "gateway.host", f"a private gateway binds loopback only, not {gateway.host}; leave --host out"
        )
    if not gateway.linger_s >= 0:
        raise ConfigError("gateway.linger_s", "seconds cannot be negative; 0 ends with the last connection")
    if not gateway.drain_s >= 0:
        raise ConfigError("gateway.drain_s", "seconds cannot be negative; 0 closes connections at once")
    _check_team(config)
    _check_fast(config)
    _check_tracing(config.tracing)
    check_residency(config)
    for field in (*_ABOVE_ZERO, *(f"limits.{name}" for name in msgspec.structs.asdict(limits))):
        value = _value(config, field)
        if value is not None and not 0 < value < float("inf"):  # TOML knows nan
            raise ConfigError(field, "must be a number above zero; leave it out for the default")


def _value(config: Config, field: str) -> Any:
    """What stands at a dotted name; None where a table on the way is not there."""
    found: Any = config
    for name in field.split("."):
        found = getattr(found, name, None)
    return found


def _check_tracing(tracing: TracingConfig) -> None:
    if tracing.sample_share is not None and not 0 <= tracing.sample_share <= 1:
        raise ConfigError("tracing.sample_share", "a share is between 0 and 1; leave it out for all")
    if tracing.endpoint is not None:
        try:
            check_endpoint(tracing.endpoint)
        except TracingError as error:
            raise ConfigError(error.field, error.message) from error


def _check_fast(config: Config) -> None:
    fast, engine = config.pool.fast, config.engine
    fast.check()
    if engine.name != "vllm-server":
        if fast != FastConfig():
            raise ConfigError(
                "engine.name", f"`{engine.name}` beside [pool.fast]; leave [engine] out, or choose `vllm-server`"
            )
        return
    if bool(fast.replicas or fast.discovery is not None) == bool(engine.model):
        told = "name the replicas here or where they are announced (discovery), or one URL with --model; one of them"
        raise ConfigError("pool.fast.replicas", told)
    if config.identity.on and config.identity.salt_file is None:
        raise ConfigError(
            "identity.salt_file",
            "replicas shared by tenants need one secret, the same on every gateway; make a file with "
            "`foretype config new-secret FILE`, and name it here",
        )


def _check_team(config: Config) -> None:
    gateway, admission = config.gateway, config.admission
    if gateway.workers < 1:
        raise ConfigError("gateway.workers", "at least one process has to serve; leave it out for one")
    if gateway.workers > 1 and (config.engine.name in ("embedded", "vllm") or config.private):
        raise ConfigError(
            "gateway.workers",
            f"engine `{config.engine.name}` belongs to one process; leave it at 1, or serve the model with `vllm serve`",
        )
    if not 0 < config.leases.share <= 1:
        raise ConfigError(
            "leases.share", "a share is above 0 and at most 1; leave it out where one Redis counts for all"
        )
    if (copy := config.identity.read_url) is not None:
        if config.identity.url is None:
            raise ConfigError("identity.read_url", "is read while identity.url does not answer; name that, too")
        if not copy.startswith(("postgresql://", "postgres://")):
            raise ConfigError(
                "identity.read_url", "is no PostgreSQL; write postgresql://user@host/foretype, or leave it out"
            )
    if (gateway.tls_cert_file is None) != (gateway.tls_key_file is None):
        raise ConfigError("gateway.tls_cert_file", "certificate and key belong together; name both or neither")
    if not 0 < admission.resume_share < admission.refuse_share <= 1:
        raise ConfigError(
            "admission.resume_share",
            "must be above 0 and below refuse_share, which is at most 1; 0.6 and 0.8 are usual",
        )
    for name, value in msgspec.structs.asdict(admission.objectives_ms).items():
        if not 0 < value < float("inf"):
            raise ConfigError(f"admission.objectives_ms.{name}", "must be a number of milliseconds above zero")
    reserved = msgspec.structs.asdict(admission.reserved)
    for name, value in reserved.items():
        if value < 0:
            raise ConfigError(f"admission.reserved.{name}", "slots cannot be negative; leave it out for none")
    if sum(reserved.values()) > config.limits.max_running:
        raise ConfigError(
            "admission.reserved",
            f"reserves more than the {config.limits.max_running} slots of limits.max_running; lower it, or raise those",
        )
    if config.identity.on and config.private:
        raise ConfigError("identity.enabled", "a private gateway serves one user; leave identity out")
