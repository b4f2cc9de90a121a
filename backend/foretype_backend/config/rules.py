"""What values of a configuration must be, beyond their types. Pure: whether the things they name exist is checked where they are used."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Generator
from typing import Final
from urllib.parse import urlsplit

import msgspec
from foretype_context.edit_models.format import FORMATS
from foretype_context.errors import GrammarError
from foretype_context.grammars.grammar import described
from foretype_context.prompt.profile import Budgets
from foretype_context.prompt.strategy import STRATEGIES

from foretype_backend.config.config import Config
from foretype_backend.config.names import is_name
from foretype_backend.config.settings import GatewayConfig, MetricsConfig, ModelConfig, OidcConfig, QualityConfig
from foretype_backend.errors import ConfigError

_HOSTNAME: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?", re.IGNORECASE)
_REDIS: Final = ("redis", "rediss", "unix")


def check_values(config: Config) -> None:
    """Raises ConfigError for the first value that cannot be what is meant."""
    _check_gateway(config.gateway)
    _check_metrics(config.metrics, config.gateway.port)
    _check_model(config.model)
    _check_next_edit(config)
    _check_revisions(config)
    _check_quality(config.pool.quality)
    if config.identity.oidc is not None:
        _check_oidc(config.identity.oidc)
    redis_url = config.leases.redis_url
    if redis_url is not None and not _is_url(redis_url, *_REDIS):
        # The URL itself may hold a password.
        raise ConfigError("leases.redis_url", "is no URL of a Redis; it looks like redis://host:6379/0")
    for name, price in msgspec.structs.asdict(config.prices).items():
        if not 0 <= price < float("inf"):
            raise ConfigError(f"prices.{name}", "a price is zero or more; leave it out for none")


def check_context(model: ModelConfig, limit_tokens: int) -> None:
    """Raises ConfigError where the file asks for prompts that the model's context cannot hold.

    The default is no wish: clients cut it to what the context leaves.
    """
    wanted = model.budgets.prompt_tokens
    if wanted not in range(limit_tokens) and wanted != Budgets().prompt_tokens:
        raise ConfigError(
            "model.budgets.prompt_tokens",
            f"{wanted} tokens of prompt leave no room in the model's context of {limit_tokens}; lower it",
        )


def _check_gateway(gateway: GatewayConfig) -> None:
    _check_host("gateway.host", gateway.host)
    for at, host in enumerate(gateway.hosts):
        if not _is_host(host):
            remedy = "write it as it stands in Host, without scheme and port: foretype.example"
            raise ConfigError(f"gateway.hosts[{at}]", f"{host!r} is no name of a host; {remedy}")
    for at, origin in enumerate(gateway.origins):
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/*]+/?", origin, re.IGNORECASE):
            remedy = "write scheme, host and port, as in https://ide.example"
            raise ConfigError(f"gateway.origins[{at}]", f"{origin!r} is no origin; {remedy}")


def _check_metrics(metrics: MetricsConfig, gateway_port: int) -> None:
    _check_host("metrics.host", metrics.host)
    port = metrics.port
    if port is not None and not 0 <= port <= 65535:
        raise ConfigError("metrics.port", f"{port} is no port; choose 1 to 65535, or leave it out")
    if port and port == gateway_port:
        raise ConfigError("metrics.port", f"{port} is the port of the gateway itself; choose another, or leave it out")


def _check_model(model: ModelConfig) -> None:
    _check_budgets("model.budgets", model.budgets)
    if model.free_budgets is not None:
        _check_budgets("model.free_budgets", model.free_budgets)
    if not 0 <= model.stop.least_chance < 1:
        raise ConfigError("model.stop.least_chance", "must be a chance from 0 (never) to below 1")
    _check_grammar(model)
    rules = model.strategy_rules
    if rules is not None and rules.id != model.strategy:
        raise ConfigError(
            "model.strategy_rules.id",
            f"is {rules.id!r}, and model.strategy names {model.strategy!r}; name one strategy",
        )
    if rules is None and model.strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise ConfigError(
            "model.strategy", f"{model.strategy!r} is none of {known}; choose one, or give [model.strategy_rules]"
        )
    if model.context_limit_tokens is not None:
        check_context(model, model.context_limit_tokens)


def _check_budgets(field: str, budgets: Budgets) -> None:
    for name, least in {
        "prompt_tokens": 1,
        "suffix_tokens": 0,
        "context_tokens": 0,
        "line_tokens": 1,
        "block_tokens": 1,
    }.items():
        if getattr(budgets, name) < least:
            raise ConfigError(f"{field}.{name}", f"must be at least {least}; leave it out for the default")
    if not 0 < budgets.assembly_ms < float("inf"):
        raise ConfigError(f"{field}.assembly_ms", "must be a number of milliseconds above zero")


def _check_revisions(config: Config) -> None:
    discovery, free = config.pool.fast.discovery, config.pool.free_revision
    if free is not None and free not in config.pool.revisions:
        known = ", ".join(config.pool.revisions) or "none"
        raise ConfigError("pool.free_revision", f"{free!r} is not among pool.revisions ({known}); describe it there")
    for name, model in config.pool.revisions.items():
        field = f"pool.revisions.{name}"
        if discovery is None or discovery.source != "http":
            remedy = 'name a directory with [pool.fast.discovery] source = "http", or leave them out'
            raise ConfigError(field, f"revisions are told apart by what replicas announce; {remedy}")
        if model.tokenizer is None:
            raise ConfigError(f"{field}.tokenizer", "name the tokenizer.json of this revision's model")
        if model.next_edit is not None:
            raise ConfigError(f"{field}.next_edit", "next edits come from [model] or [pool.next_edit]; leave it out")
        with of_revision(name):
            _check_model(model)


@contextlib.contextmanager
def of_revision(name: str) -> Generator[None]:
    """What is wrong with `[model]` is said of the revision that stands in its place."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(re.sub(r"^model\b", f"pool.revisions.{name}", error.field), error.message) from error


