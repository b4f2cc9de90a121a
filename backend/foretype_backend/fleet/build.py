"""From `[pool.fast]` to a pool of replicas. Nothing is connected before the pool starts."""

from __future__ import annotations

import functools
import importlib.util
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretype_backend.config.fleet import FastConfig
from foretype_backend.engines.vllm.fleet_router import FleetRouterEngine
from foretype_backend.engines.vllm.request import tier_parameters
from foretype_backend.engines.vllm.server import VllmServerEngine
from foretype_backend.fleet.health import HealthOptions
from foretype_backend.fleet.members.roster import Discovery
from foretype_backend.fleet.members.rules import MembershipRules
from foretype_backend.fleet.members.sources import source_of
from foretype_backend.fleet.pool import PoolOptions, ReplicaPool
from foretype_backend.fleet.prefill_apart import ApartOptions
from foretype_backend.fleet.retired_ranges import RetireSender
from foretype_backend.fleet.routing.router import RoutingOptions
from foretype_backend.prefix.origin import Origin
from foretype_backend.prefix.salt import tier_secret


def make_pool(
    fast: FastConfig,
    *,
    vocabulary_tokens: int | None = None,
    api_key: str | None = None,
    shared: bool = False,
    secret: bytes = b"",
    located: Sequence[str | None] = (),
    regions: Mapping[str, frozenset[str]] | None = None,
    grammar: str = "",
    text: Callable[[Sequence[int]], str] | None = None,
    is_own: Callable[[str], bool] = lambda _: False,
    engine: type[VllmServerEngine] = VllmServerEngine,
    **options: Any,
) -> ReplicaPool:
    """A pool, not started.

    Args:
        shared: tenants that do not trust each other reach it.
        secret: of the salts, where messages go to the servers' tiers.
        located: the regions of listed replicas, in their order; None where nobody says.
        regions: by tenant that is bound to some.
        grammar: of the profile: who announces another one is not asked.
        text: a prompt's ids as text, for a fleet's own router that refuses ids.
        is_own: whether an address is this gateway's.
        engine: what a replica is; `from_config` makes it.
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
    router: dict[str, Any] = {}
    if fast.routing == "pass_through":
        router = {"session_header": fast.session_header, "text": text}
    make = functools.partial(
        FleetRouterEngine.from_config if router else engine.from_config,
        **router,
        vocabulary_tokens=vocabulary_tokens,
        transfer_parameters=transfer,
        shared=shared,
        **common,
    )
    engines: list[VllmServerEngine] = [make(url=url) for url in fast.replicas]
    found = fast.discovery
    if found is not None:
        make(url=f"{found.scheme}://127.0.0.1:1/v1")  # an option that does not exist is told at the start
    events = {one.name: endpoint for one, endpoint in zip(engines, fast.kv_events, strict=False)}
    return ReplicaPool(
        engines,
        PoolOptions(
            routing=RoutingOptions(
                load_factor=fast.load_factor,
                kv_high_water=fast.kv_high_water,
                free_in_flight=fast.batch,
                replicas_per_repository=fast.replicas_per_repository,
            ),
            health=HealthOptions(idle_s=fast.check_every_s, silence_s=fast.silence_s),
            pass_through=fast.routing == "pass_through",
            apart=None if fast.prefill_from_tokens is None else ApartOptions(fast.prefill_from_tokens, fast.hand_over),
        ),
        sender=RetireSender.to(fast.retire_url, tier_secret(secret)) if fast.retire_url is not None else None,
        events=events,
        located={one.name: region for one, region in zip(engines, located, strict=False) if region is not None},
        regions=regions,
        discovery=None
        if found is None
        else Discovery(
            source=source_of(found),
            opens=lambda name, announced: make(url=f"{found.scheme}://{announced.address}/v1", name=name),
            rules=MembershipRules(
                networks=tuple(map(ipaddress.ip_network, found.networks)),
                is_own=is_own,
                grammar=grammar,
                shrink_interval_s=found.shrink_interval_s,
                drain_s=found.drain_s,
                most=found.most,
                apart=fast.prefill_from_tokens is not None,
            ),
            poll_s=found.poll_s,
            first_wait_s=found.first_wait_s,
        ),
    )


def _transfer_parameters(shared: frozenset[str], origin: Origin, salt: str) -> dict[str, Any]:
    return tier_parameters(origin, salt, shared=origin.tenant in shared)
