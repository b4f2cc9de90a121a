"""A load run: open-loop arrivals of many developers, from warm-up to the check that nothing was left behind."""

from __future__ import annotations

import contextlib
from typing import Any

from foretype_eval.load.crowd import Crowd, LoadOptions, leaked, scripts_of
from foretype_eval.load.drive import Progress
from foretype_eval.load.engine_cost import engine_cpu_ms
from foretype_eval.load.gateway import BLOCK_TOKENS, cores, pinned, target

__all__ = ["LoadOptions", "run_load"]


async def run_load(options: LoadOptions, *, progress: Progress) -> dict[str, Any]:
    """Run, and report.

    Raises:
        GatewayGoneError: the gateway cannot be reached or started.
        EvalError: there is no code here to type.
    """
    places = cores() if options.pin else []
    both = len(places) > 1
    async with target(
        options.gateway, frame_ms=options.frame_ms, slots=options.slots, core=places[0] if both else None
    ) as found:
        scripts = await scripts_of(found, options)
        with pinned(places[-1] if both and found.process is not None else None):
            with contextlib.closing(Crowd(found, scripts, options)) as crowd:
                await crowd.connect(progress)
                report = await (crowd.search(progress) if options.search else crowd.measure(options.rate, progress))
            report["leaked_slots"] = await leaked(found)
        if found.process is not None and options.gateway.engine in (None, "scripted"):
            lengths = [step.prompt_tokens for script in scripts for step in script]
            with pinned(places[0] if both else None):
                cost_ms = await engine_cpu_ms(
                    rate=report.get("achieved_rate", options.rate),
                    prompt_tokens=sum(lengths) // len(lengths),
                    frames=options.habits.max_tokens,
                    frame_ms=options.frame_ms,
                    block_tokens=BLOCK_TOKENS,
                )
            report["of_it_engine_cpu_ms"] = round(cost_ms, 4)
    return {
        "rate": options.rate,
        "seconds": options.seconds,
        "developers": options.developers,
        "idle_connections": options.idle,
        "engine": "named gateway" if options.gateway.url is not None else options.gateway.engine or "scripted",
        "frame_ms": options.frame_ms,
        "frames": options.habits.max_tokens,
        "pinned": both and found.process is not None,
        **report,
    }
