"""What a file cannot say of itself: what `foretype config check` leaves to the network, or to the machine that a gateway starts on."""

from __future__ import annotations

from typing import NamedTuple

from foretype_backend.config.config import Config
from foretype_backend.config.settings import RUNNING_SERVERS
from foretype_backend.config.tenants import server_field

_APART = ", and keeps tenants apart by salts"


class Unknown(NamedTuple):
    """Something that a start may still fail by, or that a gateway will miss. `probed`: `--probe` finds it out."""

    field: str
    message: str
    probed: bool = True


def unknown(config: Config) -> list[Unknown]:
    """Everything of a configuration that reading it cannot tell. No address is told: it may hold a password."""
    found = [Unknown("gateway.port", "whether the port is free on the machine that serves", probed=False)]
    if config.metrics.port:
        found.append(Unknown("metrics.port", "whether the port is free on the machine that serves", probed=False))
    found += _engines(config)
    for field, url in (("identity.url", config.identity.url), ("telemetry.url", config.telemetry.url)):
        used = config.identity.on if field == "identity.url" else config.telemetry.enabled
        if used and url is not None:
            found.append(Unknown(field, "whether the store can be opened, and has a schema that this version knows"))
    if config.telemetry.enabled and "://" in (config.telemetry.text_url or ""):
        found.append(Unknown("telemetry.text_url", "whether the store of texts takes anything", probed=False))
    if config.identity.on and config.leases.redis_url is not None:
        found.append(Unknown("leases.redis_url", "whether Redis answers; without it each gateway counts alone"))
    if config.pool.fast.retire_url is not None:
        found.append(Unknown("pool.fast.retire_url", "whether Redis answers; without it nothing is retired early"))
    if config.identity.oidc is not None:
        found.append(Unknown("identity.oidc.issuer", "whether the issuer's keys can be fetched"))
    if config.tracing.endpoint is not None:
        found.append(Unknown("tracing.endpoint", "whether the collector takes spans", probed=False))
    return found


def _engines(config: Config) -> list[Unknown]:
    engine, apart = config.engine.name, _APART if config.identity.on else ""
    found: list[Unknown] = []
    if engine in ("openai", "vllm-server", *RUNNING_SERVERS):
        told = "whether the server answers, has the model and the context that are asked for"
        found.append(Unknown(server_field(config), told + apart))
    elif engine == "embedded":
        found.append(Unknown("engine.model", "whether the model loads"))
    elif engine == "vllm":
        found.append(Unknown("engine.model", "whether vLLM is installed, and the model loads", probed=False))
    if config.pool.quality is not None:
        found.append(Unknown("pool.quality.url", "whether the server answers" + apart))
    if config.pool.next_edit is not None:
        found.append(Unknown("pool.next_edit.url", "whether the server answers" + apart))
    return found
