"""Is speculation lossless, and what does it gain: greedy text in float32 with each method beside the same without."""

from __future__ import annotations

import gc
import importlib.util
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foretype_backend.engines.vllm import VllmEngine
from foretype_backend.engines.vllm_options import Speculation, VllmOptions
from foretype_context.tokens import load_tokenizer
from foretype_models.artifacts import locate

from foretype_eval.engine.options import EngineBenchOptions
from foretype_eval.latency.workload import sites

__all__ = ["Generated", "lossless", "measure_speculation"]

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
_PER_LANGUAGE = 24
_PROMPT_TOKENS = 400
_MAX_TOKENS = 48


class Generated(NamedTuple):
    """Greedy output: its tokens, how far the likeliest two were apart at each, the steps it took, and seconds from first to last."""

    tokens: list[int]
    gaps: list[float]
    steps: int
    decode_s: float


async def measure_speculation(options: EngineBenchOptions) -> dict[str, Any]:
    """One engine per method, one after the other, each asked for the same continuations."""
    prompts = _prompts(options)
    base: dict[str, list[Generated]] = {}
    methods: dict[str, Any] = {}
    for name in ("off", *options.methods):
        speculation = _speculation(name, options)
        if isinstance(speculation, str):
            methods[name] = {"lacking": speculation}
            continue
        made, took_s = await _continued(prompts, speculation, options)
        base = base or made
        methods[name] = {"seconds": round(took_s, 2), "languages": _compared(base, made)}
    return {
        "prompts": {language: len(some) for language, some in prompts.items()},
        "tokens_guessed_per_step": options.speculation_tokens,
        "tie_below": TIE,
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


async def _continued(
    prompts: dict[str, list[list[int]]], speculation: Speculation | None, options: EngineBenchOptions
) -> tuple[dict[str, list[Generated]], float]:
    """By language, and the seconds that all of it took."""
    engine = VllmEngine(
        VllmOptions(model=Path(options.model), eager=True, dtype="float32", cache_gib=1.0, speculation=speculation)
    )
    await engine.start()
    began = time.perf_counter()
    try:
        made = {
            language: [await _greedy(engine, f"{language}-{at}", ids) for at, ids in enumerate(some)]
            for language, some in prompts.items()
        }
        return made, time.perf_counter() - began
    finally:
        await engine.close()
        gc.collect()


def lossless(base: Sequence[int], gaps: Sequence[float], other: Sequence[int]) -> str:
    """`equal`, `tie` (they part where the likeliest two are as good as equal) or `different`."""
    for at, (ours, theirs) in enumerate(zip(base, other, strict=False)):
        if ours != theirs:
            return "tie" if gaps[at] <= TIE else "different"
    return "equal" if len(base) == len(other) else "different"


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


async def _greedy(engine: VllmEngine, name: str, ids: list[int]) -> Generated:
    llm, library = engine.library()
    sampling = library.sampling(max_tokens=_MAX_TOKENS, temperature=0.0, detokenize=False, logprobs=2, ignore_eos=True)
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


def _prompts(options: EngineBenchOptions) -> dict[str, list[list[int]]]:
    """Beginnings of real files up to a line end, per language; Python out of the standard library where no folder has any."""
    tokenizer = load_tokenizer(locate().tokenizer_path)
    rng = random.Random(options.seed)
    texts: dict[str, list[str]] = {}
    for folder in options.texts:
        for path in sorted(Path(folder).rglob("*")):
            language = _LANGUAGES.get(path.suffix)
            if language is not None and path.is_file() and 2_000 < path.stat().st_size < 200_000:
                texts.setdefault(language, []).append(path.read_text("utf-8", "replace"))
    if "python" not in texts:
        found = sites(options.seed, chars_above=2_000, chars_below=1_000)
        texts["python"] = [site.text for site, _ in zip(found, range(_PER_LANGUAGE), strict=False)]
    prompts: dict[str, list[list[int]]] = {}
    for language, some in sorted(texts.items()):
        rng.shuffle(some)
        for text in some[: min(_PER_LANGUAGE, options.samples)]:
            at = text.rfind("\n", 0, rng.randrange(1_500, max(1_600, min(len(text), 8_000)))) + 1
            ids = tokenizer.encode(text[:at])[-_PROMPT_TOKENS:]
            prompts.setdefault(language, []).append(list(ids))
    return prompts
