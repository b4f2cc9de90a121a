"""`--scenario workers`: what a request costs in processor time where two workers share the port, by what it costs one of them."""

from __future__ import annotations

from typing import Any

from foretype_eval.load.crowd import Crowd
from foretype_eval.statistics import clustered_ratio


async def cost_ms(crowd: Crowd, rate: float, progress: Any) -> float:
    """Processor time of a gateway per request, milliseconds: its worker processes counted."""
    await crowd.connect(progress)
    return float((await crowd.measure(rate, progress))["gateway_cpu_ms_per_request"])


def cost_by_one(one: list[float], several: list[float], workers: int) -> dict[str, Any]:
    """The report, of runs in turns."""
    ratio, bounds = clustered_ratio(several, one, digits=3)
    return {
        "workers": workers,
        "cpu_ms_per_request": {"one": one, "several": several},
        "by_one": ratio,
        "by_one_95": bounds,
    }
