"""`foretype simulate --validate`: what the simulation says beside what the real gateway did.

The command starts a gateway with the scripted engine, whose every token takes a fixed time, and asks it twice as people do who wait for every
answer. The first trace, below its capacity, calibrates two numbers: what a token really takes (a timer is never early), and what the way and
the gateway add. With these and nothing else the second trace is predicted, which asks nearly three times of what can be done: the very
requests, in their order and at their moments, are played on a cell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from foretype_eval.gateway import GatewayOptions
from foretype_eval.load.crowd import LoadOptions
from foretype_eval.load.developer import Habits
from foretype_eval.load.gateway import target
from foretype_eval.load.overload import MIX

from foretype_plan.simulation.asking import Asking, Phase, ask
from foretype_plan.simulation.cell_options import CellOptions
from foretype_plan.simulation.people import Arrivals
from foretype_plan.simulation.runs import Progress
from foretype_plan.simulation.slot_engine import SlotSpec
from foretype_plan.simulation.traces import OBJECTIVES_S, Sent, Trace, of_gateway, pair, predicted
from foretype_plan.simulation.vllm_replica import find_vllm, validate_vllm

_SLOTS: Final = 16
_TOKENS: Final = 6
_FRAME_MS: Final = 20.0
_DEVELOPERS: Final = 120
_DEADLINE_S: Final = 2.0
_CAPACITY: Final = _SLOTS / (_TOKENS * _FRAME_MS / 1000)
_CALM: Final = 0.6 * _CAPACITY
_STORM: Final = 2.8 * _CAPACITY


class Calibrated(NamedTuple):
    token_s: float
    way_s: float


async def _measure(seconds: float, progress: Progress) -> Asking:
    load = LoadOptions(
        developers=_DEVELOPERS,
        slots=_SLOTS,
        frame_ms=_FRAME_MS,
        habits=Habits(supersede=0.0, cancel=0.0, early=0.0, branch=0.0, max_tokens=_TOKENS),
        mix=MIX,
        scripts=12,
    )
    phases = (Phase("warm-up", _CALM, 3.0), Phase("calm", _CALM, seconds), Phase("storm", _STORM, seconds))
    async with target(GatewayOptions(), frame_ms=_FRAME_MS, slots=_SLOTS, core=None, waiting=256) as found:
        return await ask(found, load, phases, progress)


def scripted_cell(token_s: float) -> CellOptions:
    """A cell with one scripted engine, and nobody who types by himself."""
    return CellOptions(
        specs=(SlotSpec(batch=_SLOTS, decode_s=token_s),),
        tenants=(),
        arrivals=Arrivals((), 1.0),
        replicas=1,
        network_s=0.0,
        overhead_s=0.0,
        deadline_s=_DEADLINE_S,
    )


def calibrated(sent: Sequence[Sent]) -> Calibrated:
    """From answers below the gateway's capacity."""
    answers = [one.answered for one in sent if one.answered is not None]
    first_s = median(one.first_s for one in answers)
    token_s = (median(one.total_s for one in answers) - first_s) / (_TOKENS - 1)
    return Calibrated(token_s, max(0.0, first_s - token_s))


def of_window(found: Calibrated, sent: Sequence[Sent], begin_s: float, seconds: float) -> Trace:
    """What is predicted of a window; everything in it is known, so there is nothing to draw."""
    return predicted(scripted_cell(found.token_s), sent, begin_s, seconds, generated=(_TOKENS,), ways_s=(found.way_s,))


def validate(*, seconds: float, vllm: Path | None, progress: Progress) -> dict[str, Any]:
    """Measure, calibrate, predict: the scripted engine, and vLLM where it is.

    Args:
        vllm: interpreter of an environment with vLLM; None looks where it usually is.

    Returns:
        `pairs`: name, predicted, measured, and predicted by measured; those that `missed`; by engine `calibration`, and what was `asked`;
        what was `left_out`, and why.

    Raises:
        GatewayGoneError: a gateway did not start, or broke connections.
        PlanError: vLLM is there, and does not start.
    """
    python = find_vllm(vllm)
    found = {"scripted": _validate_scripted(seconds, progress)}
    left_out: dict[str, str] = {}
    if python is None:
        left_out["vLLM"] = "it is not installed here: `make vllm-env` in a checkout, or name its Python with --vllm"
    else:
        found["vllm"] = validate_vllm(python, seconds=seconds, progress=progress)
    pairs = [one for each in found.values() for one in each["pairs"]]
    return {
        "pairs": pairs,
        "within": 0.2,
        "missed": [one["name"] for one in pairs if not 0.8 <= one["ratio"] <= 1.2],
        "calibration": {name: each["calibration"] for name, each in found.items()},
        "asked": {name: each["asked"] for name, each in found.items()},
        "left_out": left_out,
    }


def _validate_scripted(seconds: float, progress: Progress) -> dict[str, Any]:
    made = asyncio.run(_measure(seconds, progress))
    calm_s, storm_s = made.begin_s["calm"], made.begin_s["storm"]
    found = calibrated([one for one in made.sent if calm_s <= one.moment_s < storm_s])
    traces = {
        name: (of_window(found, made.sent, begin_s, seconds), of_gateway(made.sent, begin_s, seconds))
        for name, begin_s in (("calm", calm_s), ("storm", storm_s))
    }
    pairs = [
        pair(f"{name}: goodput, requests/s", ours.goodput_rate, real.goodput_rate)
        for name, (ours, real) in traces.items()
    ]
    pairs += _storm(*traces["storm"])
    return {
        "pairs": pairs,
        "calibration": {"token_ms": 1000 * found.token_s, "way_ms": 1000 * found.way_s},
        "asked": {"calm_rate": _CALM, "storm_rate": _STORM, "seconds": seconds, "slots": _SLOTS},
    }


def _storm(ours: Trace, real: Trace) -> list[dict[str, Any]]:
    times = [
        pair(
            f"storm: first token {title} of {name}, ms",
            1000 * ours.first_s(share, name),
            1000 * real.first_s(share, name),
        )
        for name in ("interactive", "block")
        for title, share in (("p50", 0.5), ("p99", 0.99))
    ]
    return times + [pair(f"storm: refused of {name}", ours.refused[name], real.refused[name]) for name in OBJECTIVES_S]
