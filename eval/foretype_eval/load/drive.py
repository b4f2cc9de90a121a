"""Open-loop arrivals, and what they cost at either end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import Any

import numpy as np
import psutil

from foretype_eval.load.gateway import GatewayUnderLoad
from foretype_eval.load.scripts import arrivals_s

Progress = Callable[[str, int, int], None]


class Usage:
    """Processor time of the gateway and of this process, from now on."""

    def __init__(self, target: GatewayUnderLoad) -> None:
        self._target = target
        self._own = psutil.Process()
        self._gateway_s, self._own_s = target.cpu_s(), self._busy_s()

    def report(self, seconds: float, requests: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        used = self._target.cpu_s()
        if self._gateway_s is not None and used is not None and requests:
            found["gateway_cpu_ms_per_request"] = round((used - self._gateway_s) * 1000 / requests, 4)
            found["gateway_cpu_share"] = round((used - self._gateway_s) / seconds, 3)
        found["generator_cpu_share"] = round((self._busy_s() - self._own_s) / seconds, 3)
        resident = self._target.resident_bytes()
        if resident is not None:
            found["gateway_resident_mib"] = round(resident / (1 << 20), 1)
        return found

    def _busy_s(self) -> float:
        times = self._own.cpu_times()
        return times.user + times.system


@contextlib.contextmanager
def quiet_collector() -> Generator[None]:
    """No garbage collection: a pause of the generator is no latency of the gateway."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def drive(
    plan: Sequence[tuple[float, int]],
    send: Callable[[float, int], None],
    seconds: float,
    progress: Callable[[int, int], None],
) -> None:
    """Call `send(planned, number)` when it is due, whatever has come back by then; `planned` is of `time.perf_counter`."""
    clock = time.perf_counter
    began = clock()
    for sent, (moment_s, number) in enumerate(plan):
        planned = began + moment_s
        delay = planned - clock()
        if delay > 0.0005:
            await asyncio.sleep(delay)
        elif not sent % 16:
            await asyncio.sleep(0)  # behind: what came in is still read
        send(planned, number)
        if not sent % 256:
            progress(sent, len(plan))
    rest = began + seconds - clock()
    if rest > 0:
        await asyncio.sleep(rest)
    progress(len(plan), len(plan))


def schedule(developers: int, rate: float, seconds: float, rng: Random) -> list[tuple[float, int]]:
    """(moment, developer) in order of time: each types in bursts and pauses, all together exactly `rate` a second.

    Every developer is met at a random moment of a long sequence, so that the first second is like any other.
    """
    wanted = max(1, round(rate * seconds))
    each = max(64, 2 * wanted // developers)
    gap = developers / rate
    moments: list[tuple[float, int]] = []
    for number in range(developers):
        sequence = np.array(arrivals_s(rng, requests=each))
        begin = rng.random() * each
        turned = np.sort((sequence - begin) % each) * gap
        moments += [(float(at), number) for at in turned[: 2 * wanted]]
    moments.sort()
    scale = seconds / moments[wanted][0]
    return [(at * scale, number) for at, number in moments[:wanted]]
