"""Speculation on the real engine: the same text in float32, and more than one token a step where guessing is easy."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import NamedTuple

import pytest
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.engines.vllm.options import Speculation, VllmOptions
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models.artifacts import locate
from vllm_world.model_folders import hush, write_first_two_layers, write_served

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIE = 1e-3
"""Where the two likeliest tokens differ by no more in log-probability, another order of sums may choose the other one."""

AT_ONCE = 4


class Written(NamedTuple):
    """Greedy tokens, how far the likeliest two were apart at each, and the steps of decoding."""

    tokens: list[int]
    gaps: list[float]
    steps: int


async def greedy(engine: VllmEngine, name: str, ids: list[int], most: int = 48) -> Written:
    llm, library = engine.library()
    sampling = library.sampling(max_tokens=most, temperature=0.0, detokenize=False, logprobs=2, ignore_eos=True)
    tokens: list[int] = []
    gaps: list[float] = []
    steps = -1  # the first token comes out of the prefill
    async for output in llm.generate(library.prompt(ids), sampling, name):
        [one] = output.outputs
        steps += bool(one.token_ids)
        tokens += one.token_ids
        for places in one.logprobs or ():
            best, second = sorted((place.logprob for place in places.values()), reverse=True)[:2]
            gaps.append(best - second)
    return Written(tokens, gaps, steps)


async def written(model: Path, prompts: list[list[int]], speculation: Speculation | None) -> tuple[list[Written], int]:
    """Each prompt's text, first one at a time and then several at once, and the guesses that were accepted."""
    options = VllmOptions(model=model, eager=True, dtype="float32", cache_gib=1.0, speculation=speculation)
    engine = VllmEngine(options)
    await engine.start()
    try:
        for at, ids in enumerate(prompts):
            await greedy(engine, f"warm-{at}", ids, most=1)
        alone = [await greedy(engine, f"alone-{at}", ids) for at, ids in enumerate(prompts)]
        together: list[Written] = []
        for first in range(0, len(prompts), AT_ONCE):
            several = enumerate(prompts[first : first + AT_ONCE], first)
            together += await asyncio.gather(*(greedy(engine, f"together-{at}", ids) for at, ids in several))
        return alone + together, engine.guesses().accepted
    finally:
        await engine.close()


def part_without_a_tie(base: Written, other: Written) -> bool:
    parted = [at for at, (ours, theirs) in enumerate(zip(base.tokens, other.tokens, strict=True)) if ours != theirs]
    return bool(parted) and base.gaps[parted[0]] > TIE


async def test_speculation_changes_nothing_and_gains_tokens(tmp_path: Path) -> None:
    model, draft = hush(write_served(tmp_path / "model")), hush(write_first_two_layers(tmp_path / "draft"))
    tokenizer = load_tokenizer(locate().tokenizer_path)
    lines = "".join(f"    self.value_{at % 3} = value_{at % 3}\n" for at in range(200))
    prompts = [
        list(tokenizer.encode(head + text[: 3000 + 500 * at]))[-400:]
        for at in range(4)
        for head, text in ((f"class Row{at}:\n", lines), (f"class Row{at} {{\n", lines.replace("self", "this")))
    ]
    base, _ = await written(model, prompts, None)
    # Chunks are what is counted, and a reader that was held up finds two steps in one: without guesses there is no more to say.
    assert all(one.steps <= len(one.tokens) - 1 for one in base)
    methods = [Speculation(method="ngram", tokens=4), Speculation(method="draft_model", tokens=4, model=draft)]
    if importlib.util.find_spec("arctic_inference") is not None:  # built from source: make vllm-suffix
        methods.append(Speculation(method="suffix", tokens=4))
    for method in methods:
        found, accepted = await written(model, prompts, method)
        assert accepted > 0, method
        assert not any(map(part_without_a_tie, base, found)), method
        for several in (found[: len(prompts)], found[len(prompts) :]):
            assert sum(len(one.tokens) - 1 for one in several) > sum(one.steps for one in several), method
