"""One engine with one set of levers, measured: a process of its own, so that nothing of the engine before it is left."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

TTFT_LIMIT_S = 0.1
PART_S = 10.0
"""A part is not begun with less time than this."""

RATES = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_t0 = time.monotonic()


def quantile(values: list[float], share: float) -> float:
    """The value below which so large a share lies, in milliseconds."""
    ordered = sorted(values)
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)


def summary(values: list[float]) -> dict[str, Any]:
    return {"n": len(values), "p50_ms": quantile(values, 0.5), "p99_ms": quantile(values, 0.99)} if values else {"n": 0}


class Bench:
    """Drives one AsyncLLM.

    Args:
        plan: `arguments` of the engine, `prompt_tokens`, `long_tokens`, `output_tokens`, `vocabulary`, `parts`, `seconds` for all of it.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.random = random.Random(7)
        self.serial = 0
        self.answering: set[str] = set()
        self.counts: list[tuple[float, int]] = []
        self.ends = self.part_ends = _t0 + plan["seconds"]

    def left(self) -> float:
        """Seconds that the part under way may still take."""
        return self.part_ends - time.monotonic()

    def prompt(self, tokens: int) -> list[int]:
        return [self.random.randrange(10, self.plan["vocabulary"] - 1) for _ in range(tokens)]

    async def start(self) -> None:
        from vllm.config import KVTransferConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.sampling_params import RequestOutputKind, SamplingParams
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.metrics.loggers import StatLoggerBase

        counts = self.counts

        class Counts(StatLoggerBase):
            def __init__(self, *_: Any, **__: Any) -> None: ...

            def record(self, scheduler_stats: Any = None, *_: Any, **__: Any) -> None:
                if scheduler_stats is not None:
                    counts.append((time.perf_counter(), scheduler_stats.num_running_reqs))

            def log_engine_initialized(self) -> None: ...

        self.sampling = lambda n: SamplingParams(
            max_tokens=n, temperature=0.0, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.DELTA
        )
        known = {one.name for one in fields(AsyncEngineArgs)}
        arguments = dict(self.plan["arguments"])
        unknown = [name for name in arguments if name not in known]
        if unknown:
            raise SystemExit(f"this vLLM has no option {', '.join(unknown)}")
        if "kv_transfer_config" in arguments:  # the other options may be plain mappings in every version
            arguments["kv_transfer_config"] = KVTransferConfig(**arguments["kv_transfer_config"])
        self.llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), stat_loggers=[Counts])

    async def ask(self, ids: list[int], tokens: int) -> tuple[float, float, int, int]:
        """Seconds to the first token, seconds per token after it, cached tokens, engine steps."""
        self.serial += 1
        began = time.perf_counter()
        first = last = 0.0
        made = steps = cached = 0
        async for output in self.llm.generate({"prompt_token_ids": ids}, self.sampling(tokens), f"r{self.serial}"):
            last = time.perf_counter()
            if not first:
                first, cached = last, output.num_cached_tokens or 0
            steps += 1
            made += sum(len(one.token_ids) for one in output.outputs)
        return first - began, (last - first) / max(1, made - 1), cached, steps

    async def ttft(self) -> dict[str, Any]:
        """Cold and warm, at concurrency 1, 4 and 8."""
        return await self._ttft(self.plan["prompt_tokens"], (1, 4, 8))

    async def ttft_long(self) -> dict[str, Any]:
        """The same of a prompt three times as long, at concurrency 1 and 8."""
        return await self._ttft(self.plan["long_tokens"], (1, 8))

    async def _ttft(self, size: int, concurrency: tuple[int, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        out = self.plan["output_tokens"]
        for at_once in concurrency:
            cold: list[float] = []
            warm: list[float] = []
            per_token: list[float] = []
            cached = 0
            for _ in range(max(1, self.plan["samples"] // at_once)):
                if self.left() < 5:
                    break
                prompts = [self.prompt(size) for _ in range(at_once)]
                cold += [one[0] for one in await asyncio.gather(*(self.ask(ids, out) for ids in prompts))]
                more = [ids + self.prompt(6) for ids in prompts]  # a few keys later
                for one in await asyncio.gather(*(self.ask(ids, out) for ids in more)):
                    warm.append(one[0])
                    per_token.append(one[1])
                    cached += one[2]
            share = round(cached / (len(warm) * size), 3) if warm else None
            if not cold:
                continue  # a row without figures says less than none
            result[str(at_once)] = {
                "cold": summary(cold),
                "warm": summary(warm),
                "per_token": summary(per_token),
                "warm_cached_share": share,
                "prompt_tokens": size,
            }
        return result

    async def decode(self) -> dict[str, Any]:
        """Time of a token where 1, 8 and 32 answers are written at once, their prompts cached; and tokens of a step."""
        result: dict[str, Any] = {}
        out = 8 * self.plan["output_tokens"]
        for at_once in (1, 8, 32):
            if self.left() < 5:
                break
            prompts = [self.prompt(self.plan["prompt_tokens"]) for _ in range(at_once)]
            await asyncio.gather(*(self.ask(ids, 1) for ids in prompts))
            await asyncio.gather(*(self.ask(ids, 4) for ids in prompts))  # kernels of this batch
            asked = [one for _ in range(2) for one in await asyncio.gather(*(self.ask(ids, out) for ids in prompts))]
            steps = sum(one[3] - 1 for one in asked)
            result[str(at_once)] = {
                **summary([one[1] for one in asked]),
                "prompt_tokens": self.plan["prompt_tokens"],
                "output_tokens": out,
                "tokens_per_step": round(len(asked) * (out - 1) / max(1, steps), 3),
            }
        return result

    async def abort(self) -> dict[str, Any]:
        """From the abort until the engine counts one request less, while another keeps it stepping."""
        return await self._abort(64, 0.15, in_prefill=False)

    async def abort_prefill(self) -> dict[str, Any]:
        """The same while the long prompt is computed; what had come further before the abort is left out."""
        began = time.perf_counter()
        await self.ask(self.prompt(self.plan["long_tokens"]), 1)
        return await self._abort(self.plan["long_tokens"], (time.perf_counter() - began) / 3, in_prefill=True)

    async def _abort(self, tokens: int, after_s: float, *, in_prefill: bool) -> dict[str, Any]:
        waits: list[float] = []
        for at in range(20):
            if self.left() < 5:
                break
            keeper = asyncio.ensure_future(self.ask(self.prompt(64), 400))
            await asyncio.sleep(0.05)  # it is stepping
            name = f"gone{tokens}-{at}"
            gone = asyncio.ensure_future(self._until_cancelled(name, self.prompt(tokens)))
            await asyncio.sleep(after_s)
            self.counts.clear()
            began = time.perf_counter()
            counted = not (in_prefill and name in self.answering)
            await self.llm.abort(name)
            while counted and not keeper.done():
                fell = [when for when, running in self.counts if running <= 1]
                if fell:
                    waits.append(max(0.0, fell[0] - began))
                    break
                await asyncio.sleep(0.0005)
            gone.cancel()
            keeper.cancel()
            await asyncio.gather(gone, keeper, return_exceptions=True)
        return summary(waits)

    async def _until_cancelled(self, name: str, ids: list[int]) -> None:
        async for _ in self.llm.generate({"prompt_token_ids": ids}, self.sampling(400), name):
            self.answering.add(name)

    async def host_tier(self) -> dict[str, Any]:
        """A prompt whose blocks are in host memory alone, beside one that is computed."""
        size = self.plan["prompt_tokens"]
        loaded: list[float] = []
        cached = 0
        for _ in range(10):
            if self.left() < 5:
                break
            ids = self.prompt(size)
            await self.ask(ids, 1)
            await asyncio.sleep(0.2)  # the copy to the host runs behind the answer
            await self.llm.reset_prefix_cache()
            one = await self.ask(ids, 1)
            loaded.append(one[0])
            cached += one[2]
        share = round(cached / (len(loaded) * size), 3) if loaded else None
        return {**summary(loaded), "cached_share": share, "prompt_tokens": size}

    async def sustained(self) -> dict[str, Any]:
        """The highest rate of warm requests whose p99 time to first token stays below 100 ms; open loop."""
        size, out = self.plan["prompt_tokens"], self.plan["output_tokens"]
        bases = [self.prompt(size) for _ in range(16)]
        await asyncio.gather(*(self.ask(ids, 1) for ids in bases))
        await asyncio.gather(*(self.ask(ids + self.prompt(6), out) for ids in bases))  # kernels of a full batch
        best, rows = 0, []
        for rate in RATES:
            seconds = 3.0
            if self.left() < seconds + 6:
                break
            tasks: list[asyncio.Task[tuple[float, float, int, int]]] = []
            ends = time.perf_counter() + seconds
            while time.perf_counter() < ends:
                ids = self.random.choice(bases) + self.prompt(6)
                tasks.append(asyncio.ensure_future(self.ask(ids, out)))
                await asyncio.sleep(self.random.expovariate(rate))
            first = [one[0] for one in await asyncio.gather(*tasks)]
            rows.append({"rate": rate, **summary(first)})
            if quantile(first, 0.99) > 1000 * TTFT_LIMIT_S:
                break
            best = rate
        return {"requests_per_s": best if rows else None, "rows": rows}

    async def steps(self) -> dict[str, Any]:
        """Tokens that come out of one engine step: 1 without speculation."""
        prompts = self.plan.get("prompts") or [self.prompt(64) * 4 for _ in range(4)]  # something to look up
        made = steps = 0
        for ids in prompts:
            if self.left() < 5:
                break
            *_, count = await self.ask(ids, 64)
            made, steps = made + 63, steps + count - 1
        return {"tokens_per_step": round(made / steps, 3) if steps else None, "prompts": len(prompts)}

    async def run(self) -> None:
        """Writes what is measured after every part: what is cut off is the rest alone."""
        started = time.perf_counter()
        await self.start()
        await self.ask(self.prompt(32), 2)
        result: dict[str, Any] = {"start_s": round(time.perf_counter() - started, 1)}
        self.write(result)
        if self.plan.get("beside"):  # whoever began this lets it go on
            os.kill(self.plan["beside"], signal.SIGSTOP)
            await asyncio.sleep(1.0)  # kernels that were queued end
        parts = self.plan["parts"]
        for at, part in enumerate(parts):
            left = self.ends - time.monotonic()
            self.part_ends = time.monotonic() + left / (len(parts) - at)
            if left < PART_S:
                result.setdefault("parts_left_out", []).append(part)
            else:
                result[part] = await getattr(self, part)()
            self.write(result)
        self.llm.shutdown()

    def write(self, result: dict[str, Any]) -> None:
        partial = Path(self.plan["answer"] + ".part")
        partial.write_text(json.dumps(result), "utf-8")
        partial.replace(self.plan["answer"])


if __name__ == "__main__":
    asyncio.run(Bench(json.loads(sys.stdin.read())).run())
