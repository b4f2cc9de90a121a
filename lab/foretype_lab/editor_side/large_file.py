"""A file of ten thousand lines in a real language server: the first key after it was opened, and the keys after that.

Handlers run in the order of the messages, so the answer of a status request behind a message bounds what that message takes. The
gateway is the scripted one and says nothing: what is measured is the editor's side.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from foretype_eval.gateway import GatewayOptions, private_gateway
from foretype_eval.latency.editor_bench import OpenFile, until_ready, watch_noise
from foretype_eval.latency.lsp_client import LspClient
from foretype_eval.latency.options import LatencyFigures
from foretype_eval.latency.workload import Site

from foretype_lab.editor_side.assembly import source_text

_TYPED: Final = "value = self.compute(first, second, third)"
_AUTOMATIC: Final = 2
_KEY_S: Final = 0.05
"""Between two keys: ten a second is fast, and twenty is faster than anybody."""


async def measure_large_file(*, files: int, lines: int, keys: int, rest_s: float) -> dict[str, Any]:
    """The report, rows of milliseconds: `open`, `first_key` (the change and its question), `key` likewise, `change`, `noise`.

    `first_key_work` and `key_work` are the processor time of the server's main thread from the key until its question is answered.

    Args:
        files: opened one after the other; each is one first key.
        keys: typed in each.
        rest_s: between opening a file and its first key.

    Raises:
        GatewayGoneError, EvalError: a process ended, or did not start.
        OSError: there are no source files to open.
    """
    figures = LatencyFigures()
    text = source_text(lines)
    with tempfile.TemporaryDirectory(prefix="foretype-bench-") as folder:
        async with private_gateway(GatewayOptions(engine="scripted"), state_dir=Path(folder)) as endpoint:
            server = await LspClient.start()
            noise = asyncio.create_task(watch_noise(figures))
            try:
                await server.initialize(
                    {"gatewayUrl": endpoint.url, "token": endpoint.token or "", "index": {"enable": False}}
                )
                await until_ready(server)
                for number in range(files):
                    # Each has its own text, so that nothing of the one before it is known.
                    own = f"# file {number}\n" + text.replace("self", f"self{number}")
                    at = own.index("\n", len(own) * (number + 1) // (files + 2)) + 1
                    site = Site(f"large_{number}.py", f"{own[:at]}\n{own[at:]}", at, "")
                    await _one_file(server, site, keys, rest_s, figures)
            finally:
                noise.cancel()
                await asyncio.gather(noise, return_exceptions=True)
                await server.stop()
    names = ("open", "first_key", "first_key_work", "key", "key_work", "change", "noise")
    return {f"{name}_ms": figures.row(name) for name in names} | {"lines": lines, "bytes": len(text)}


async def _one_file(server: LspClient, site: Site, keys: int, rest_s: float, figures: LatencyFigures) -> None:
    began = time.perf_counter()
    with contextlib.closing(OpenFile(server, site, "file:///bench")) as file:
        await server.request("foretype/status", {})
        figures.add("open", (time.perf_counter() - began) * 1e3)
        await asyncio.sleep(rest_s)
        for key, character in enumerate(_TYPED[:keys]):
            name = "key" if key else "first_key"
            used_ms, began = server.work_ms(), time.perf_counter()
            file.insert(character)
            changed = server.request("foretype/status", {})
            asked = file.ask(_AUTOMATIC)
            answered = server.request("foretype/status", {})
            await changed
            if key:
                figures.add("change", (time.perf_counter() - began) * 1e3)
            await answered
            figures.add(name, (time.perf_counter() - began) * 1e3)
            await asked
            if used_ms is not None:
                figures.add(f"{name}_work", (server.work_ms() or used_ms) - used_ms)
            await asyncio.sleep(_KEY_S)