def _check_quality(quality: QualityConfig | None) -> None:
    if quality is None:
        return
    ways = [name for name in ("url", "replicas", "discovery") if getattr(quality, name)]
    if len(ways) != 1:
        told = f"{' and '.join(ways)} stand beside each other" if ways else "names no server"
        raise ConfigError(f"pool.quality.{ways[-1] if ways else 'url'}", f"{told}; name url, replicas or discovery")
    if quality.discovery is not None:
        quality.discovery.check("pool.quality.discovery")
    fleet = quality.fleet
    if fleet is not None:
        try:
            fleet.check()
        except ConfigError as error:
            raise ConfigError(error.field.replace("pool.fast", "pool.quality", 1), error.message) from error
    if quality.block_prompt_tokens < 64:
        raise ConfigError("pool.quality.block_prompt_tokens", "must be at least 64; leave it out for 4,000")


def _check_next_edit(config: Config) -> None:
    own, pool = config.model.next_edit, config.pool.next_edit
    if own is not None and pool is not None:
        raise ConfigError("model.next_edit", "stands beside [pool.next_edit]; name one model for next edits")
    named = {"model.next_edit": own, "pool.next_edit.format": None if pool is None else pool.format}
    for field, format in named.items():
        if format is not None and format not in FORMATS:
            raise ConfigError(field, f"{format!r} is none of {', '.join(FORMATS)}; see docs/models.md")


def _check_grammar(model: ModelConfig) -> None:
    if model.grammar_rules is None:
        return
    try:
        found = described(model.grammar_rules)
    except GrammarError as error:
        field, _, wrong = str(error).partition(": ")
        raise ConfigError(field.replace("grammar", "model.grammar_rules", 1), wrong) from error
    if model.grammar not in (None, found.id):
        raise ConfigError("model.grammar_rules.id", f"is {found.id!r}, and model.grammar names {model.grammar!r}")


def _check_oidc(oidc: OidcConfig) -> None:
    example = "it looks like https://issuer.example"
    if oidc.jwks_url is None and not _is_url(oidc.issuer, "http", "https"):
        raise ConfigError("identity.oidc.issuer", f"{oidc.issuer!r} is no URL; {example}, or name jwks_url")
    if oidc.jwks_url is not None and not _is_url(oidc.jwks_url, "http", "https"):
        raise ConfigError("identity.oidc.jwks_url", f"is no URL; {example}/keys")
    for name in ("issuer", "audience", "tenant_claim", "team_claim"):
        if not getattr(oidc, name):
            raise ConfigError(f"identity.oidc.{name}", "is empty; write what the issuer's tokens say")
    if oidc.tenant is not None and not is_name(oidc.tenant):
        raise ConfigError(
            "identity.oidc.tenant", f"{oidc.tenant!r} is no name of a tenant; take letters, digits, and . _ @ -"
        )


def _check_host(field: str, host: str) -> None:
    if not _is_host(host):
        raise ConfigError(field, f"{host!r} is no address; write 127.0.0.1, 0.0.0.0, :: or the name of a host")


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return _HOSTNAME.fullmatch(text) is not None
    return True


def _is_url(text: str, *schemes: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and (parts.scheme == "unix" or bool(parts.hostname)) and parts.port != 0
    except ValueError:  # of the port, or of brackets
        return False
