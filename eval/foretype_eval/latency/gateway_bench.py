"""Measurements through session and assembler: cold and warm prompts, what is outside the engine, cancels."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import msgspec
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.profile import Stop

from foretype_eval.gateway import Connected
from foretype_eval.latency.options import LatencyFigures, LatencyOptions, Part, Progress
from foretype_eval.latency.requests import Stopwatch, Timed, Typing, engine_counters, warm_keys
from foretype_eval.latency.workload import Site, sites

_CHARS_PER_TOKEN: Final = 5
"""Generous: dense code has three to four, and a prompt that does not fill its budget is not counted."""

_LEAST_SHARE: Final = 0.75
_MOST_SHARE: Final = 1.1
_WARM_PER_SITE: Final = 12
_CANCELS_PER_SITE: Final = 8
_TRIES_PER_SAMPLE: Final = 4


async def measure_gateway(
    gateway: Connected, options: LatencyOptions, figures: LatencyFigures, *, progress: Progress
) -> None:
    """Fill in `cold_ttft`, `warm_ttft`, `overhead`, `assemble` and `cancel_*`."""
    counts = options.counts
    bench = _Bench(gateway, figures, options.seed)
    await bench.warm_up()
    room = gateway.profile.context_limit_tokens - gateway.profile.budgets.block_tokens
    long_tokens = min(options.long_prompt_tokens, room)
    if long_tokens < options.long_prompt_tokens:
        figures.notes.append(
            f"the model's context holds {room} prompt tokens; the 6,000 rows are made with {long_tokens}"
        )
    if Part.PROMPTS in options.parts:
        await bench.prompts(options.prompt_tokens, "", counts.cold, counts.warm, progress)
    if Part.LONG_PROMPTS in options.parts:
        await bench.prompts(long_tokens, "_6000", counts.cold_6000, counts.warm_6000, progress)
    if Part.CANCEL in options.parts:
        await bench.cancel_in_decode(options.prompt_tokens, counts.cancel_decode, progress)
        await bench.cancel_in_prefill(long_tokens, counts.cancel_prefill, progress)
    counters = await engine_counters(gateway.endpoint)
    figures.facts["engine_running_after"] = counters.get("foretype_engine_running")
    figures.facts["engine_waiting_after"] = counters.get("foretype_engine_waiting")


class _Bench:
    def __init__(self, gateway: Connected, figures: LatencyFigures, seed: int) -> None:
        self._gateway = gateway
        self._figures = figures
        self._stopwatch = Stopwatch(gateway.session)
        self._seed = seed
        self._rng = random.Random(seed)

    def _sites(self, prompt_tokens: int, salt: int) -> Iterator[Site]:
        """Sites without end: after the last file come other lines of the first, far enough away to be cold."""
        above = prompt_tokens * _CHARS_PER_TOKEN
        round_ = 0
        while True:
            yield from sites(self._seed * 1000 + salt * 100 + round_, chars_above=above, chars_below=3_000)
            round_ += 1

    def _assembler(self, prompt_tokens: int) -> Assembler:
        """The product's own for its own budget; for a longer prompt, one whose budget gives prompts of that length.

        Part of a budget is kept for text from other files, of which a bench has none.
        """
        budget = own = self._gateway.profile.budgets.prompt_tokens
        assembler = self._gateway.assembler()
        if prompt_tokens <= own:
            return assembler
        site = next(self._sites(prompt_tokens, 8))
        for budget in range(prompt_tokens, int(1.5 * prompt_tokens), prompt_tokens // 20):
            assembler = self._gateway.assembler(prompt_tokens=budget)
            call, _ = Typing(site, assembler).call()
            if (call.prompt_tokens or 0) >= prompt_tokens:
                break
        self._figures.facts[f"budget_tokens_for_{prompt_tokens}"] = budget
        return assembler

    async def warm_up(self) -> None:
        """The first requests pay for lazy loading on both sides, which is not what the rows are about."""
        assembler = self._gateway.assembler()
        for site, _ in zip(self._sites(2000, 9), range(2), strict=False):
            call, assemble_ms = Typing(site, assembler).call()
            await self._stopwatch.timed(call, assemble_ms, cancel_at_delta=1)

    async def prompts(self, prompt_tokens: int, suffix: str, cold: int, warm: int, progress: Progress) -> None:
        """Each site first cold, then with its line typed a few characters at a time on what is now warm."""
        figures = self._figures
        assembler = self._assembler(prompt_tokens)
        samples = figures.samples
        tokens: list[int] = []
        for tried, site in enumerate(self._sites(prompt_tokens, 1 if suffix else 0)):
            cold_left = cold - len(samples[f"cold_ttft{suffix}"])
            warm_left = warm - len(samples[f"warm_ttft{suffix}"])
            if (cold_left <= 0 and warm_left <= 0) or tried > _TRIES_PER_SAMPLE * (cold + warm):
                break
            typing = Typing(site, assembler)
            typing.type(self._rng.randint(4, 8) + len(site.typed) - len(site.typed.lstrip()))
            call, assemble_ms = typing.call()
            length = call.prompt_tokens or 0
            if not _LEAST_SHARE * prompt_tokens <= length <= _MOST_SHARE * prompt_tokens:
                figures.count(f"other_length{suffix}")
                continue
            tokens.append(length)
            timed = await self._stopwatch.timed(call, assemble_ms, cancel_at_delta=1)
            if timed.ttft_ms is not None and cold_left > 0:
                figures.add(f"cold_ttft{suffix}", timed.ttft_ms)
                figures.count(f"cold_cached_tokens{suffix}", timed.done.usage.cached_tokens)
                figures.count(f"cold_prompt_tokens{suffix}", timed.done.usage.prompt_tokens)
            for step in list(warm_keys(typing.left))[: min(_WARM_PER_SITE, max(0, warm_left))]:
                typing.type(step)
                self._warm(await self._first_delta(typing), suffix)
            progress(f"prompts{suffix}", len(samples[f"warm_ttft{suffix}"]), warm)
        if tokens:
            figures.facts[f"prompt_tokens{suffix}"] = {"min": min(tokens), "max": max(tokens)}

    async def _first_delta(self, typing: Typing) -> Timed:
        call, assemble_ms = typing.call()
        return await self._stopwatch.timed(call, assemble_ms, cancel_at_delta=1)

    def _warm(self, timed: Timed, suffix: str) -> None:
        figures = self._figures
        if timed.ttft_ms is None:
            figures.count(
                "ended_without_text"
            )  # the model said that nothing is missing; there is no first token to time
            return
        figures.add(f"warm_ttft{suffix}", timed.ttft_ms)
        figures.add(f"overhead{suffix}", max(0.0, timed.ttft_ms - timed.engine_ms))
        figures.add(f"engine{suffix}", timed.engine_ms)
        figures.add(f"assemble{suffix}", timed.assemble_ms)
        figures.count(f"warm_cached_tokens{suffix}", timed.done.usage.cached_tokens)
        figures.count(f"warm_prompt_tokens{suffix}", timed.done.usage.prompt_tokens)

    async def cancel_in_decode(self, prompt_tokens: int, wanted: int, progress: Progress) -> None:
        """Cancel after some tokens of a long generation. The request ends when the engine's slot is free."""
        assembler = self._assembler(prompt_tokens)
        samples = self._figures.samples["cancel_decode"]
        for tried, site in enumerate(self._sites(prompt_tokens, 2)):
            if len(samples) >= wanted or tried > _TRIES_PER_SAMPLE * wanted:
                break
            call, _ = Typing(site, assembler).call(block=True, max_tokens=256, stop=Stop())
            for number in range(_CANCELS_PER_SITE):
                again = msgspec.structs.replace(call, id=f"{call.id}-{number}")
                timed = await self._stopwatch.timed(again, cancel_at_delta=self._rng.randint(1, 4))
                self._cancelled("cancel_decode", timed)
                if timed.cancel_ms is None:
                    break  # too short a generation here; another place has a longer one
            progress("cancel decode", len(samples), wanted)

    async def cancel_in_prefill(self, prompt_tokens: int, wanted: int, progress: Progress) -> None:
        """Cancel while a cold prompt is still being computed, at a random moment."""
        assembler = self._assembler(prompt_tokens)
        samples = self._figures.samples["cancel_prefill"]
        cold_ms = self._figures.row("cold_ttft_6000")["p50"] or await self._cold_ms(prompt_tokens, assembler)
        for tried, site in enumerate(self._sites(prompt_tokens, 3)):
            if len(samples) >= wanted or tried > _TRIES_PER_SAMPLE * wanted:
                break
            call, _ = Typing(site, assembler).call()
            after_s = self._rng.uniform(0.1, 0.7) * cold_ms / 1000
            timed = await self._stopwatch.timed(call, cancel_after_s=after_s)
            if timed.deltas:
                self._figures.count("cancelled_too_late")
            else:
                self._cancelled("cancel_prefill", timed)
            progress("cancel prefill", len(samples), wanted)

    async def _cold_ms(self, prompt_tokens: int, assembler: Assembler) -> float:
        """How long a cold prompt takes here, where the cold rows were not measured before."""
        call, assemble_ms = Typing(next(self._sites(prompt_tokens, 4)), assembler).call()
        timed = await self._stopwatch.timed(call, assemble_ms, cancel_at_delta=1)
        return timed.engine_ms

    def _cancelled(self, name: str, timed: Timed) -> None:
        if timed.cancel_ms is None:
            self._figures.count("ended_before_the_cancel")
            return
        self._figures.add(name, timed.cancel_ms)
        self._figures.count(f"{name}_tokens_after", timed.done.usage.tokens_after_cancel)
