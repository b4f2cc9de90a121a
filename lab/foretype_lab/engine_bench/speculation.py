"""Is speculation lossless, and what does it gain: greedy text in float32 with each method beside the same without."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import itertools
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foretype_backend.engines.draft_acceptance import Guesses
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.engines.vllm.options import Speculation, VllmOptions
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_eval.latency.workload import sites
from foretype_models.artifacts import locate

from foretype_lab.engine_bench.edit_prompts import EditCase, edit_cases, guessed_steps
from foretype_lab.engine_bench.options import EngineBenchOptions

__all__ = ["Generated", "SpeculationRun", "figures", "lossless", "measure_speculation"]

TIE = 1e-3
"""Where the two likeliest tokens differ by no more in log-probability, another order of sums may choose the other one."""

_LANGUAGES = {
    ".py": "python",
    ".js": "javascript",
    ".ts": "typescript",
    ".go": "go",
    ".rs": "rust",
    ".java": "java",
    ".c": "c",
}
_PROMPT_TOKENS = 400
_MAX_TOKENS = 48


class Generated(NamedTuple):
    """Greedy output: its tokens, how far the likeliest two were apart at each, the steps it took, and seconds from first to last."""

    tokens: list[int]
    gaps: list[float]
    steps: int
    decode_s: float


class SpeculationRun(NamedTuple):
    """Continuations by language, the seconds that all of them took from warm prompts, and what was guessed for them."""

    made: dict[str, list[Generated]]
    seconds: float
    guesses: Guesses

    @property
    def tokens_per_s(self) -> float:
        return sum(len(one.tokens) for some in self.made.values() for one in some) / self.seconds

    @property
    def steps(self) -> int:
        """Of decoding; the first token comes out of the prefill."""
        return sum(one.steps - 1 for some in self.made.values() for one in some)

    @property
    def step_s(self) -> float:
        return sum(one.decode_s for some in self.made.values() for one in some) / self.steps


Prompts = dict[str, list[list[int]]]
"""By language."""


async def measure_speculation(options: EngineBenchOptions) -> dict[str, Any]:
    """One engine per method, one after the other, each asked for the same continuations: at each batch size its own."""
    texts = _texts(options)
    prompts = dict(
        zip(options.batches, _edits(texts, options) if options.edits else _prompts(texts, options), strict=True)
    )
    base: dict[int, SpeculationRun] = {}
    methods: dict[str, Any] = {}
    for name in ("off", *options.methods):
        speculation = _speculation(name, options)
        if isinstance(speculation, str):
            methods[name] = {"lacking": speculation}
            continue
        began = time.perf_counter()
        runs = await _runs(prompts, speculation, options)
        base = base or runs
        methods[name] = {
            "seconds": round(time.perf_counter() - began, 2),
            "batches": {str(batch): figures(base[batch], run) for batch, run in runs.items()},
        }
    return {
        "prompts": {
            str(batch): {language: len(some) for language, some in of.items()} for batch, of in prompts.items()
        },
        "tokens_guessed_per_step": options.speculation_tokens,
        "tie_below": TIE,
        **({"right_answers": _right_answers(texts, options)} if options.edits else {}),
        "methods": methods,
    }


def _speculation(method: str, options: EngineBenchOptions) -> Speculation | str | None:
    """What the engine is told; words say why the method cannot be measured here."""
    if method == "off":
        return None
    if method == "draft_model" and options.draft is None:
        return "no draft was named"
    if method == "suffix" and importlib.util.find_spec("arctic_inference") is None:
        return "arctic-inference is not installed; make vllm-suffix"
    model = Path(options.draft) if method == "draft_model" and options.draft is not None else None
    return Speculation(method=method, tokens=options.speculation_tokens, model=model)


async def _runs(
    prompts: dict[int, Prompts], speculation: Speculation | None, options: EngineBenchOptions
) -> dict[int, SpeculationRun]:
    """By batch size."""
    engine = VllmEngine(
        VllmOptions(model=Path(options.model), eager=True, dtype="float32", cache_gib=1.0, speculation=speculation)
    )
    await engine.start()
    try:
        return {batch: await _run(engine, batch, of) for batch, of in prompts.items()}
    finally:
        await engine.close()
        gc.collect()


async def _run(engine: VllmEngine, batch: int, prompts: Prompts) -> SpeculationRun:
    """All continuations of a batch size, so many at once for as long as there are enough; prompts are in the cache before."""
    made: dict[str, list[Generated]] = {}
    decode_s = 0.0
    before = engine.guesses()
    for language, some in prompts.items():
        for at, ids in enumerate(some):
            await _greedy(engine, f"warm-{batch}-{language}-{at}", ids, max_tokens=1)
        turn = asyncio.Semaphore(batch)

        async def one(name: str, ids: list[int], turn: asyncio.Semaphore = turn) -> Generated:
            async with turn:
                return await _greedy(engine, name, ids)

        began = time.perf_counter()
        made[language] = await asyncio.gather(*(one(f"{batch}-{language}-{at}", ids) for at, ids in enumerate(some)))
        decode_s += time.perf_counter() - began
    after = engine.guesses()
    return SpeculationRun(made, decode_s, Guesses(after.made - before.made, after.accepted - before.accepted))


def lossless(base: Sequence[int], gaps: Sequence[float], other: Sequence[int]) -> str:
    """`equal`, `tie` (they part where the likeliest two are as good as equal) or `different`."""
    for at, (ours, theirs) in enumerate(zip(base, other, strict=False)):
        if ours != theirs:
            return "tie" if gaps[at] <= TIE else "different"
    return "equal" if len(base) == len(other) else "different"


def figures(base: SpeculationRun, found: SpeculationRun) -> dict[str, Any]:
    """A batch size beside the same without speculation.

    `break_even_share` is the share of the guesses that must be accepted for a token to take the time it takes without: a step that
    takes so much longer has to give so many more tokens.
    """
    made, accepted = found.guesses
    slower = found.step_s / base.step_s
    return {
        "tokens_per_s": round(found.tokens_per_s, 1),
        "times_off": round(found.tokens_per_s / base.tokens_per_s, 3),
        "step_times_off": round(slower, 3),
        "guessed_tokens": made,
        "guesses_per_step": round(made / found.steps, 3),
        "accepted_share": round(accepted / made, 3) if made else None,
        "break_even_share": round(max(0.0, slower - 1) * found.steps / made, 3) if made else None,
        "languages": _compared(base.made, found.made),
    }


def _compared(base: dict[str, list[Generated]], found: dict[str, list[Generated]]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for language, outputs in found.items():
        verdicts = [
            lossless(ours.tokens, ours.gaps, theirs.tokens)
            for ours, theirs in zip(base[language], outputs, strict=True)
        ]
        # The first token comes out of the prefill; the others are the decode steps'.
        steps = sum(one.steps - 1 for one in outputs)
        tokens = sum(len(one.tokens) - 1 for one in outputs)
        decode_s = sum(one.decode_s for one in outputs)
        rows[language] = {
            "tokens_per_step": round(tokens / steps, 3) if steps else None,
            "accepted_per_step": round(tokens / steps - 1, 3) if steps else None,
            "step_ms": round(1000 * decode_s / steps, 2) if steps else None,
            "token_ms": round(1000 * decode_s / tokens, 2) if tokens else None,
            **{verdict: verdicts.count(verdict) for verdict in ("equal", "tie", "different")},
        }
    return rows


async def _greedy(engine: VllmEngine, name: str, ids: list[int], *, max_tokens: int = _MAX_TOKENS) -> Generated:
    llm, library = engine.library()
    sampling = library.sampling(max_tokens=max_tokens, temperature=0.0, detokenize=False, logprobs=2, ignore_eos=True)
    tokens: list[int] = []
    gaps: list[float] = []
    steps = 0
    first_s = last_s = 0.0
    async for output in llm.generate(library.prompt(ids), sampling, name):
        [one] = output.outputs
        if not one.token_ids:
            continue
        last_s = time.perf_counter()
        first_s = first_s or last_s
        steps += 1
        tokens += one.token_ids
        for places in one.logprobs:
            best = sorted((place.logprob for place in places.values()), reverse=True)
            gaps.append(best[0] - best[1] if len(best) > 1 else float("inf"))
    return Generated(tokens, gaps, steps, last_s - first_s)


def _texts(options: EngineBenchOptions) -> dict[str, list[str]]:
    """Real files by language, in a random order; Python out of the standard library where no folder has any."""
    texts: dict[str, list[str]] = {}
    for folder in options.texts:
        for path in sorted(Path(folder).rglob("*")):
            language = _LANGUAGES.get(path.suffix)
            if language is not None and path.is_file() and 2_000 < path.stat().st_size < 200_000:
                texts.setdefault(language, []).append(path.read_text("utf-8", "replace"))
    if "python" not in texts:
        found = sites(options.seed, chars_above=2_000, chars_below=1_000)
        texts["python"] = [site.text for site, _ in zip(found, range(2 * sum(_counts(options))), strict=False)]
    rng = random.Random(options.seed)
    for _, some in sorted(texts.items()):
        rng.shuffle(some)
    return texts


def _counts(options: EngineBenchOptions) -> list[int]:
    """Prompts of each language for each batch size: twice the batch at least, so that it is full most of the time."""
    return [max(options.samples, 2 * batch) if batch > 1 else options.samples for batch in options.batches]


def _prompts(texts: dict[str, list[str]], options: EngineBenchOptions) -> list[Prompts]:
    """For each batch size, beginnings of files up to a line end, per language; no prompt twice."""
    tokenizer = load_tokenizer(locate().tokenizer_path)
    rng = random.Random(options.seed)
    counts = _counts(options)
    prompts: list[Prompts] = [{} for _ in counts]
    for language, some in sorted(texts.items()):
        source = itertools.cycle(some)  # a file may be cut in two places
        for into, count in zip(prompts, counts, strict=True):
            into[language] = [_cut(next(source), rng, tokenizer) for _ in range(count)]
    return prompts


def _cases(texts: dict[str, list[str]], options: EngineBenchOptions) -> dict[str, list[EditCase]]:
    tokenizer = load_tokenizer(locate().tokenizer_path)
    rng = random.Random(options.seed)
    return {language: list(edit_cases(some, tokenizer, rng)) for language, some in sorted(texts.items())}


def _edits(texts: dict[str, list[str]], options: EngineBenchOptions) -> list[Prompts]:
    """For each batch size, questions about the next edit."""
    prompts: list[Prompts] = [{} for _ in options.batches]
    for language, some in _cases(texts, options).items():
        source = itertools.cycle(some)
        for into, count in zip(prompts, _counts(options), strict=True):
            into[language] = [next(source).prompt for _ in range(count)]
    return prompts


def _right_answers(texts: dict[str, list[str]], options: EngineBenchOptions) -> dict[str, Any]:
    """What an n-gram is worth to a model that answers what is right, by counting: tokens and steps."""
    given = Speculation(method="ngram", tokens=options.speculation_tokens)
    rows: dict[str, Any] = {}
    for language, some in _cases(texts, options).items():
        steps = [
            guessed_steps(one, tokens=given.tokens, lookup_min=given.lookup_min, lookup_max=given.lookup_max)
            for one in some[: sum(_counts(options))]
        ]
        tokens = sum(len(one.answer) for one in some[: len(steps)])
        rows[language] = {"answers": len(steps), "tokens": tokens, "tokens_per_step": round(tokens / sum(steps), 3)}
    return rows


def _cut(text: str, rng: random.Random, tokenizer: Tokenizer) -> list[int]:
    """A beginning of a file, from which the end is kept."""
    at = text.rfind("\n", 0, rng.randrange(1_500, max(1_600, min(len(text), 8_000)))) + 1
    return list(tokenizer.encode(text[:at])[-_PROMPT_TOKENS:])
