"""What a draft is worth: tokens per step of its target on held-out code, and the speed that comes of it.

With greedy decoding a draft's guess is taken exactly where it is what the target says, so the acceptance follows from the
target's own continuation and *one* pass of the draft over it: step by step, count how many guesses in a row agree.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretype_lab.quality.evaluate import STOPS

PROMPT_TOKENS = 512
NEW_TOKENS = 48
LOOKUP_NGRAM = 3


def tokens_per_step(agrees: Sequence[bool], k: int) -> float:
    """Tokens that one target step yields on average: the guesses taken, and the target's own next token.

    Args:
        agrees: per position of the continuation, whether the draft says there what the target said.
        k: guesses per step.
    """
    at = steps = 0
    while at < len(agrees):
        taken = 0
        while taken < k and at + taken < len(agrees) and agrees[at + taken]:
            taken += 1
        at += taken + 1
        steps += 1
    # The last step's own token may stand beyond the continuation: count what is there.
    return len(agrees) / steps if steps else 0.0


def lookup_agrees(prompt: Sequence[int], continuation: Sequence[int], ngram: int, k: int) -> list[bool]:
    """What prompt lookup would guess, as :func:`tokens_per_step` wants it: copied from after the last equal n-gram."""
    whole = [*prompt, *continuation]
    agrees: list[bool] = []
    at = len(prompt)
    while at < len(whole):
        guess = _lookup(whole[:at], ngram, k)
        taken = 0
        while taken < len(guess) and at + taken < len(whole) and guess[taken] == whole[at + taken]:
            taken += 1
        # As many agreements as were taken, then one position where the target had to say it itself.
        agrees += [True] * taken + [False]
        at += taken + 1
    return agrees[: len(continuation)]


def _lookup(known: Sequence[int], ngram: int, k: int) -> Sequence[int]:
    for size in range(ngram, 0, -1):
        tail = list(known[-size:])
        for start in range(len(known) - size - 1, -1, -1):
            if list(known[start : start + size]) == tail:
                return known[start + size : start + size + k]
    return []


def acceptance(
    draft: Path, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], k: int
) -> dict[str, float]:
    """Tokens per target step of a draft, and of prompt lookup beside it, at ``k`` guesses."""
    import torch

    from foretype_lab.training.distill import open_model

    model = open_model(draft)
    agrees: list[list[bool]] = []
    for prompt, continuation in zip(prompts, continuations, strict=True):
        ids = [*prompt, *continuation]
        with torch.no_grad():
            said = model(torch.tensor([ids]))[0, len(prompt) - 1 : -1].argmax(-1).tolist()
        agrees.append([one == other for one, other in zip(said, continuation, strict=True)])
    lookup = [lookup_agrees(p, c, LOOKUP_NGRAM, k) for p, c in zip(prompts, continuations, strict=True)]

    def per_step(all_agrees: list[list[bool]]) -> float:
        tokens = sum(map(len, all_agrees))
        return tokens / sum(len(one) / tokens_per_step(one, k) for one in all_agrees if one)

    positions = [agreed for one in agrees for agreed in one]
    return {
        "k": k,
        "prompts": len(prompts),
        "tokens": len(positions),
        "agreement": sum(positions) / max(1, len(positions)),
        "tokens_per_step": per_step(agrees),
        "prompt_lookup_tokens_per_step": per_step(lookup),
    }


class Decoder:
    """One pipeline of the embedded engine: plain, with a draft, or with prompt lookup; greedy, one request at a time."""

    def __init__(self, target: Path, *, draft: Path | None = None, lookup: bool = False, k: int = 4) -> None:
        import openvino_genai as genai

        self._genai, self._k = genai, k if draft is not None or lookup else 0
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_batched_tokens, scheduler.enable_prefix_caching = 1, 512, True
        options: dict[str, Any] = {"prompt_lookup": True} if lookup else {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if draft is not None:
            # A draft must come in the engine's own format; writing that is a by-product of opening the GGUF file once.
            self._folder = tempfile.TemporaryDirectory()
            copy = Path(self._folder.name) / draft.name
            shutil.copyfile(draft, copy)
            genai.LLMPipeline(str(copy), "CPU", enable_save_ov_model=True)
            options = {"draft_model": genai.draft_model(self._folder.name, "CPU")}
        self._pipeline = genai.ContinuousBatchingPipeline(str(target), scheduler, "CPU", options)

    def __call__(self, ids: Sequence[int], new_tokens: int = NEW_TOKENS) -> tuple[list[int], float]:
        """The continuation, and milliseconds per token after the first one came."""
        import openvino

        options = self._genai.GenerationConfig()
        options.max_new_tokens, options.do_sample = new_tokens, False
        options.eos_token_id, options.stop_token_ids = STOPS[1], set(STOPS)
        if self._k:
            options.num_assistant_tokens = self._k
            options.max_ngram_size = LOOKUP_NGRAM
        handle = self._pipeline.add_request(0, openvino.Tensor(np.array([ids], dtype=np.int64)), options)
        found: list[int] = []
        first, before = 0.0, 0
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            while handle.can_read():
                for part in handle.read().values():
                    found += list(part.generated_ids)
            if found and not first:
                first, before = time.perf_counter(), len(found)
        rest = len(found) - before
        return found, 1000 * (time.perf_counter() - first) / rest if rest else 0.0


def measure(target: Path, draft: Path, prompts: Sequence[Sequence[int]], k: int = 4) -> dict[str, Any]:
    """Acceptance and milliseconds per token of the three ways, on the same prompts.

    Medians over prompts; each prompt runs through all three before the next, so that other work on the machine meets all
    alike. The ways have to say the same: with greedy decoding a draft changes the speed and nothing else.
    """
    ways = {
        "plain": Decoder(target),
        "draft": Decoder(target, draft=draft, k=k),
        "lookup": Decoder(target, lookup=True, k=k),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    said: dict[str, list[list[int]]] = {name: [] for name in ways}
    for ids in prompts:
        for name, decode in ways.items():
            found, each_ms = decode(ids)
            times[name].append(each_ms)
            said[name].append(found)
    times = {name: [value for value in values if value] or [0.0] for name, values in times.items()}
    plain = statistics.median(times["plain"])
    return {
        "acceptance": acceptance(draft, prompts, said["plain"], k),
        "ms_per_token": {name: round(statistics.median(values), 3) for name, values in times.items()},
        "speed_up": {name: round(plain / (statistics.median(times[name]) or 1), 3) for name in ("draft", "lookup")},
        "same_output": {
            name: sum(one == other for one, other in zip(said["plain"], said[name], strict=True)) / len(prompts)
            for name in ("draft", "lookup")
        },
    }
