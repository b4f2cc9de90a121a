"""`GET /v1/fleet/signals`: what scaling and roll-outs go by, of every pool of a gateway. Holds no text and no names but revisions'."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from foretype_backend.doors.answers.operators import FleetSignals
from foretype_backend.doors.contract import DocumentedAnswer, DocumentedApp
from foretype_backend.operations.worker_peers import WorkerPeers
from foretype_backend.serving.service import CompletionService

_WAITED_FOR = ("interactive", "fim", "block", "next_edit", "chat")


class SignalsDoor:
    """Of every pool.

    Args:
        pools: by name.
        peers: the workers of this gateway.
        together: pools that are told as part of another one: revisions of a model with a pool of their own, which count in one book.
        beside: pools whose requests other pools' replicas compute: what waits there waits here, too.
    """

    def __init__(
        self,
        pools: Mapping[str, CompletionService],
        peers: WorkerPeers,
        *,
        together: Mapping[str, str] | None = None,
        beside: Mapping[str, str] | None = None,
    ) -> None:
        self._pools = dict(pools)
        self._together = dict(together or {})
        self._beside = dict(beside or {})
        self._peers = peers
        peers.answer_to("signals", self.report)

    def register(self, app: DocumentedApp) -> None:
        app.door(
            "GET",
            "/v1/fleet/signals",
            self.fleet_signals,
            tag="operators",
            answers={200: DocumentedAnswer("by pool", [FleetSignals])},
        )

    async def fleet_signals(self) -> Response:
        """What scaling and roll-outs go by, of every pool.

        Counts are since the gateway's start: a reader takes differences, and one that falls is a restart. Of several workers all together.
        """
        asked = await self._peers.ask("signals", dict[str, Any])
        found = _together([self.report(), *(one for one in asked.values() if one is not None)])
        body = msgspec.json.encode(found)
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    def report(self) -> dict[str, Any]:
        """Of this process."""
        found = {name: _pool(service) for name, service in self._pools.items()}
        for name, into in self._together.items():
            whole, part = found[into], found.pop(name)
            for key in part.keys() - {"revisions"}:
                whole[key] = _worst([whole[key], part[key]], summed=key in _SUMMED or key == "replicas")
        for name, into in self._beside.items():
            for key in _SUMMED:
                found[into][key] += found[name][key]
        return found


def _pool(service: CompletionService) -> dict[str, Any]:
    scheduler, engine = service.scheduler, service.engine
    recent = {} if scheduler.pressure is None else scheduler.pressure.recent_ms()
    serving: Callable[[], Iterable[object]] | None = getattr(engine, "in_service", None)
    revisions: Any = getattr(engine, "revisions", None)
    return {
        "queued_uncached_tokens": scheduler.queued_tokens,
        "running": service.statistics().running,
        "kv_use": engine.statistics().kv_use,
        "predicted_p99_ms": max((ms for name, ms in recent.items() if name in _WAITED_FOR), default=None),
        "replicas": 1 if serving is None else len(list(serving())),
        "revisions": {}
        if revisions is None
        else {name: counts._asdict() for name, counts in revisions.statistics().items()},
    }


_SUMMED = frozenset({"queued_uncached_tokens", "running"})


def _together(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """What is queued and counted adds up; of levels and times the worst one counts."""
    if len(reports) == 1:
        return reports[0]
    found: dict[str, Any] = {}
    for name in reports[0]:
        each = [one[name] for one in reports if name in one]
        pool = {key: _worst([one[key] for one in each], summed=key in _SUMMED) for key in each[0] if key != "revisions"}
        names = dict.fromkeys(revision for one in each for revision in one["revisions"])
        pool["revisions"] = {
            revision: _counts([one["revisions"][revision] for one in each if revision in one["revisions"]])
            for revision in names
        }
        found[name] = pool
    return found


def _worst(values: list[Any], *, summed: bool) -> Any:
    given = [one for one in values if one is not None]
    return (sum(given) if summed else max(given)) if given else None


def _counts(each: list[dict[str, Any]]) -> dict[str, Any]:
    times = [one["ttft_ms"] for one in each]
    counts = {key: sum(one[key] for one in each) for key in each[0] if key != "ttft_ms"}
    return counts | {"ttft_ms": {name: max(one[name] for one in times) for name in times[0]}}
