"""Measurements through the real language server over stdio: what an editor waits for."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_client.private_gateway.finding import find_gateway
from foretype_context.prompt.profile import Stop

from foretype_eval.gateway import Connected, GatewayOptions, stop_gateway
from foretype_eval.latency.lsp_client import LspClient
from foretype_eval.latency.options import LatencyFigures, LatencyOptions, Progress
from foretype_eval.latency.requests import Stopwatch, Typing
from foretype_eval.latency.workload import Site, sites
from foretype_eval.statistics import percentiles

_INVOKED: Final = 1
_AUTOMATIC: Final = 2
_LEAST_THROUGH_CHARS: Final = 4
_READY_TIMEOUT_S: Final = 60.0
_SITES_MAX: Final = 400
_PAUSE_S: Final = 0.02


class _Item(msgspec.Struct, rename="camel"):
    """As much of an LSP `InlineCompletionItem` as is needed here."""

    insert_text: str
    range: dict[str, dict[str, int]]


class _Items(msgspec.Struct):
    items: list[_Item]


class OpenFile:
    """An open document whose hole is being typed, as an editor does it."""

    def __init__(self, server: LspClient, site: Site, folder: str) -> None:
        self._server = server
        self._site = site
        self.uri = f"{folder}/{site.path}"
        self._line = site.text.count("\n", 0, site.offset)
        self.column = 0
        self._version = 1
        document = {"uri": self.uri, "languageId": "python", "version": 1, "text": site.text}
        server.notify("textDocument/didOpen", {"textDocument": document})

    def insert(self, text: str) -> None:
        self._version += 1
        at = {"line": self._line, "character": self.column}
        self._server.notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": self.uri, "version": self._version},
                "contentChanges": [{"range": {"start": at, "end": at}, "text": text}],
            },
        )
        self.column += len(text)

    def ask(self, trigger: int) -> asyncio.Future[Any]:
        return self._server.request(
            "textDocument/inlineCompletion",
            {
                "textDocument": {"uri": self.uri},
                "position": {"line": self._line, "character": self.column},
                "context": {"triggerKind": trigger},
            },
        )

    def ask_next_edit(self) -> asyncio.Future[Any]:
        return self._server.request(
            "textDocument/copilotInlineEdit",
            {
                "textDocument": {"uri": self.uri, "version": self._version},
                "position": {"line": self._line, "character": self.column},
            },
        )

    def rest(self, answer: Any) -> str:
        """What an answer would insert right of the cursor; empty for none."""
        items = msgspec.convert(answer, _Items | list[_Item] | None)
        if isinstance(items, _Items):
            items = items.items
        if not items:
            return ""
        return items[0].insert_text[self.column - items[0].range["start"]["character"] :]

    def close(self) -> None:
        self._server.notify("textDocument/didClose", {"textDocument": {"uri": self.uri}})


async def measure_editor(
    gateway: Connected, options: LatencyOptions, figures: LatencyFigures, *, progress: Progress
) -> None:
    """Fill in `shown_cold`, `shown`, `typethrough` and `didchange`."""
    server = await LspClient.start()
    try:
        # How fast an answer is shown does not depend on whether it is good enough to be shown unasked.
        told = {"gatewayUrl": gateway.endpoint.url, "token": gateway.endpoint.token or "", "policies": {"unsure": True}}
        await server.initialize(told)
        await until_ready(server)
        bench = _EditorBench(server, options, figures, progress)
        await bench.suggestions()
        await bench.changes_during_generation(gateway)
        figures.facts["file_chars"] = bench.sizes()
        figures.facts["server_counts"] = (await server.request("foretype/status", {}))["counts"]
    finally:
        await server.stop()


async def measure_start(gateway: GatewayOptions, figures: LatencyFigures, runs: int, *, progress: Progress) -> None:
    """Fill in `start_to_any_suggestion` and `start_to_first_suggestion`.

    Both are from starting the language server, which starts its own gateway: to what the open file says, and to what the model says.
    """
    for run in range(runs):
        with tempfile.TemporaryDirectory(prefix="foretype-bench-") as folder:
            state_dir = Path(folder)
            started = time.perf_counter()
            server = await LspClient.start()
            try:
                await server.initialize({"stateDir": folder, "model": str(gateway.model or "")})
                for name, shown in (("any", any_suggestion), ("first", first_suggestion)):
                    await shown(server)
                    figures.add(f"start_to_{name}_suggestion", (time.perf_counter() - started) * 1000)
            finally:
                await server.stop()
                record = await find_gateway(state_dir)
                if record is not None:
                    await stop_gateway(record.pid)
        progress("start", run + 1, runs)


async def any_suggestion(server: LspClient) -> None:
    """Ask, as typing does, until anything is shown where five lines of the file are alike."""
    text = "settings.add(name, default)\n" * 5 + "settings.a"
    file = OpenFile(server, Site("alike.py", text, len(text), ""), "file:///bench/alike")
    file.column = len("settings.a")
    async with asyncio.timeout(_READY_TIMEOUT_S):
        while not file.rest(await file.ask(_AUTOMATIC)):  # noqa: ASYNC110 - another process gets ready
            await asyncio.sleep(_PAUSE_S)


async def first_suggestion(server: LspClient, function: str = "add") -> None:
    """Ask until a model answers. The line is like no other in the file, so no local candidate can answer it.

    Args:
        function: of the file; what was asked in another one is in no cache.
    """
    text = f"def {function}(first, second):\n    \n\n\nprint({function}(1, 2))\n"
    file = OpenFile(server, Site(f"{function}.py", text, text.index("    \n") + 4, ""), f"file:///bench/{function}")
    file.column = 4
    async with asyncio.timeout(_READY_TIMEOUT_S):
        while not file.rest(await file.ask(_INVOKED)):  # noqa: ASYNC110 - another process gets ready
            await asyncio.sleep(_PAUSE_S)


async def until_ready(server: LspClient) -> None:
    async with asyncio.timeout(_READY_TIMEOUT_S):
        while (await server.request("foretype/status", {}))["state"] != "ready":  # noqa: ASYNC110 - another process
            await asyncio.sleep(_PAUSE_S)


class _EditorBench:
    def __init__(self, server: LspClient, options: LatencyOptions, figures: LatencyFigures, progress: Progress) -> None:
        self._server = server
        self._options = options
        self._figures = figures
        self._progress = progress
        self._number = 0
        self._sizes: list[int] = []

    def _files(self, salt: int) -> Iterator[OpenFile]:
        found = sites(self._options.seed * 1000 + salt, chars_above=10_000, chars_below=3_000)
        for site in found:
            self._number += 1
            self._sizes.append(len(site.text))
            if self._number > _SITES_MAX:
                return
            yield OpenFile(self._server, site, f"file:///bench/{self._number}")

    async def _counts(self) -> dict[str, Any]:
        return (await self._server.request("foretype/status", {}))["counts"]

    def sizes(self) -> dict[str, Any]:
        """Lengths of the files that were edited, in characters."""
        return percentiles(self._sizes)._asdict()

    async def suggestions(self) -> None:
        """At each place: a first suggestion on a cold prompt, then fresh ones on a warm one, each typed through."""
        counts, samples = self._options.counts, self._figures.samples
        for round_ in range(4):
            for file in self._files(10 + round_):
                with contextlib.closing(file):
                    if len(samples["shown"]) >= counts.shown and len(samples["typethrough"]) >= counts.typethrough:
                        return
                    await self._one_place(file)
                done = min(len(samples["typethrough"]), counts.typethrough)
                self._progress("type-through", done, counts.typethrough)

    async def _one_place(self, file: OpenFile) -> None:
        await self._counts()  # the first parse of a file belongs to its opening
        for number, typed in enumerate(("    ", "value", " = ", "self.", "x")):
            file.insert(typed)
            rest = await self._fresh(file, "shown_cold" if number == 0 else "shown")
            while len(rest) >= _LEAST_THROUGH_CHARS and not rest.startswith("\n"):
                file.insert(rest[0])
                rest = await self._through(file, rest[1:])

    async def _fresh(self, file: OpenFile, row: str) -> str:
        """Ask at a place where the cache cannot answer; counted when the answer came over the network."""
        rest, elapsed_ms, over_the_network = await self._asked(file)
        if not rest:
            self._figures.count("unanswered")
        elif over_the_network:
            self._figures.add(row, elapsed_ms)
        return rest

    async def _through(self, file: OpenFile, expected: str) -> str:
        """One request after a typed character of the suggestion; returns what is left of it, or nothing if it was lost."""
        rest, elapsed_ms, over_the_network = await self._asked(file)
        if over_the_network or not rest.startswith(expected[:1]):
            self._figures.count("lost_while_typing_through")
            return ""
        self._figures.add("typethrough", elapsed_ms)
        return rest

    async def _asked(self, file: OpenFile) -> tuple[str, float, bool]:
        before, started = await self._counts(), time.perf_counter()
        rest = file.rest(await file.ask(_AUTOMATIC))
        elapsed_ms = (time.perf_counter() - started) * 1000
        return rest, elapsed_ms, (await self._counts())["requests"] > before["requests"]

    async def changes_during_generation(self, gateway: Connected) -> None:
        """A change and, right behind it, a status request: handlers run in order, so its answer bounds the change.

        One generation of this editor is always under way, asked for just before, and a second client keeps the engine busy
        with long ones all the time.
        """
        wanted, samples = self._options.counts.didchange, self._figures.samples["didchange"]
        busy = asyncio.create_task(_generate_for_ever(gateway, self._options.seed))
        await asyncio.sleep(1.0)  # its prompt is built and computed by then
        noise = asyncio.create_task(watch_noise(self._figures))
        try:
            for round_ in range(4):
                for file in self._files(50 + round_):
                    if busy.done():
                        await busy
                    with contextlib.closing(file):
                        if len(samples) >= wanted:
                            return
                        await self._changes(file)
                    self._progress("changes", min(len(samples), wanted), wanted)
        finally:
            for task in (busy, noise):
                task.cancel()
            await asyncio.gather(busy, noise, return_exceptions=True)

    async def _changes(self, file: OpenFile) -> None:
        await self._counts()  # the first parse of a file belongs to its opening
        for text in ("    result = ", "self.", "compute(", "a", "rgument, "):
            file.insert(text)
            before = await self._counts()
            running = file.ask(_INVOKED)
            # Making its prompt is the question's work and not the change's.
            while not running.done() and (await self._counts())["requests"] == before["requests"]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.002)
            if running.done():
                self._figures.count("generation_ended_before_the_change")
                continue
            worked_ms, started = self._server.work_ms(), time.perf_counter()
            file.insert("x")
            await self._server.request("foretype/status", {})
            self._figures.add("didchange", (time.perf_counter() - started) * 1000)
            if worked_ms is not None:
                self._figures.add("didchange_work", (self._server.work_ms() or worked_ms) - worked_ms)
            await running


async def _generate_for_ever(gateway: Connected, seed: int) -> None:
    """Long generations after one prompt: building others here would hold up the stopwatch of this process."""
    site = next(sites(seed * 1000 + 90, chars_above=10_000, chars_below=3_000))
    call, _ = Typing(site, gateway.assembler()).call(block=True, max_tokens=256, stop=Stop())
    stopwatch = Stopwatch(gateway.session)
    for number in itertools.count():
        await stopwatch.timed(msgspec.structs.replace(call, id=f"{call.id}-{number}"))
        await asyncio.sleep(_PAUSE_S)


async def watch_noise(figures: LatencyFigures) -> None:
    """How late a timer of this process fires: what other work on the machine adds to a change, at least."""
    while True:
        due = time.perf_counter() + _PAUSE_S
        await asyncio.sleep(_PAUSE_S)
        figures.add("noise", max(0.0, (time.perf_counter() - due) * 1000))
