"""What Ray Serve is told of a fleet: a config as its own `serve deploy` and KubeRay's `serveConfigV2` take it. Pure.

The directory is one application, and each revision of a pool in a region another. Serve updates an application by stopping its replicas
first; of an application beside it nobody notices. No token stands in a config: it can be committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from foretype_backend.errors import ConfigError
from foretype_backend.fleet.ray.fleet_file import FleetFile, Pool
from foretype_backend.fleet.ray.policy import autoscaling_config
from foretype_backend.fleet.ray.rolls import Order

DIRECTORY: Final = "directory"
_ROUTER: Final = "foretype_backend.fleet.ray.running_replicas_router:RunningReplicasRouter"
_HEALTH: Final = {"health_check_period_s": 1.0, "health_check_timeout_s": 5.0}
"""Three failures in a row end a replica; the actor's own death counts at once."""
_SHUTDOWN_S: Final = 20.0
"""Beyond `drain_s`, until Ray ends a replica that does not end itself: it tells of itself, and its engine is given time to end."""


class Placed(NamedTuple):
    """An application that is a revision of a pool in a region."""

    pool: str
    region: str
    revision: str

    @property
    def application(self) -> str:
        return f"{self.pool}.{self.region}.{self.revision}"

    @property
    def deployment(self) -> str:
        return f"{self.pool}.{self.region}"

    @classmethod
    def of(cls, application: str) -> Placed | None:
        """None where it is no pool's: no part of a name has a point in it."""
        parts = application.split(".")
        return cls(*parts) if len(parts) == 3 else None


class Target(NamedTuple):
    """How many replicas there should be; one number twice where nobody scales it."""

    least: int
    most: int


def serve_config(fleet: FleetFile, base: Path) -> dict[str, Any]:
    """The whole fleet at its start.

    Args:
        base: folder of the fleet file, which its paths are relative to; they are absolute in the config.
    """
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": fleet.directory.host, "port": fleet.directory.port},
        "applications": [
            _directory(fleet, base),
            *(pool_application(fleet, base, pool, pool.revision) for pool in fleet.pools),
        ],
    }


def _directory(fleet: FleetFile, base: Path) -> dict[str, Any]:
    token_file, gateway_token_file = fleet.directory.token_file, fleet.gateway_token_file
    return {
        "name": DIRECTORY,
        "route_prefix": "/",
        "import_path": "foretype_backend.fleet.ray.application:directory",
        "args": {
            "fleet": fleet.name,
            "lease_s": fleet.directory.lease_s,
            "token_file": None if token_file is None else str(base / token_file),
            "gateways": list(fleet.gateways),
            "gateway_token_file": None if gateway_token_file is None else str(base / gateway_token_file),
        },
        "deployments": [
            {
                "name": DIRECTORY,
                "num_replicas": 1,
                "max_ongoing_requests": 1000,
                "user_config": {"stable": {pool.name: pool.revision for pool in fleet.pools}},
                "ray_actor_options": {"num_cpus": 0},
                **_HEALTH,
            }
        ],
    }


def pool_application(fleet: FleetFile, base: Path, pool: Pool, revision: str) -> dict[str, Any]:
    """One revision of a pool in its region; `base` as of :func:`serve_config`."""
    placed = Placed(pool.name, pool.region, revision)
    served = pool.revisions[revision]
    actor: dict[str, Any] = {"num_cpus": pool.cpus, "num_gpus": pool.gpus, "resources": dict(pool.resources)}
    if pool.labels:
        actor["label_selector"] = dict(pool.labels)
    return {
        "name": placed.application,
        "route_prefix": None,
        "import_path": "foretype_backend.fleet.ray.application:pool",
        "args": {
            "deployment": placed.deployment,
            "labels": {
                "pool": pool.name,
                "model": served.model,
                "revision": revision,
                "grammar": served.grammar,
                "block_size": str(fleet.block_size(served)),
                "region": pool.region,
                "zone": pool.zone,
                "role": pool.role,
                "weight": f"{pool.weight:g}",
            },
            "command": list(pool.command),
            "flags": dict(fleet.flags(served)),
            "environment": dict(pool.environment),
            "host": pool.host,
            "start_s": pool.start_s,
            "drain_s": pool.drain_s,
        },
        "deployments": [
            {
                "name": placed.deployment,
                **_size(fleet, base, pool),
                "max_ongoing_requests": 1000,
                "graceful_shutdown_timeout_s": pool.drain_s + _SHUTDOWN_S,
                "graceful_shutdown_wait_loop_s": 0.1,
                "ray_actor_options": actor,
                "request_router_config": {"request_router_class": _ROUTER},
                **_HEALTH,
            }
        ],
    }


