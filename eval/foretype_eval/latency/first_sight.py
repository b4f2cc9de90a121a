"""What next edits cost a folder that is seen for the first time: until the first suggestion, and until all of its files are known."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from foretype_eval.gateway import Connected
from foretype_eval.latency.editor_bench import OpenFile, until_ready
from foretype_eval.latency.lsp_client import LspClient
from foretype_eval.latency.options import LatencyFigures, Progress
from foretype_eval.latency.workload import Site, sites

_FILES: Final = 200
_TYPED: Final = "    value = self."
_INVOKED: Final = 1
_TIMEOUT_S: Final = 300.0
_PAUSE_S: Final = 0.02


async def measure_first_sight(
    gateway: Connected, seed: int, figures: LatencyFigures, runs: int, *, progress: Progress
) -> None:
    """Fill in `first_sight`, `first_sight_indexed`, and the same `_without` next edits, in turns.

    Raises:
        EvalError: there is no code here to type.
    """
    with tempfile.TemporaryDirectory(prefix="foretype-bench-") as name:
        root = Path(name) / "repository"
        root.mkdir()
        found: list[Site] = []
        for number, site in zip(range(_FILES), sites(seed, chars_above=1_000, chars_below=500), strict=False):
            site = site._replace(path=f"{number}_{Path(site.path).name}")
            (root / site.path).write_text(site.text)
            found.append(site)
        figures.facts["first_sight_files"] = len(found)
        for run in range(2 * runs):
            asked = run % 2 == 0
            elapsed = await _once(gateway, root, found[run % len(found)], Path(name) / f"{run}", asked=asked)
            for row, elapsed_ms in zip(("first_sight", "first_sight_indexed"), elapsed, strict=True):
                figures.add(row if asked else f"{row}_without", elapsed_ms)
            progress("first sight", run + 1, 2 * runs)


async def _once(gateway: Connected, root: Path, site: Site, state: Path, *, asked: bool) -> tuple[float, float]:
    """Milliseconds from the first message until the first suggestion, and until the index has every file."""
    server = await LspClient.start()
    try:
        await server.initialize(
            {
                "gatewayUrl": gateway.endpoint.url,
                "token": gateway.endpoint.token or "",
                "policies": {"unsure": True},
                "stateDir": str(state / "state"),
                "index": {"cacheDir": str(state / "cache")},
                "nextEdit": {"enabled": asked},
            },
            root=root.as_uri(),
        )
        started = time.perf_counter()
        file = OpenFile(server, site, root.as_uri())
        with contextlib.closing(file):
            questions: list[asyncio.Future[Any]] = []
            for key in _TYPED:
                file.insert(key)
                if asked:
                    questions.append(file.ask_next_edit())
            async with asyncio.timeout(_TIMEOUT_S):
                await until_ready(server)
                while not file.rest(await file.ask(_INVOKED)):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(_PAUSE_S)
                suggested_ms = (time.perf_counter() - started) * 1000
                while not _is_indexed((await server.request("foretype/status", {}))["index"]):  # noqa: ASYNC110
                    await asyncio.sleep(_PAUSE_S)
            indexed_ms = (time.perf_counter() - started) * 1000
            await asyncio.gather(*questions)
        return suggested_ms, indexed_ms
    finally:
        await server.stop()


def _is_indexed(said: str) -> bool:
    """By the line that the server's sources say of themselves."""
    return said.endswith("definitions, ready")
