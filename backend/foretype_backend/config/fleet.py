"""`[pool.fast]`: the replicas that complete, and how they are chosen."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec
from foretype_wire.credentials import without_credentials

from foretype_backend.errors import ConfigError

_NEAR: Final = ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")


class DiscoveryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where replicas are announced, in place of `pool.fast.replicas`.

    Attributes:
        source: `http` is Prometheus' HTTP service discovery, `file` the same list in a file, `dns` a headless service.
        url: Of `http`: the list of targets. Roll-outs are asked for beside it, at `rollouts`.
        path: Of `file`: the list, read each time: who changes it writes a new file and renames it.
        token_file: Of `http`: file with a bearer token for the directory, read each time.
        pool: Of `http` and `file`: label `pool` of the replicas that are meant.
        name: Of `dns`: the name of a headless service.
        port: Of `dns`: the port that all replicas have. Unset: by SRV records.
        scheme: How replicas are reached.
        networks: Networks that replicas may be in; who is announced elsewhere is never asked. The default: private ones and loopback.
        poll_s: How often the directory is asked.
        timeout_s: How long it may take.
        shrink_interval_s: Within it at most half of the replicas that serve are let go, and never the last.
        drain_s: How long requests in flight may hold a replica that leaves.
        most: Replicas that the pool may have.
        first_wait_s: How long the start waits for the first replica.
    """

    source: Literal["http", "dns", "file"]
    url: str | None = None
    path: str | None = None
    token_file: str | None = None
    pool: str = "fast"
    name: str | None = None
    port: int | None = None
    scheme: Literal["http", "https"] = "http"
    networks: tuple[str, ...] = _NEAR
    poll_s: float = 0.5
    timeout_s: float = 2.0
    shrink_interval_s: float = 5.0
    drain_s: float = 120.0
    most: int = 256
    first_wait_s: float = 120.0

    def check(self, at: str = "pool.fast.discovery") -> None:
        """Raises ConfigError for the first setting that cannot be used. `at` is where it stands."""
        if self.source == "http" and (self.url is None or not self.url.startswith(("http://", "https://"))):
            shown = "" if self.url is None else f"{without_credentials(self.url)!r} is none; "
            raise ConfigError(f"{at}.url", f"{shown}name the list of targets, as in http://directory:8200/replicas")
        if self.source == "dns" and not self.name:
            raise ConfigError(f"{at}.name", "name the headless service, as in vllm.inference.svc.cluster.local")
        if self.source == "file" and not self.path:
            raise ConfigError(f"{at}.path", 'name the file, which holds [{"targets": ["10.0.0.7:8000"]}]')
        for key, source in (
            *(("url", "http"), ("token_file", "http"), ("name", "dns"), ("port", "dns")),
            ("path", "file"),
        ):
            if self.source != source and getattr(self, key) is not None:
                raise ConfigError(f"{at}.{key}", f"is for the source `{source}`; leave it out, or choose that")
        if self.port is not None and not 0 < self.port < 65536:
            raise ConfigError(
                f"{at}.port", f"{self.port} is no port; choose 1 to 65535, or leave it out for SRV records"
            )
        for number, network in enumerate(self.networks):
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise ConfigError(f"{at}.networks[{number}]", f"{error}; write it as 10.0.0.0/8") from error
        if not self.networks:
            raise ConfigError(f"{at}.networks", "would let nobody in; leave it out for private networks")
        for key in ("poll_s", "timeout_s", "shrink_interval_s", "drain_s", "most", "first_wait_s"):
            if not 0 < getattr(self, key) < float("inf"):
                raise ConfigError(f"{at}.{key}", "must be a number above zero; leave it out for the default")


class FastConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replicas that complete, and how they are chosen.

    Attributes:
        replicas: Base URLs of `vllm serve`, up to and with `/v1`; the engine is then `vllm-server`. All serve one model, or the
            gateway does not start.
        discovery: See below.
        model: Name of the model, the same on all of them. Unset: what the first one serves.
        api_key_file: File with the servers' key.
        routing: `pass_through` where the one URL is a router of its own (llm-d, production-stack, Ray Serve LLM).
        replicas_per_repository: Replicas that a repository's sessions are spread over.
        load_factor: Most requests in flight on one replica, as a multiple of the mean.
        batch: Requests that a replica computes at once; so many it may have whatever the mean.
        prefill_from_tokens: Prompts of which so many tokens are cached nowhere are computed on replicas announced with the role
            `prefill`, and answered by the others. Unset: no prompt.
        hand_over: How such a prompt comes to the replica that answers: `tier` (a tier that both read) or `nixl`
            (untried).
        kv_high_water: Share of a replica's cache in use above which it gets no new prefixes; it takes them again a tenth below.
        session_header: Of `pass_through`: header that names the session to the router, by a digest; "" sends none.
        idle_timeout_s: Silence within an answer after which it is given up.
        silence_s: Silence of a replica with requests in flight after which it is checked.
        check_every_s: An idle replica is checked this often.
        kv_events: ZMQ addresses of the replicas' cache events, in the order of `replicas`; `ipc://` or loopback, for they carry
            source.
        tiers: The servers offload to lower tiers: tell them what prompts are made of.
        retire_url: Redis that the tiers of the servers listen to for retired ranges and purges.
        shared_tier_tenants: Tenants whose blocks may leave their host for the shared tier.
        regions: Where the replicas are, in the order of `replicas`. Unset: the gateway's, for those on its host.
        tier_region: Where the shared tier is, and the Redis of `retire_url`. Unset: the gateway's, for what is on its host.
    """

    replicas: tuple[str, ...] = ()
    discovery: DiscoveryConfig | None = None
    model: str | None = None
    api_key_file: str | None = None
    routing: Literal["prefix", "pass_through"] = "prefix"
    replicas_per_repository: int = 2
    load_factor: float = 1.25
    batch: int = 8
    prefill_from_tokens: int | None = None
    hand_over: Literal["tier", "nixl"] = "tier"
    kv_high_water: float = 0.9
    session_header: str = "X-Session-Id"
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
        if self.discovery is not None:
            self.discovery.check()
            for key in ("replicas", "kv_events", "regions"):
                if getattr(self, key):
                    remedy = "leave it out; replicas are announced, with their regions"
                    raise ConfigError(f"pool.fast.{key}", f"stands beside [pool.fast.discovery]; {remedy}")
            if self.routing == "pass_through":
                raise ConfigError("pool.fast.routing", "pass_through takes one URL, that of the fleet's own router")
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
        apart, field = self.prefill_from_tokens, "pool.fast.prefill_from_tokens"
        if apart is not None and apart < 1:
            raise ConfigError(field, "must be at least 1 token; leave it out where every replica does both")
        if apart is not None and self.discovery is None:
            raise ConfigError(field, "roles are announced; name a directory with [pool.fast.discovery]")
        if apart is not None and self.hand_over == "tier" and not self.tiers:
            raise ConfigError(field, 'is handed over by a tier: set `tiers = true`, or `hand_over = "nixl"`')
        if not 0 < self.kv_high_water <= 1:
            raise ConfigError("pool.fast.kv_high_water", "must be above 0 and at most 1; 0.9 is usual")
        if not re.fullmatch(r"[A-Za-z0-9-]{0,64}", self.session_header):
            raise ConfigError("pool.fast.session_header", "is no name of a header; letters, digits and - alone")
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
