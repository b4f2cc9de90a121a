"""First token and pace of the embedded engine and of llama.cpp, in turns, on one file: `foretype bench first-tokens`.

All are asked through the engine port, so each carries the same code of ours; llama.cpp is asked twice: the wheel that the embedded engine
can load, and the server that `make peer-env` builds for this processor, where it is there. Prompts are ids drawn by chance: what a token
costs does not depend on which it is, and no prompt is in anybody's cache.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from foretype_backend.engines.by_name import load_engine
from foretype_backend.engines.port import Engine, EngineFinish, GenerationParams, GenerationRequest
from foretype_backend.errors import EngineUnavailableError
from foretype_context.terminal import console
from foretype_eval.console import fail, print_json
from foretype_models.artifacts import locate
from foretype_models.errors import ArtifactError
from rich.table import Table

from foretype_lab.errors import LlamaServerError
from foretype_lab.peer.llama_server import LlamaServer, find_llama_server

_CACHED_TOKENS: Final = 2000
_ASKED: Final = ("new 1", "new 100", "new 1000", "cold 512", "cold 1024", "cold 2000", "decode 200", "decode 2000")
"""First tokens behind a cached prompt and so many new tokens, or of a new prompt, in milliseconds; tokens per second behind so many."""
_WRITTEN_TOKENS: Final = 48
_IDS: Final = range(1000, 40_000)
"""Of any vocabulary that is served here; controls lie outside."""


class Timed(NamedTuple):
    first_ms: float
    tokens_per_s: float


async def _timed(engine: Engine, name: str, prompt: Sequence[int], most: int = 1) -> Timed:
    began, times = time.perf_counter(), list[float]()
    async for chunk in engine.generate(GenerationRequest(name, prompt, GenerationParams(max_tokens=most))):
        # A server tells texts, a token in each; one of a token that is no text yet comes with the next, or with the end.
        came = (
            len(chunk.token_ids) or bool(chunk.text) or (not times and chunk.finish not in (None, EngineFinish.ABORTED))
        )
        times += [time.perf_counter()] * came
    if not times:
        raise EngineUnavailableError(f"nothing was written behind {len(prompt)} tokens")
    return Timed((times[0] - began) * 1000, (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0)


async def _asked(engine: Engine, what: str, ids: range, draw: random.Random, name: str) -> float:
    kind, _, count = what.partition(" ")
    if kind == "decode":
        return (await _timed(engine, name, draw.choices(ids, k=int(count)), _WRITTEN_TOKENS)).tokens_per_s
    if kind == "cold":
        return (await _timed(engine, name, draw.choices(ids, k=int(count)))).first_ms
    prompt = draw.choices(ids, k=_CACHED_TOKENS)
    await _timed(engine, f"{name}-before", prompt)
    return (await _timed(engine, name, prompt + draw.choices(ids, k=int(count)))).first_ms


@asynccontextmanager
async def _engines(model: Path, threads: int) -> AsyncGenerator[dict[str, Engine]]:
    made: dict[str, Engine] = {}
    async with AsyncExitStack() as stack:
        for named, library in (("ours", "openvino"), ("llama.cpp, wheel", "llama.cpp")):
            made[named] = load_engine("embedded", model=model, library=library, threads=threads)
        try:
            arguments = ("-np", "1", "-c", "4096")
            server = stack.enter_context(
                LlamaServer(model, threads=threads, arguments=arguments, binary=find_llama_server())
            )
            made["llama.cpp, native"] = load_engine("llama-cpp", url=server.url, extra_body={"ignore_eos": True})
        except LlamaServerError as error:
            console(stderr=True).print(f"without llama.cpp's own build: {error}")
        for engine in made.values():
            await engine.start()
            stack.push_async_callback(engine.close)
        yield made


async def measure(
    model: Path, *, threads: int = 1, rounds: int = 10, seed: int = 0, ids: range = _IDS
) -> dict[str, Any]:
    """Medians by engine, and the ratio of ours to each other one, over rounds in which every engine is asked the same in turn."""
    rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    async with _engines(model, threads) as engines:
        for number in range(rounds):
            for what in _ASKED:
                for named, engine in engines.items():
                    draw = random.Random(f"{seed}/{number}/{what}")
                    rows[what][named].append(await _asked(engine, what, ids, draw, f"{number}-{what}-{named}"))
    medians = {what: {named: statistics.median(values) for named, values in row.items()} for what, row in rows.items()}
    ratios = {
        what: {
            named: statistics.median(ours / theirs for ours, theirs in zip(row["ours"], values, strict=True))
            for named, values in row.items()
            if named != "ours"
        }
        for what, row in rows.items()
    }
    return {"model": model.name, "threads": threads, "rounds": rounds, "medians": medians, "ours_to": ratios}


def first_tokens(
    gguf: Annotated[Path | None, typer.Option(help="Model file for all; default is the shipped one.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Of each.")] = 1,
    rounds: Annotated[int, typer.Option(min=1)] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """First token and pace of the embedded engine beside llama.cpp's wheel and its native server, in turns."""
    try:
        result = asyncio.run(measure(gguf or locate().path, threads=threads, rounds=rounds))
    except (ArtifactError, EngineUnavailableError, LlamaServerError, OSError) as error:
        fail(str(error))
    if as_json:
        print_json(result)
        return
    named = list(result["medians"][_ASKED[0]])
    table = Table("", *named, title="first token, ms; decode, tokens per second; ours / theirs", title_justify="left")
    for what, row in result["medians"].items():
        beside = result["ours_to"][what]
        table.add_row(what, *(f"{row[n]:.1f}" + (f" ({beside[n]:.2f})" if n in beside else "") for n in named))
    console().print(table)
