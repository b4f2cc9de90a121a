"""A fleet that runs, or is brought up: what the commands do, without their words."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from foretype_backend.errors import FleetError
from foretype_backend.fleet.ray.fleet_file import FleetFile, Pool
from foretype_backend.fleet.ray.head import Head, HeadState, check_ray
from foretype_backend.fleet.ray.register import ReplicaAnnouncement
from foretype_backend.fleet.ray.rolls import Order
from foretype_backend.fleet.ray.serve_api import FAILED, RUNNING, ServeApi, persistently
from foretype_backend.fleet.ray.serve_config import DIRECTORY, Placed, rolled, serve_config, targets

_LOOK_S: Final = 0.2
_HEAD_S: Final = 300.0
_HEADS: Final = 3
_DIRECTORY_S: Final = 20.0
_TOLD_CHARS: Final = 1500
_FIELDS: Final = {"CPU": "pool.cpus", "GPU": "pool.gpus"}
"""Of the file, where a replica asks for what Ray calls so."""
_OF_FRAMES: Final = ("ray::", "Traceback ", "During handling ", "The above exception ")


def _without_frames(told: str) -> str:
    """What Ray says of a replica that did not start, in its sentences and the errors' own: frames of a traceback are Ray's insides."""
    lines = [
        one for one in told.splitlines() if one.strip() and not one[0].isspace() and not one.startswith(_OF_FRAMES)
    ]
    return "\n".join(dict.fromkeys(lines))


class _Fleet(msgspec.Struct, frozen=True):
    fleet: str
    replicas: list[ReplicaAnnouncement]
    rolls: dict[str, str] = {}


def check_room(pools: Mapping[str, Pool], nodes: list[dict[str, Any]]) -> None:
    """Raises FleetError for the first pool whose replica no node has room for, or whose least number the nodes together have none for."""
    for name, pool in pools.items():
        needs = {"CPU": pool.cpus, "GPU": pool.gpus, **pool.resources}
        needs = {what: amount for what, amount in needs.items() if amount}
        fit = [one for one in nodes if pool.labels.items() <= one.get("labels", {}).items()]
        if pool.labels and not fit:
            wanted = ", ".join(f"{key}={value}" for key, value in pool.labels.items())
            raise FleetError(
                f"{name}: no node has the labels {wanted}; start one with `ray start --labels`, or change pool.labels"
            )
        totals: list[Mapping[str, float]] = [one["resources_total"] for one in fit]
        room = sum(
            min((int(total.get(what, 0.0) / amount) for what, amount in needs.items()), default=10**6)
            for total in totals
        )
        least = max(1, pool.min_replicas)
        if room < least:
            needed = ", ".join(f"{amount:g} {what}" for what, amount in needs.items())
            have = "; ".join(
                f"{one['node_ip']} has "
                + ", ".join(f"{one['resources_total'].get(what, 0.0):g} {what}" for what in needs)
                for one in fit
            )
            asked = f"{least} replicas of {needed} each have" if least > 1 else f"a replica of {needed} has"
            fields = [_FIELDS.get(what, "pool.resources") for what in needs] + ["pool.min_replicas"] * (least > 1)
            raise FleetError(
                f"{name}: {asked} no room ({have}); lower {' or '.join(dict.fromkeys(fields))}, or let larger nodes join, or more "
                "of them (cluster.nodes says how many to wait for)"
            )


class RunningFleet:
    """See the module.

    Args:
        base: folder of the fleet's file.
        state: folder where heads are known by.
    """

    def __init__(self, fleet: FleetFile, base: Path, state: Path) -> None:
        self.fleet = fleet
        self._base = base
        self.head = None if fleet.cluster.url is not None else Head(fleet, state)

    def api(self) -> ServeApi:
        """Raises FleetError where the fleet does not run."""
        if self.head is None:
            assert self.fleet.cluster.url is not None
            return ServeApi(self.fleet.cluster.url, self.fleet.cluster_token)
        if self.head.state() is None:
            raise FleetError(f"{self.fleet.name} is not up on this machine; start it with `foretype fleet up`")
        return ServeApi(self.head.url, self.head.token())

    # up

    def up(self, limit_s: float, told: Callable[[str], None]) -> None:
        """Returns when every replica is ready. What was started here ends where that fails. Raises FleetError."""
        check_ray()
        config = serve_config(self.fleet, self._base)
        if self.head is None:
            with self.api() as api:
                check_ray(api.version(), of="cluster.url")
                if targets(api.config()):
                    raise FleetError(
                        "the cluster serves a fleet already; change it with `scale` and `roll`, or end it with `down`"
                    )
                self._deploy(api, config, limit_s, told, lambda: None)
            return
        head = self.head
        with head.starting():
            head.check_free()
            for left in reversed(range(_HEADS)):
                if self._started(head, config, limit_s, told, left):
                    break

    def _started(
        self, head: Head, config: Mapping[str, Any], limit_s: float, told: Callable[[str], None], left: int
    ) -> bool:
        """Whether it serves. False where Ray gave up, and may be tried again `left` times.

        On a busy machine its node, or the server of its own client, takes longer than the 30 s that it waits for them: then it ends
        with all its processes, also after it has answered.
        """
        state = None
        try:
            state = head.start()
            told(f"Ray's head starts ({head.url}, process {state.pid})")
            alive = functools.partial(head.check, state)
            with ServeApi(head.url, head.token()) as api:
                self._until(api.answers, _HEAD_S, "Ray's head", alive)
                self._until(lambda: bool(api.nodes()), _HEAD_S, "its node", alive)
                self._deploy(api, config, limit_s, told, alive)
            return True
        except BaseException as error:
            if (begun := state or head.state()) is None:
                raise
            again = False
            try:
                if isinstance(error, FleetError):
                    again = left > 0 and head.gave_up(begun, soon=isinstance(error.__cause__, httpx.HTTPError))
                    if not again:
                        head.check(begun)  # that it has ended says more than that it does not answer
            finally:
                head.end(begun)
            if not again:
                raise
            told(f"{error}; it is started again")
            return False

    def _deploy(
        self,
        api: ServeApi,
        config: Mapping[str, Any],
        limit_s: float,
        told: Callable[[str], None],
        alive: Callable[[], None],
    ) -> None:
        count = self.fleet.cluster.nodes
        self._until(lambda: len(api.nodes()) >= count, limit_s, f"{count} nodes", alive)
        check_room(
            {Placed(one.name, one.region, one.revision).deployment: one for one in self.fleet.pools}, api.nodes()
        )
        api.deploy(config)
        wanted = targets(config)
        told("placed: " + ", ".join(f"{target.least} of {placed.application}" for placed, target in wanted.items()))
        self._until(lambda: self._serves(api), limit_s, "the replicas", alive)
        self._until(lambda: self._announced(wanted), limit_s, "the directory", alive)

    def _serves(self, api: ServeApi) -> bool:
        applications = api.details()["applications"]
        for name, one in applications.items():
            if one["status"] in FAILED:
                reasons = [found["message"] for found in one["deployments"].values() if found["message"]]
                told = " ".join([one["message"], *reasons]).strip()
                _, _, revision = name.rpartition(".")
                where = (
                    f"; see pool.revisions.{revision} (its profile and model) and pool.command" if "." in name else ""
                )
                raise FleetError(f"{name} cannot be served{where}: {_without_frames(told)[-_TOLD_CHARS:]}")
        return bool(applications) and all(one["status"] == RUNNING for one in applications.values())

    def _announced(self, wanted: Mapping[Placed, Any]) -> bool:
        try:
            ready = [one for one in self.replicas() if one.state == "ready"]
        except FleetError:
            return False
        return all(
            sum(one.application == placed.application for one in ready) >= target.least
            for placed, target in wanted.items()
        )

    def _until(self, done: Callable[[], bool], limit_s: float, what: str, alive: Callable[[], None]) -> None:
        ends_s = time.monotonic() + limit_s
        while not done():
            alive()
            if time.monotonic() > ends_s:
                raise FleetError(f"{what}: not there after {limit_s:g} s; see the logs, or give --wait-s more")
            time.sleep(_LOOK_S)

    # While it runs

    def replicas(self) -> list[ReplicaAnnouncement]:
        """As the directory has them. Raises FleetError where it is away."""
        return msgspec.json.decode(self._directory("/fleet"), type=_Fleet).replicas

    def rolls(self) -> dict[str, str]:
        """By pool, how its roll-out goes, in words. Raises FleetError where the directory is away."""
        return msgspec.json.decode(self._directory("/fleet"), type=_Fleet).rolls

    def rollouts(self) -> dict[str, Any]:
        """By pool, what gateways are told. Raises FleetError where the directory is away."""
        return msgspec.json.decode(self._directory("/rollouts"))

    def roll(self, name: str, order: Order, limit_s: float) -> None:
        """Returns when gateways are told of it. Raises FleetError; a canary that cannot be served stays beside the others until `--back`."""
        with self.api() as api:
            api.deploy(rolled(api.config(), self.fleet, self._base, name, order))

            def told() -> bool:
                self._serves(api)
                now = self.rollouts()[name]
                return now["number"] >= order.number and (now["canary"] is None) == bool(order.back)

            self._until(told, limit_s, f"the roll-out of {order.canary}", lambda: None)

    def _directory(self, path: str) -> bytes:
        directory = self.fleet.directory
        url = f"http://{directory.host}:{directory.port}{path}"
        headers = {} if self.fleet.token is None else {"Authorization": f"Bearer {self.fleet.token}"}
        try:
            answer = persistently(lambda: httpx.get(url, headers=headers, timeout=_DIRECTORY_S, trust_env=False))
        except httpx.HTTPError as error:
            raise FleetError(f"the directory does not answer at {url} ({type(error).__name__})") from error
        if answer.status_code != 200:
            raise FleetError(f"the directory answers {answer.status_code}: {answer.text.strip()[:200]}")
        return answer.content

    # down

    def down(self, *, now: bool, told: Callable[[str], None]) -> int:
        """Drains it, unless `now`; then ends what was started here. Returns how many processes had to be killed."""
        state = None if self.head is None else self.head.state()
        if self.head is not None and state is None:
            told(f"{self.fleet.name} is not up on this machine")
            return 0
        if not now or self.head is None:
            self._drain(state, told)
        return 0 if self.head is None or state is None else self.head.end(state)

    def _drain(self, state: HeadState | None, told: Callable[[str], None]) -> None:
        with self.api() as api:
            if state is not None and not api.answers():
                return  # it has not come up yet: nothing serves
            try:
                config = api.config()
                if not targets(config):
                    return
                kept = [one for one in config["applications"] if self.head is not None and one["name"] == DIRECTORY]
                told("replicas drain")
                api.deploy({**config, "applications": kept})
                limit_s = max(one.drain_s for one in self.fleet.pools) + 60.0
                self._until(
                    lambda: not any(Placed.of(name) for name in api.details()["applications"]),
                    limit_s,
                    "the drain",
                    lambda: None,
                )
            except FleetError as error:
                if self.head is None:
                    raise
                told(f"not drained: {error}")
