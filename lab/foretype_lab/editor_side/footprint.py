"""What a language server and its private gateway take: time to import, memory, and processor time while nobody types.

All are processes as an editor starts them, with a state directory of their own that was used once before: what a first start makes is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
from foretype_client.private_gateway.finding import find_gateway
from foretype_eval.errors import EvalError
from foretype_eval.gateway import stop_gateway
from foretype_eval.latency.editor_bench import first_suggestion
from foretype_eval.latency.lsp_client import LspClient
from foretype_eval.statistics import percentiles

_IMPORT: Final = """
import time
began, used = time.perf_counter(), time.process_time()
import asyncio, os
from foretype_lsp.cli import main

def begun(work):
    os.write(2, b"%f %f" % ((time.perf_counter() - began) * 1e3, (time.process_time() - used) * 1e3))
    os._exit(0)

asyncio.run = begun
main()
"""
"""All that a language server does until its event loop runs."""
_MIB: Final = 1 << 20
_STORE_S: Final = 3.0
"""In which the first start has made its store, too, which no suggestion waits for."""


class _Processes(NamedTuple):
    client: LspClient
    server: psutil.Process
    gateway: list[psutil.Process]  # and the engine, which is its child


async def measure_footprint(*, imports: int, settle_s: float, idle_s: float) -> dict[str, Any]:
    """The report: `import_ms`, `import_cpu_ms`, `memory_mib`, `idle_ms_per_s`; what was left out is missing.

    Where nobody types for so long that the engine rests, `memory_at_rest_mib` and `suggestion_after_rest_ms` in place of the last.

    Args:
        imports: interpreters that import the language server.
        settle_s: silence after the first suggestion, before memory and idling are looked at.
        idle_s: how long idling is watched; 0 leaves it, and the memory, out.

    Raises:
        EvalError: the language server ended; or no gateway registered itself.
        TimeoutError: no suggestion came.
    """
    report: dict[str, Any] = {}
    if imports:
        taken = [await asyncio.to_thread(_import_ms) for _ in range(imports)]
        for name, values in zip(("import_ms", "import_cpu_ms"), zip(*taken, strict=True), strict=True):
            report[name] = percentiles(values)._asdict()
    if idle_s:
        with tempfile.TemporaryDirectory(prefix="foretype-bench-") as folder:
            async with _running(Path(folder)):
                await asyncio.sleep(_STORE_S)
            async with _running(Path(folder)) as processes:
                await asyncio.sleep(settle_s)
                server, gateway = [processes.server], processes.gateway
                report["memory_mib"] = {"server": _resident(server), "gateway": _resident(gateway)}
                before = _used_s(server), _used_s(gateway)
                await asyncio.sleep(idle_s)
                left = [one for one in gateway if one.is_running()]
                after = _used_s(server), _used_s(left)
                if left != gateway:  # the engine rests: its memory was given back
                    report["memory_at_rest_mib"] = {"server": _resident(server), "gateway": _resident(left)}
                    began = time.perf_counter()
                    await first_suggestion(processes.client, "after_a_rest")
                    report["suggestion_after_rest_ms"] = round((time.perf_counter() - began) * 1000, 1)
                    return report
                names = ("server", "gateway")
                report["idle_ms_per_s"] = {
                    name: round((end - begin) * 1e3 / idle_s, 2)
                    for name, begin, end in zip(names, before, after, strict=True)
                }
    return report


def _import_ms() -> tuple[float, float]:
    """By the clock, and of processor time."""
    ran = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise EvalError(f"the language server cannot be imported: {ran.stderr.strip()[-300:]}")
    wall_ms, cpu_ms = map(float, ran.stderr.splitlines()[-1].split())
    return wall_ms, cpu_ms


@contextlib.asynccontextmanager
async def _running(folder: Path) -> AsyncGenerator[_Processes]:
    """A language server that has shown its first suggestion, and the private gateway that it started, which keep their state in `folder`."""
    server = await LspClient.start()
    try:
        await server.initialize({"stateDir": str(folder)})
        await first_suggestion(server)
        record = await find_gateway(folder)
        if record is None:
            raise EvalError("a suggestion came, and no gateway is registered")
        gateway = psutil.Process(record.pid)
        yield _Processes(server, psutil.Process(server.pid), [gateway, *gateway.children(recursive=True)])
    finally:
        await server.stop()
        if (record := await find_gateway(folder)) is not None:
            await stop_gateway(record.pid)


def _resident(processes: Sequence[psutil.Process]) -> float:
    return round(sum(process.memory_info().rss for process in processes) / _MIB, 1)


def _used_s(processes: Sequence[psutil.Process]) -> float:
    return sum(map(_process_s, processes))


def _process_s(process: psutil.Process) -> float:
    """Processor time of its threads; Linux tells nanoseconds of each, where `times` counts in hundredths of a second."""
    tasks = list(Path(f"/proc/{process.pid}/task").glob("*/schedstat"))
    if not tasks:
        return sum(process.cpu_times()[:2])
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
