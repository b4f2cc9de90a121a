"""Where tenants may be served: what a configuration names has a region, and a tenant of `[residency.tenants]` uses those of its own alone.

Pure. What runs on the gateway's own host, or is a file of it, is where the gateway is; all else says where it is. Replicas of a pool
may be in several regions: the router takes those of the tenant. Everything else serves all tenants, so that it has to be in the
regions of each. Metrics and traces hold no text, and are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from foretype_backend.config.config import Config
from foretype_backend.config.names import is_name
from foretype_backend.errors import ConfigError

_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_FILES: Final = frozenset({"sqlite", "unix", "file"})
_SERVERS: Final = frozenset({"http", "https", "redis", "rediss", "postgresql", "postgres"})


class _Place(NamedTuple):
    """Something that gets text of tenants or tells who they are; `field` says where it is."""

    field: str
    what: str
    region: str | None


def replica_regions(config: Config) -> tuple[str | None, ...]:
    """Of the replicas of `[pool.fast]`, in their order; None where nobody says."""
    fast = config.pool.fast
    named = fast.regions or (None,) * len(fast.replicas)
    return tuple(region or _here(url, config.gateway.region) for url, region in zip(fast.replicas, named, strict=False))


def listed_regions(config: Config) -> tuple[str | None, ...]:
    """The same, where `[engine] model` names the one server in place of the list."""
    return replica_regions(config) if config.engine.model is None else (_engine(config),)


def check_residency(config: Config) -> None:
    """Raises ConfigError for the first thing that a tenant would use outside of its regions."""
    fast = config.pool.fast
    if fast.regions and len(fast.regions) != len(fast.replicas):
        raise ConfigError(
            "pool.fast.regions", f"{len(fast.regions)} for {len(fast.replicas)} replicas; one for each, in order"
        )
    for tenant, allowed in config.residency.tenants.items():
        field = f"residency.tenants.{tenant}"
        if not is_name(tenant):
            raise ConfigError(field, f"{tenant!r} is no name of a tenant; take letters, digits, and . _ @ -")
        if not allowed or not all(allowed):
            raise ConfigError(field, 'names no region; write a list of them, as in ["eu"], or leave the tenant out')
        for place in _places(config, tenant):
            if place.region not in allowed:
                raise ConfigError(place.field, _told(place, tenant, allowed))
        if fast.replicas and not set(replica_regions(config)) & set(allowed):
            told = f"no replica is in {_listed(allowed)}, where tenant {tenant!r} may be served"
            raise ConfigError("pool.fast.regions", f"{told}; name the regions of all, or add a replica there")


def _told(place: _Place, tenant: str, allowed: tuple[str, ...]) -> str:
    where = "it is not said where" if place.region is None else f"in {place.region}"
    bound = f"tenant {tenant!r} may be served in {_listed(allowed)} alone (residency.tenants)"
    return f"{place.what} is {where}, and {bound}; name the region of one that is there"


def _listed(regions: tuple[str, ...]) -> str:
    return ", ".join(regions)


def _places(config: Config, tenant: str) -> Iterator[_Place]:
    """All but replicas."""
    here, fast, quality = config.gateway.region, config.pool.fast, config.pool.quality
    yield _Place("gateway.region", "the gateway", here)
    if not fast.replicas and fast.discovery is None:
        yield _Place("engine.region", "the engine", _engine(config))
    if fast.retire_url is not None or tenant in fast.shared_tier_tenants:
        near = None if fast.retire_url is None else _here(fast.retire_url, here)
        yield _Place("pool.fast.tier_region", "the shared tier", fast.tier_region or near)
    if quality is not None:
        urls = (quality.url,) if quality.url else quality.replicas
        near = here if urls and all(map(_is_here, urls)) else None
        yield _Place("pool.quality.region", "the quality pool", quality.region or near)
    edits = config.pool.next_edit
    if edits is not None:
        yield _Place("pool.next_edit.region", "the model of next edits", edits.region or _here(edits.url, here))
    if config.identity.on:
        yield _Place(
            "identity.region", "the identity store", config.identity.region or _here(config.identity.url, here)
        )
        if (copy := config.identity.read_url) is not None:
            region = config.identity.read_region or _here(copy, here)
            yield _Place("identity.read_region", "the identity store's copy for reading", region)
    telemetry = config.telemetry
    if telemetry.enabled:
        yield _Place("telemetry.region", "the telemetry store", telemetry.region or _here(telemetry.url, here))
        text = telemetry.text_region or _here(telemetry.text_url, here)
        yield _Place("telemetry.text_region", "the store of opted-in texts", text)
    if config.leases.redis_url is not None:
        region = config.leases.region or _here(config.leases.redis_url, here)
        yield _Place("leases.region", "the Redis of budgets", region)


def _engine(config: Config) -> str | None:
    engine = config.engine
    redis = engine.options.get("redis_url")
    return engine.region or (_here(engine.model, config.gateway.region) if _is_here(redis) else None)


def _here(url: str | None, here: str | None) -> str | None:
    return here if _is_here(url) else None


def _is_here(url: object) -> bool:
    """Whether it is a file of this host, or a server on it."""
    if not isinstance(url, str) or "://" not in url:
        return True
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in _FILES or (parts.hostname in _HERE and parts.scheme in _SERVERS)
