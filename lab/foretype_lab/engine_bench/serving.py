"""What gateway and adapter add to vLLM: the same prompts through the client's session, and straight into `AsyncLLM`."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from foretype_backend.config.load import load_config
from foretype_backend.engines.port import Chunk, GenerationRequest
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.engines.vllm.options import VllmOptions
from foretype_backend.start.app import create_app
from foretype_backend.start.prepare import prepare
from foretype_backend.start.profile import make_profile
from foretype_backend.transport.server import running
from foretype_eval.gateway import Connected, GatewayOptions, connected
from foretype_eval.latency.requests import Stopwatch, Typing, warm_keys
from foretype_eval.latency.workload import Site, sites
from foretype_eval.statistics import percentiles

from foretype_lab.engine_bench.options import EngineBenchOptions

__all__ = ["WatchedEngine", "measure_serving", "row"]

_CHARS_PER_TOKEN = 5
_KEYS_PER_SITE = 8
_BUDGET_SHARE = 1.25
"""Part of a budget is kept for text from other files, of which a bench has none."""


class WatchedEngine(VllmEngine):
    """Remembers the last prompt that reached it, and can be asked past everything of ours."""

    last_prompt: Sequence[int] = ()

    def __init__(self, options: VllmOptions) -> None:
        super().__init__(options)
        self._numbers = itertools.count()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        self.last_prompt = request.token_ids
        async for chunk in super().generate(request):
            yield chunk

    async def raw_ttft_ms(self, token_ids: Sequence[int], salt: str) -> float:
        """Time to the first output of `AsyncLLM.generate` itself; the rest is aborted."""
        llm, library = self.library()
        sampling = library.sampling(max_tokens=64, temperature=0.0, detokenize=False, logprobs=0, ignore_eos=True)
        began = time.perf_counter()
        stream = llm.generate(
            library.prompt(list(token_ids), cache_salt=salt), sampling, f"raw-{next(self._numbers)}", priority=0
        )
        try:
            await anext(stream)
            return (time.perf_counter() - began) * 1000
        finally:
            await stream.aclose()


def row(values: Sequence[float]) -> dict[str, float | int | None]:
    """Milliseconds as they are reported."""
    found = percentiles(values)
    return {"n": found.n, "p50": found.p50, "p95": found.p95, "p99": found.p99}


async def measure_serving(engine: WatchedEngine, options: EngineBenchOptions) -> dict[str, Any]:
    """A gateway in this process around the engine; each prompt length cold and warm, beside the raw engine.

    The raw engine gets the same prompts in the same order under a salt of its own, so both find equally much cached.
    """
    config = load_config(engine="vllm", model=options.model, port=0, telemetry=False)
    parts = prepare(config)
    profile = make_profile(config, replace(parts, engine=engine))
    app = create_app(config, engine, parts.tokenizer, profile, tokenizer_file=parts.tokenizer_file)
    async with (
        running(app, config) as (host, port),
        connected(GatewayOptions(url=f"ws://{host}:{port}/v1/stream")) as gateway,
    ):
        return {str(tokens): await _length(gateway, engine, tokens, options) for tokens in options.prompt_tokens}


async def _length(
    gateway: Connected, engine: WatchedEngine, tokens: int, options: EngineBenchOptions
) -> dict[str, Any]:
    stopwatch = Stopwatch(gateway.session)
    rng = random.Random(options.seed)
    assembler = gateway.assembler(prompt_tokens=int(tokens * _BUDGET_SHARE))
    values: dict[str, list[float]] = {name: [] for name in ("cold", "cold_raw", "warm", "warm_raw", "added")}
    lengths: list[int] = []
    cached = prompts = 0
    until = time.perf_counter() + options.seconds
    for number, site in enumerate(_sites(options.seed, tokens)):
        if len(values["warm"]) >= options.samples or time.perf_counter() > until:
            break
        typing = Typing(site, assembler)
        typing.type(rng.randint(4, 8) + len(site.typed) - len(site.typed.lstrip()))
        salt = f"raw-{tokens}-{number}"
        for at, step in enumerate([0, *itertools.islice(warm_keys(typing.left), _KEYS_PER_SITE)]):
            typing.type(step)
            call, assemble_ms = typing.call()
            if not 0.7 * tokens <= (call.prompt_tokens or 0) <= 1.1 * tokens:
                break
            timed = await stopwatch.first_delta(call, assemble_ms)
            ids = list(engine.last_prompt)
            raw_ms = await engine.raw_ttft_ms(ids, salt)
            if timed.ttft_ms is None:
                continue  # the model said that nothing is missing: there is no first token to time
            kind = "warm" if at else "cold"
            values[kind].append(timed.ttft_ms)
            values[f"{kind}_raw"].append(raw_ms)
            if at:
                values["added"].append(timed.ttft_ms - raw_ms)
                lengths.append(len(ids))
                cached, prompts = cached + timed.done.usage.cached_tokens, prompts + len(ids)
    return {
        "prompt_tokens": {"min": min(lengths, default=0), "max": max(lengths, default=0)},
        **{f"{name}_ttft_ms" if name != "added" else "added_ms": row(found) for name, found in values.items()},
        "warm_cached_share": round(cached / prompts, 4) if prompts else None,
    }


def _sites(seed: int, tokens: int) -> Iterator[Site]:
    for round_ in itertools.count():
        yield from sites(seed * 1000 + round_, chars_above=tokens * _CHARS_PER_TOKEN, chars_below=3_000)
