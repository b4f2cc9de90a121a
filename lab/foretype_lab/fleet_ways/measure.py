"""The first token of the same keys, in turns, by each way to the same replica."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from foretype_backend.engines.port import GenerationParams, GenerationRequest
from foretype_backend.engines.vllm.server import VllmServerEngine
from foretype_context.prompt.segments import Segment
from foretype_context.prompt.templates import encode_prompt, grammar
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_eval.gateway import Connected, GatewayOptions, connected
from foretype_eval.latency.requests import Stopwatch, Typing, warm_keys
from foretype_eval.latency.workload import sites
from foretype_eval.load.recorder import percentiles_ms
from foretype_wire.messages import Complete

from foretype_lab.fleet_ways.coming import Coming
from foretype_lab.fleet_ways.places import gateway_profile, haproxy, running_fleet, vllm_command

__all__ = ["WaysOptions", "run_ways"]

Progress = Callable[[str, int, int], None]
_GATEWAY: Final = "gateway and directory"
_DIRECT: Final = "direct"
_TOKENS: Final = 4
_PER_SITE: Final = 8


class WaysOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        engine: what the replica spawns; the real vLLM where it is empty.
        keys: measured of each way.
        kills: of a replica, each waited for until its successor is asked; 0 measures no coming and going.
    """

    engine: tuple[str, ...] = ()
    keys: int = 200
    kills: int = 0
    seed: int = 0


async def run_ways(options: WaysOptions, *, progress: Progress) -> dict[str, Any]:
    """Raises FleetBenchError, GatewayGoneError, RequestRefusedError and WorkloadError."""
    progress("fleet", 0, 1)
    with running_fleet(options.engine or vllm_command()) as fleet, haproxy(fleet.address, fleet.folder) as before:
        urls = {_DIRECT: f"http://{fleet.address}", "haproxy": before, "ray's proxy": fleet.through_ray()}
        async with contextlib.AsyncExitStack() as stack:
            gateway = await stack.enter_async_context(connected(GatewayOptions(profile=gateway_profile(fleet))))
            engines: dict[str, VllmServerEngine] = {}
            for name, url in urls.items():
                if url is not None:
                    engines[name] = engine = VllmServerEngine.from_config(url=f"{url}/v1")
                    await engine.start()
                    stack.push_async_callback(engine.close)
            bench = _Ways(gateway, engines, options)
            await bench.measure(progress)
            memory = fleet.memory_mib()
            coming = Coming(fleet, gateway.endpoint)
            if options.kills:
                await coming.measure(options.kills, progress)
        return {
            "engine": "vLLM" if not options.engine else " ".join(options.engine),
            "up_s": round(fleet.start_s, 1),
            "start_phases_s": fleet.phases,
            "memory_mib": memory,
            **bench.report(),
            "coming_ms": coming.report(),
            "missing": [name for name, url in urls.items() if url is None],
        }


class _Ways:
    """Each way has a salt of its own, so that each pays for a key what the others pay: the same keys are computed, the same are cached."""

    def __init__(self, gateway: Connected, engines: dict[str, VllmServerEngine], options: WaysOptions) -> None:
        self._gateway, self._engines, self._options = gateway, engines, options
        self._stopwatch = Stopwatch(gateway.session)
        self._tokenizer: Tokenizer = load_tokenizer(gateway.tokenizer_path)
        self._grammar = grammar(gateway.profile.grammar)
        self._rng = random.Random(options.seed)
        self._times_s: dict[str, list[float]] = {name: [] for name in (_DIRECT, _GATEWAY, *engines)}
        self._prompt_tokens: list[int] = []
        self._skipped = 0
        self._number = 0

    async def measure(self, progress: Progress) -> None:
        tokens = self._gateway.profile.budgets.prompt_tokens
        places = sites(self._options.seed, chars_above=4 * tokens, chars_below=3_000)
        for tried, site in enumerate(islice(places, self._options.keys)):
            typing = Typing(site, self._gateway.assembler())
            typing.type(6 + len(site.typed) - len(site.typed.lstrip()))
            await self._turn(typing, keep=False)
            for step in list(warm_keys(typing.left))[:_PER_SITE]:
                typing.type(step)
                await self._turn(typing, keep=tried > 0)  # the first file pays for what is loaded lazily
            done = len(self._times_s[_GATEWAY])
            progress("keys", min(done, self._options.keys), self._options.keys)
            if done >= self._options.keys:
                return

    async def _turn(self, typing: Typing, *, keep: bool) -> None:
        """One key by every way, in an order of its own. A key at which somebody says nothing is none's."""
        call, _ = typing.call(max_tokens=_TOKENS)
        ids = encode_prompt(self._tokenizer, self._grammar, call.segments).ids
        names = list(self._times_s)
        self._rng.shuffle(names)
        found = {name: await (self._session(call) if name == _GATEWAY else self._engine(name, ids)) for name in names}
        if None in found.values():
            self._skipped += keep
        elif keep:
            self._prompt_tokens.append(len(ids))
            for name, seconds in found.items():
                if seconds is not None:
                    self._times_s[name].append(seconds)

    async def _session(self, call: Complete[Segment]) -> float | None:
        timed = await self._stopwatch.whole(call)
        return None if timed.ttft_ms is None else timed.ttft_ms / 1000

    async def _engine(self, name: str, ids: Sequence[int]) -> float | None:
        self._number += 1
        request = GenerationRequest(
            f"bench-{self._number}", list(ids), GenerationParams(max_tokens=_TOKENS), salt=f"bench {name}"
        )
        began_s, first_s = time.perf_counter(), None
        async for chunk in self._engines[name].generate(request):
            if chunk.token_ids and first_s is None:
                first_s = time.perf_counter() - began_s
        return first_s

    def report(self) -> dict[str, Any]:
        found = {name: percentiles_ms(times) for name, times in self._times_s.items()}
        direct = found[_DIRECT]
        return {
            "keys": len(self._prompt_tokens),
            "skipped": self._skipped,
            "prompt_tokens": {"min": min(self._prompt_tokens, default=0), "max": max(self._prompt_tokens, default=0)},
            "first_token_ms": found,
            "added_ms": {
                name: {at: round(row[at] - direct[at], 3) for at in ("p50", "p95", "p99")}
                for name, row in found.items()
                if name != _DIRECT and row["p50"] is not None
            },
        }
