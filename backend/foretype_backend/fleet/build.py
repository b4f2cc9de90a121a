"""From `[pool.fast]` to a pool of replicas. Nothing is connected before the pool starts."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping
from typing import Any

from foretype_backend.config.fleet import FastConfig
from foretype_backend.engines.port import Origin
from foretype_backend.engines.vllm.request import tier_parameters
from foretype_backend.engines.vllm.server import VllmServerEngine
from foretype_backend.fleet.health import HealthOptions
from foretype_backend.fleet.pool import PoolOptions, ReplicaPool
from foretype_backend.fleet.retire import RetireSender
from foretype_backend.fleet.routing.router import RoutingOptions
from foretype_backend.prefix.salt import tier_secret

__all__ = ["make_pool"]


def make_pool(
    fast: FastConfig,
    *,
    vocabulary_tokens: int | None = None,
    api_key: str | None = None,
    shared: bool = False,
    secret: bytes = b"",
    within: Mapping[str, frozenset[str]] | None = None,
    **options: Any,
) -> ReplicaPool:
    """A pool, not started.

    Args:
        shared: tenants that do not trust each other reach it.
        secret: of the salts, where messages go to the servers' tiers.
        within: by tenant that is bound to regions, the URLs of the replicas in them.
        options: further fields of :class:`foretype_backend.engines.openai.events.OpenAIConfig`, for every replica.

    Raises:
        TypeError: an option does not exist; it is named.
        ModuleNotFoundError: what a setting needs is not installed.
    """
    for wanted, module, what in ((fast.kv_events, "zmq", "kv_events"), (fast.retire_url, "redis", "retire_url")):
        if wanted and importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"{what} needs the package {module}; install the extra `tiers`")
    transfer = functools.partial(_transfer_parameters, frozenset(fast.shared_tier_tenants)) if fast.tiers else None
    common = {"idle_timeout_s": fast.idle_timeout_s, "model": fast.model, "api_key": api_key} | options
    engines = [
        VllmServerEngine.from_config(
            url=url, vocabulary_tokens=vocabulary_tokens, transfer_parameters=transfer, shared=shared, **common
        )
        for url in fast.replicas
    ]
    events = {engine.name: endpoint for engine, endpoint in zip(engines, fast.kv_events, strict=False)}
    names = {url: engine.name for url, engine in zip(fast.replicas, engines, strict=True)}
    bound = {tenant: frozenset(names[url] for url in urls) for tenant, urls in (within or {}).items()}
    return ReplicaPool(
        engines,
        PoolOptions(
            routing=RoutingOptions(
                load_factor=fast.load_factor,
                free_in_flight=fast.batch,
                replicas_per_repository=fast.replicas_per_repository,
            ),
            health=HealthOptions(idle_s=fast.check_every_s, silence_s=fast.silence_s),
            pass_through=fast.routing == "pass_through",
        ),
        sender=RetireSender.to(fast.retire_url, tier_secret(secret)) if fast.retire_url is not None else None,
        events=events,
        within=bound,
    )


def _transfer_parameters(shared: frozenset[str], origin: Origin, salt: str) -> dict[str, Any]:
    return tier_parameters(origin, salt, shared=origin.tenant in shared)
