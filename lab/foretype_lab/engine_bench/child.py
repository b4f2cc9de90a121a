"""Runs in vLLM's environment: options on standard input, one JSON object on standard output, everything else on standard error."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from foretype_lab.engine_bench.options import EngineBenchOptions


async def measure(options: EngineBenchOptions) -> dict[str, Any]:
    """All parts that were asked for; raises EngineUnavailableError where the engine does not start."""
    from foretype_backend.engines.vllm.options import VllmOptions

    from foretype_lab.engine_bench.behaviour import measure_cancel, measure_isolation
    from foretype_lab.engine_bench.serving import WatchedEngine, measure_serving
    from foretype_lab.engine_bench.speculation import measure_speculation

    found: dict[str, Any] = {"cores": os.cpu_count()}
    if {"serving", "cancel", "isolation"} & set(options.parts):
        engine = WatchedEngine(VllmOptions(model=Path(options.model), eager=True, cache_gib=1.0))
        began = time.perf_counter()
        await engine.start()
        found["start_s"] = round(time.perf_counter() - began, 1)
        try:
            found["engine"] = f"vllm {engine.library()[1].version}"
            if "serving" in options.parts:
                found["serving"] = await measure_serving(engine, options)
            if "cancel" in options.parts:
                found["cancel"] = await measure_cancel(engine, options)
            if "isolation" in options.parts:
                found["isolation"] = await measure_isolation(engine, options)
        finally:
            await engine.close()
    if "speculation" in options.parts:
        found["speculation"] = await measure_speculation(options)
    return found


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # vLLM and its libraries print
    options = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineBenchOptions)
    answers.write(msgspec.json.encode(asyncio.run(measure(options))))
    answers.close()


if __name__ == "__main__":
    main()
