"""`GET /admin/status`: a gateway at a glance, for people and for `foretype status`. Needs the scope `admin`; holds no text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from prometheus_client.core import Metric
from starlette.responses import Response

from foretype_backend.admission.degradation import FREE_TIER, RUNGS
from foretype_backend.chat.door import ChatDoor
from foretype_backend.doors.answers.operators import Status
from foretype_backend.doors.auth import is_owner
from foretype_backend.doors.contract import Asks, DocumentedAnswer, DocumentedApp
from foretype_backend.doors.health import gateway_version
from foretype_backend.doors.stream import StreamDoor
from foretype_backend.identity.directory import Principal, Tier
from foretype_backend.operations.worker_peers import WorkerAddress, WorkerPeers
from foretype_backend.serving.service import CompletionService

if TYPE_CHECKING:
    from foretype_backend.fleet.metrics import (
        PoolStatistics,
    )  # with a client of HTTP: 9 MiB that a private gateway does without
    from foretype_backend.identity.identity import Identity
    from foretype_backend.telemetry.upkeep import Kept

_SHOWN: Final = 256


class AdminDoor:
    """Serves the status.

    Args:
        pools: by name.
        clock: seconds since any moment.
        place: this worker among the workers of one gateway.
        kept: how far back telemetry goes, by tenant.
    """

    def __init__(
        self,
        pools: Mapping[str, CompletionService],
        stream: StreamDoor,
        chat: ChatDoor,
        *,
        clock: Callable[[], float],
        families: Callable[[], Iterable[Metric]],
        identity: Identity | None = None,
        place: WorkerAddress | None = None,
        kept: Callable[[], Sequence[Kept]] = tuple,
    ) -> None:
        self._pools = dict(pools)
        self._stream = stream
        self._chat = chat
        self._identity = identity
        self._clock = clock
        self._started = clock()
        self.peers = WorkerPeers(families, self.report, place)
        self._kept = kept

    def register(self, app: DocumentedApp) -> None:
        app.door(
            "GET",
            "/admin/status",
            self.status,
            tag="operators",
            answers={200: DocumentedAnswer("the report", [Status])},
        )

    async def status(self, principal: Asks) -> Response:
        """A gateway at a glance.

        Figures of the last seconds are rolling, counters are since the start.

        An administrator of a tenant sees of other tenants only their number. Only the owner sees their names, and the names of chat templates.
        """
        report = await self.seen_by(principal)
        body = msgspec.json.encode(report)
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    async def seen_by(self, principal: Principal) -> dict[str, Any]:
        """The report of all workers, without what this administrator may not see."""
        report = await self.peers.status()
        if not is_owner(principal):
            rungs = report["rungs"]
            own = {principal.tenant, FREE_TIER if principal.tier is Tier.FREE else principal.tenant}
            report["rungs"] = {name: rung for name, rung in rungs.items() if name in own}
            report["other_rungs"] = len(rungs) - len(report["rungs"])
            report["chat_templates"] = []
            for pool in report["pools"].values():
                pool.pop("membership", None)  # addresses are the owner's
            report["retention"] = [one for one in report["retention"] if one["tenant"] == principal.tenant]
        return report

    def report(self) -> dict[str, Any]:
        """The report of this process."""
        identity = self._identity
        return {
            "version": gateway_version(),
            "uptime_s": round(self._clock() - self._started, 1),
            "connections": len(self._stream.connections),
            "draining": self._stream.draining,
            "service": self._stream.service.ladder.lowest.value,
            "rungs": {tenant: RUNGS.index(rung) for tenant, rung in self._stream.service.ladder.below.items()},
            "pools": {name: _pool(service) for name, service in self._pools.items()},
            "chat_tpot_p99_ms": self._chat.tpot_p99_ms(),
            "chat_templates": [template._asdict() for template in self._chat.templates.report()],
            "retention": [one._asdict() for one in self._kept()],
            "identity": None
            if identity is None
            else {"version": identity.directory.version, "age_s": round(identity.watch.age_s, 3)},
        }


def _pool(service: CompletionService) -> dict[str, Any]:
    scheduler, engine = service.scheduler, service.engine.statistics()
    pressure = None if scheduler.pressure is None else scheduler.pressure.statistics()
    serving: Callable[[], Sequence[object]] | None = getattr(service.engine, "in_service", None)
    pool: Callable[[], Any] | None = getattr(service.engine, "pool_statistics", None)
    membership = None if pool is None else membership_of(pool())
    return {
        "model": service.engine.capabilities().model,
        **service.statistics()._asdict(),
        "slots": service.limits.max_running,
        "queued_uncached_tokens": scheduler.queued_tokens,
        "hit_rate": engine.cached_tokens / engine.prompt_tokens if engine.prompt_tokens else None,
        "shedding_level": 0 if pressure is None else pressure.level,
        "p99_ttft_ms": {} if pressure is None else {name: round(p99, 1) for name, p99 in pressure.p99_ms.items()},
        "decisions": service.metrics.decisions(),
        "engine": engine._asdict(),
        "replicas": 1 if serving is None else len(serving()),
        **({} if membership is None else {"membership": membership}),
    }


def membership_of(pool: PoolStatistics) -> dict[str, Any] | None:
    """The announced replicas and the state of each; None where the configuration lists the replicas."""
    found = pool.membership
    if found is None:
        return None
    members: list[dict[str, Any]] = []
    for name, phase in list(found.phases.items())[:_SHOWN]:
        health, one = pool.replicas.get(name), found.announced[name]
        members.append(
            {
                "replica": name,
                "phase": phase.value,
                "standing": "" if health is None else health.standing.value,
                "revision": one.revision,
                "region": one.region,
                "in_flight": 0 if health is None else health.in_flight,
                "reason": "" if health is None else health.reason,
            }
        )
    refused = [{"replica": one.name, "why": one.why.value, "reason": one.reason} for one in found.refused]
    age_s = round(min(found.answered_s, 1e9), 1)
    return {"members": members, "refused": refused, "failure": found.failure, "age_s": age_s}