def _size(fleet: FleetFile, base: Path, pool: Pool) -> dict[str, Any]:
    options = pool.scaled
    if options is None:
        return {"num_replicas": max(1, pool.min_replicas)}
    files = {"token_file": fleet.gateway_token_file, "history_file": pool.history_file}
    more = {name: str(base / file) for name, file in files.items() if file is not None}
    return {"autoscaling_config": autoscaling_config(pool.name, fleet.gateways, options, **more)}


def targets(config: Mapping[str, Any]) -> dict[Placed, Target]:
    """By application that is a pool's, what a config asks for."""
    found: dict[Placed, Target] = {}
    for application in config["applications"]:
        placed = Placed.of(application["name"])
        if placed is not None:
            for deployment in application["deployments"]:
                scaled = deployment.get("autoscaling_config")
                count = deployment.get("num_replicas") or 1
                found[placed] = (
                    Target(scaled["min_replicas"], scaled["max_replicas"]) if scaled else Target(count, count)
                )
    return found


def resized(
    config: Mapping[str, Any], fleet: FleetFile, base: Path, name: str, count: int | None, region: str | None
) -> dict[str, Any]:
    """The config with another number of replicas in a pool, in one region or in all; None gives it back to what scales it.

    Raises:
        ConfigError: no such pool or region, or not that many.
    """
    pools = {one.region: one for one in fleet.of(name) if region in (None, one.region)}
    if not pools:
        known = ", ".join(one.region for one in fleet.of(name))
        raise ConfigError("--region", f"{name} is not in {region}; it is in {known}")
    for pool in pools.values():
        if count is not None and not max(1, pool.min_replicas) <= count <= pool.most:
            raise ConfigError(
                "N",
                f"{count} replicas of {name} in {pool.region} are outside of {max(1, pool.min_replicas)} to {pool.most}; "
                "change max_replicas or min_replicas in the file first",
            )
    applications: list[dict[str, Any]] = []
    for application in config["applications"]:
        placed = Placed.of(application["name"])
        if placed is not None and placed.pool == name and placed.region in pools:
            size = _size(fleet, base, pools[placed.region])
            former = ("num_replicas", "autoscaling_config")
            application = {
                **application,
                "deployments": [
                    {**{key: one[key] for key in one if key not in former}, **_sized(one, size, count)}
                    for one in application["deployments"]
                ],
            }
        applications.append(application)
    return {**config, "applications": applications}


def _sized(deployment: Mapping[str, Any], size: Mapping[str, Any], count: int | None) -> dict[str, Any]:
    """`size` as the file has it, or of `count` replicas.

    What scales a pool stays, with bounds that leave it no choice: without it the deployment would be of another version to Ray
    (`get_app_code_version` has the policy in its hash), which then starts every replica anew.
    """
    if count is None:
        return dict(size)
    scaled = deployment.get("autoscaling_config") or size.get("autoscaling_config")
    if scaled is None:
        return {"num_replicas": count}
    bounds = dict.fromkeys(("min_replicas", "initial_replicas", "max_replicas"), count)
    return {"autoscaling_config": {**scaled, **bounds}}


def rolled(config: Mapping[str, Any], fleet: FleetFile, base: Path, name: str, order: Order) -> dict[str, Any]:
    """The config with an order for the directory, and with the canary's applications beside the others where it is no order to go back."""
    orders = msgspec.to_builtins(order)
    applications = [dict(one) for one in config["applications"]]
    [directory] = [one for one in applications if one["name"] == DIRECTORY]
    [deployment] = directory["deployments"]
    wanted = deployment["user_config"]
    stable, rolls = {**wanted["stable"], name: order.stable}, {**wanted.get("rolls", {}), name: orders}
    directory["deployments"] = [{**deployment, "user_config": {"stable": stable, "rolls": rolls}}]
    if not order.back:
        there = {one["name"] for one in applications}
        made = [pool_application(fleet, base, pool, order.canary) for pool in fleet.of(name)]
        applications += [one for one in made if one["name"] not in there]
    return {**config, "applications": applications}


def ordered(config: Mapping[str, Any], name: str) -> Order | None:
    """The last order of a pool."""
    [directory] = [one for one in config["applications"] if one["name"] == DIRECTORY]
    found = directory["deployments"][0]["user_config"].get("rolls", {}).get(name)
    return None if found is None else msgspec.convert(found, Order)


def written(config: Mapping[str, Any]) -> str:
    """As a file that can be committed, and that `serve deploy` takes."""
    import yaml  # of the extra `fleet`

    head = "# Written by `foretype fleet config`; Ray's own `serve deploy` and KubeRay's serveConfigV2 take it.\n"
    return head + yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=120)
