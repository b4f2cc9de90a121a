"""The directory: who is in the fleet, for gateways and Prometheus. It keeps nothing: what it forgets when it is killed is said again.

`GET /replicas` and `GET /rollouts` are what gateways poll, `GET /metrics` what Prometheus does. After its start it answers 503 until it has
heard everybody whom Ray runs: an answer that lacks some would be believed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from foretype_wire.tasks import end_tasks
from ray import serve as ray_serve
from starlette.requests import Request
from starlette.responses import Response

from foretype_backend.config.load import read_token
from foretype_backend.fleet.ray import running_replicas
from foretype_backend.fleet.ray.register import HEARTBEAT_S, Register, ReplicaAnnouncement, exposition
from foretype_backend.fleet.ray.rolls import Rolls
from foretype_backend.fleet.ray.serve_config import Placed
from foretype_backend.fleet.rollout.counters import read_revisions

_log = logging.getLogger("ray.serve.foretype")
_ROLL_S: Final = 1.0
_GATEWAY_S: Final = 2.0
_LOOK_S: Final = 0.25
_SETTLES_S: Final = 2 * HEARTBEAT_S
"""The least: who starts has said so by then."""
_SETTLES_MOST_S: Final = 30.0
"""Somebody whom Ray runs, and who says nothing, keeps nobody else from being told of the others."""
serve: Final[Any] = ray_serve  # it tells half of its types


class Directory:
    """See the module.

    Args:
        fleet: its name.
        lease_s: silence after which a replica is gone.
        token_file: holds the bearer token that is asked for.
        gateways: base URLs; what they say of revisions moves roll-outs.
        gateway_token_file: holds a key that may read their figures; read each time, since keys are renewed.
    """

    def __init__(
        self,
        fleet: str,
        lease_s: float,
        token_file: str | None = None,
        gateways: Sequence[str] = (),
        gateway_token_file: str | None = None,
    ) -> None:
        self._fleet = fleet
        self._token = None if token_file is None else read_token(Path(token_file), "directory.token_file")
        self._register = Register(lease_s)
        self._loop = asyncio.get_running_loop()
        self._handles: dict[str, Any] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._rolls = Rolls()
        self._gateways = tuple(url.rstrip("/") for url in gateways)
        self._gateway_token_file = gateway_token_file
        self._http = httpx.AsyncClient(timeout=_GATEWAY_S, trust_env=False)
        self._taken: set[str] = set()
        self._ordered = asyncio.Event()
        self._settled = False
        self._settling = asyncio.create_task(self._settle(), name="everybody is heard")
        self._rolling = asyncio.create_task(self._roll(), name="roll-outs")
        self._leave = running_replicas.LISTENERS.add(self._run_now)

    async def close(self) -> None:
        """Nothing of it goes on; a replica of Ray's ends with its process instead."""
        self._leave()
        await end_tasks(self._settling, self._rolling, *self._opening)
        await self._http.aclose()

    async def reconfigure(self, wanted: Mapping[str, Any]) -> None:
        """Of a deployment's `user_config`: which revision of a pool is the stable one, and roll-outs that are ordered."""
        self._rolls.order(wanted)
        self._taken.clear()
        self._ordered.set()

    # Replicas

    async def announce(self, said: dict[str, Any], memory: dict[str, Any]) -> dict[str, Any]:
        """A replica's heartbeat; it repeats what it gets back to the next directory, should this one end."""
        one = msgspec.convert(said, ReplicaAnnouncement)
        self._register.announce(one, time.monotonic())
        self._rolls.remember(memory)
        placed = Placed.of(one.application)
        if one.application not in self._handles and placed is not None:
            # Kept, since the push ends with the handle.
            handle = self._handles[one.application] = serve.get_deployment_handle(placed.deployment, one.application)
            task = asyncio.create_task(_open(handle), name=f"push of {one.application}")
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        return self._rolls.memory()

    def _run_now(self, application: str, running: Mapping[str, Mapping[str, Any]]) -> None:
        known = {name: msgspec.convert(dict(said), ReplicaAnnouncement) for name, said in running.items() if said}
        self._loop.call_soon_threadsafe(lambda: self._register.push(application, known, time.monotonic()))

    async def _settle(self) -> None:
        await asyncio.sleep(_SETTLES_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLES_MOST_S):
                while not await self._everybody_is_heard():  # noqa: ASYNC110 - Serve has no event for it
                    await asyncio.sleep(_LOOK_S)
        self._settled = True

    async def _everybody_is_heard(self) -> bool:
        try:
            status = await asyncio.to_thread(serve.status)
        except Exception:  # noqa: BLE001 - the controller is away: it is asked again
            return False
        deployments = [
            deployment
            for name, application in status.applications.items()
            if Placed.of(name) is not None
            for deployment in application.deployments.values()
        ]
        running = sum(int(deployment.replica_states.get("RUNNING", 0)) for deployment in deployments)
        now_s = time.monotonic()
        serving = [one.replica for one in self._register.entries(now_s) if one.state != "starting"]
        return sum(self._register.silence_s(replica, now_s) is not None for replica in serving) >= running

    # Doors

    async def __call__(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        now_s = time.monotonic()
        match request.url.path:
            case "/replicas":
                return _json([one.target() for one in self._register.entries(now_s)])
            case "/rollouts":
                return _json(self._rolls.announced())
            case "/fleet":  # what `foretype fleet status` shows: each replica with the phases of its start
                return _json(
                    {"fleet": self._fleet, "replicas": self._register.entries(now_s), "rolls": self._rolls.told()}
                )
            case "/metrics":
                return Response(exposition(self._register, now_s), media_type="text/plain; version=0.0.4")
            case _:
                return Response("here are /replicas, /rollouts, /fleet and /metrics\n", 404)

    # Roll-outs

    async def _roll(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ROLL_S):
                    await self._ordered.wait()
            # Who orders does not wait for a gateway that is slow to answer: least of all who takes a revision back.
            asked = () if self._ordered.is_set() else self._gateways
            self._ordered.clear()
            try:
                answers = await asyncio.gather(*(self._ask(gateway) for gateway in asked))
                told = {
                    pool: {
                        gateway: found
                        for gateway, said in zip(asked, answers, strict=True)
                        if (found := read_revisions(said, pool))
                    }
                    for pool in self._rolls.announced()
                }
                self._rolls.tick(told, self._is_ready, time.time())  # noqa: TID251 - kept over processes and nodes
                await self._take_away()
            except Exception:  # noqa: BLE001 - logged, and tried again a second later
                _log.exception("a roll-out stands still")

    def _is_ready(self, pool: str, revision: str) -> bool:
        found = self._register.entries(time.monotonic())
        return any(
            one.state == "ready" and (one.labels["pool"], one.labels["revision"]) == (pool, revision) for one in found
        )

    async def _ask(self, gateway: str) -> Any:
        """None where it does not say."""
        try:
            headers = {}
            if self._gateway_token_file is not None:
                token = read_token(Path(self._gateway_token_file), "fleet.gateway_token_file")
                headers = {"Authorization": f"Bearer {token}"}
            answer = await self._http.get(f"{gateway}/v1/fleet/signals", headers=headers)
            return answer.json() if answer.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            return None

    async def _take_away(self) -> None:
        """Applications of revisions that nobody needs any more; their replicas drain."""
        for application in self._register.applications():
            placed = Placed.of(application)
            now_s = time.time()  # noqa: TID251 - as above
            if placed is None or application in self._taken:
                continue
            if self._rolls.leaves(placed.pool, placed.revision, now_s):
                self._taken.add(application)
                _log.info("%s is not kept any more", application)
                await asyncio.to_thread(serve.delete, application, _blocking=False)

    def _refused(self, request: Request) -> Response | None:
        if request.method != "GET":
            return Response("only GET\n", 405)
        if self._token is not None:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                return Response("the directory's token is missing or wrong\n", 401, {"WWW-Authenticate": "Bearer"})
        if not self._settled:
            return Response("just started: not everybody was heard yet\n", 503, {"Retry-After": "1"})
        return None


async def _open(handle: Any) -> None:
    """A request opens a router, and with it the push of running replicas; it waits for the first one that does."""
    with contextlib.suppress(Exception):  # without the push the leases count
        await handle.ping.remote()


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
