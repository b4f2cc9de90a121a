"""`[pool.fast]`: the replicas that complete, and how they are chosen.

| key | default | meaning |
|---|---|---|
| `pool.fast.replicas` | none | base URLs of `vllm serve`, up to and with `/v1`; the engine is then `vllm-server` |
| `pool.fast.model` | what the first one serves | name of the model, the same on all of them |
| `pool.fast.api_key_file` | none | file with the servers' key |
| `pool.fast.routing` | `prefix` | `pass_through` where the one URL is a router of its own (llm-d, production-stack, Ray Serve LLM) |
| `pool.fast.replicas_per_repository` | 2 | replicas that a repository's sessions are spread over |
| `pool.fast.load_factor` | 1.25 | most requests in flight on one replica, as a multiple of the mean |
| `pool.fast.batch` | 8 | requests that a replica computes at once; so many it may have whatever the mean |
| `pool.fast.idle_timeout_s` | 10 | silence within an answer after which it is given up |
| `pool.fast.silence_s` | 3 | silence of a replica with requests in flight after which it is checked |
| `pool.fast.check_every_s` | 5 | an idle replica is checked this often |
| `pool.fast.kv_events` | none | ZMQ addresses of the replicas' cache events, in the order of `replicas`; this host alone |
| `pool.fast.tiers` | false | the servers offload to lower tiers: tell them what prompts are made of |
| `pool.fast.retire_url` | none | Redis that the tiers of the servers listen to for retired ranges and purges |
| `pool.fast.shared_tier_tenants` | none | tenants whose blocks may leave their host for the shared tier |
| `pool.fast.regions` | of those on the gateway's host: the gateway's | where the replicas are, in the order of `replicas` |
| `pool.fast.tier_region` | the same | where the shared tier is, and the Redis of `retire_url` |
"""

from __future__ import annotations

import ipaddress
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from foretype_wire.credentials import without_credentials

from foretype_backend.errors import ConfigError

__all__ = ["FastConfig", "is_local_endpoint"]


class FastConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """See the module."""

    replicas: tuple[str, ...] = ()
    model: str | None = None
    api_key_file: str | None = None
    routing: Literal["prefix", "pass_through"] = "prefix"
    replicas_per_repository: int = 2
    load_factor: float = 1.25
    batch: int = 8
    idle_timeout_s: float = 10.0
    silence_s: float = 3.0
    check_every_s: float = 5.0
    kv_events: tuple[str, ...] = ()
    tiers: bool = False
    retire_url: str | None = None
    shared_tier_tenants: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    tier_region: str | None = None

    def check(self) -> None:
        """Raises ConfigError for the first setting that cannot be used."""
        seen: set[str] = set()
        for at, url in enumerate(self.replicas):
            if not url.startswith(("http://", "https://")):
                raise ConfigError(
                    f"pool.fast.replicas[{at}]",
                    f"{without_credentials(url)!r} is no base URL; write it as http://host:8000/v1",
                )
            if url.rstrip("/") in seen:
                raise ConfigError(
                    f"pool.fast.replicas[{at}]",
                    f"{without_credentials(url)!r} is listed twice; name every replica once",
                )
            seen.add(url.rstrip("/"))
        if self.routing == "pass_through" and len(self.replicas) > 1:
            raise ConfigError(
                "pool.fast.routing", "pass_through takes one URL, that of the fleet's own router; list that alone"
            )
        for name in ("replicas_per_repository", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"pool.fast.{name}", "must be at least 1; leave it out for the default")
        for name in ("idle_timeout_s", "silence_s", "check_every_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"pool.fast.{name}", "must be above zero; leave it out for the default")
        if self.load_factor < 1:
            raise ConfigError(
                "pool.fast.load_factor", f"{self.load_factor} would leave requests without a replica; 1.25 is usual"
            )
        if self.kv_events and len(self.kv_events) != len(self.replicas):
            raise ConfigError(
                "pool.fast.kv_events",
                f"{len(self.kv_events)} addresses for {len(self.replicas)} replicas; one for each, in order",
            )
        for at, endpoint in enumerate(self.kv_events):
            if not is_local_endpoint(endpoint):
                raise ConfigError(
                    f"pool.fast.kv_events[{at}]",
                    f"{endpoint!r} is not this host: cache events carry source code and salts in clear. Use ipc:///path or "
                    "tcp://127.0.0.1:port, or leave it out",
                )
        if self.retire_url is not None and not self.retire_url.startswith(("redis://", "rediss://", "unix://")):
            raise ConfigError(
                "pool.fast.retire_url",
                f"{without_credentials(self.retire_url)!r} is no Redis; write redis://host:6379/0",
            )
        if self.shared_tier_tenants and not self.tiers:
            raise ConfigError("pool.fast.shared_tier_tenants", "needs `tiers = true`, or nothing is offloaded")


def is_local_endpoint(endpoint: str) -> bool:
    """Whether a ZMQ address leaves this host: `ipc://`, or TCP on a loopback address."""
    parts = urlsplit(endpoint)
    if parts.scheme == "ipc":
        return True
    try:
        return parts.scheme == "tcp" and ipaddress.ip_address((parts.hostname or "").strip("[]")).is_loopback
    except ValueError:
        return parts.hostname == "localhost"
