"""Chooses from which mean log-probability on a suggestion is shown, on held-out projects.

The profile of a gateway carries the threshold (``min_mean_logprob``); it belongs to the weights in a prompt layout, so both
ship in their entry of ``index.json``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretype_lab.quality.evaluate import NEW_TOKENS, PROMPT_TOKENS, STOPS, Generator
from foretype_lab.quality.held_out_cuts import HeldOutCut, draw_cases, prompt
from foretype_lab.training.data import Store
from foretype_lab.training.tokenizer import to_tiktoken

PRECISION = 0.4
LEAST_SHOWN = 10
NEVER = 0.0
"""No threshold is good enough. None is written then: the model is shown where the local candidate is not sure, and its card
says how weak it is, instead of a gateway that runs and stays silent without a reason that anybody can see."""


@dataclass(frozen=True)
class Choice:
    """A threshold and what it does: share of cases shown, and of those the share that is exactly right."""

    min_mean_logprob: float
    show_rate: float
    precision: float


def choose(scored: Sequence[tuple[float, bool]], precision: float = PRECISION) -> Choice:
    """The least threshold whose suggestions are right often enough.

    Args:
        scored: mean log-probability and exactness per case.
        precision: share of shown suggestions that must be right; at least ``LEAST_SHOWN`` of them make a share.
    """
    best = Choice(NEVER, 0.0, 0.0)
    right = 0
    ordered = sorted(scored, reverse=True)
    for shown, (logprob, exact) in enumerate(ordered, start=1):
        right += exact
        if shown >= LEAST_SHOWN and right / shown >= precision:
            best = Choice(round(logprob, 3), shown / len(ordered), right / shown)
    return best


def curve(scored: Sequence[tuple[float, bool]]) -> dict[str, float]:
    """Precision at show rates of 30, 50 and 70 %."""
    ordered = [exact for _, exact in sorted(scored, reverse=True)]
    return {
        f"precision_at_{percent}": sum(ordered[: max(1, len(ordered) * percent // 100)])
        / max(1, len(ordered) * percent // 100)
        for percent in (30, 50, 70)
    }


class ScoredGenerator(Generator):
    """Greedy generation with the log-probability of each token."""

    def scored(self, prompts: Sequence[list[int]]) -> list[tuple[list[int], list[float]]]:
        """Continues each prompt until a stop token (which is kept) or ``NEW_TOKENS``."""
        import openvino

        handles: list[Any] = []
        for number, ids in enumerate(prompts):
            options = self._genai.GenerationConfig()
            options.max_new_tokens, options.do_sample, options.logprobs = NEW_TOKENS, False, 1
            options.eos_token_id, options.stop_token_ids = STOPS[1], set(STOPS)
            tensor = openvino.Tensor(np.array([ids], dtype=np.int64))
            handles.append(self._pipeline.add_request(number, tensor, options))
        results: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for handle, (ids, logprobs) in zip(handles, results, strict=True):
                while handle.can_read():
                    for part in handle.read().values():
                        ids += list(part.generated_ids)
                        logprobs += list(part.generated_log_probs)
        return results


def measure(
    gguf_path: Path, tokenizer: Path, store: Store, per_kind: int, layout: str
) -> dict[str, list[tuple[float, bool]]]:
    """Mean log-probability of the first line and whether it is exactly the rest of the line, per kind of case."""
    encoding = to_tiktoken(tokenizer)
    generator = ScoredGenerator(gguf_path)
    scored: dict[str, list[tuple[float, bool]]] = {"next_line": [], "line_fill": []}
    cases: list[HeldOutCut] = draw_cases(store, per_kind, seed=29)  # not the cases that the card reports on
    for first in range(0, len(cases), 8):
        batch = cases[first : first + 8]
        prompts = [prompt(case, layout, encoding.encode_ordinary, PROMPT_TOKENS) for case in batch]
        for case, (ids, logprobs) in zip(batch, generator.scored(prompts), strict=True):
            kept = [token for token in ids if token < min(STOPS)]
            line = encoding.decode(kept).split("\n")[0]
            if line.strip():
                mean = float(np.mean(logprobs[: len(ids)]))
                scored[case.kind].append((mean, line.rstrip() == case.answer.rstrip()))
    return scored


def found(scored: dict[str, list[tuple[float, bool]]], layout: str) -> dict[str, Any]:
    """What would be chosen, and its curve: all kinds together, since each alone has too few right ones."""
    together = [pair for pairs in scored.values() for pair in pairs]
    chosen = asdict(choose(together))
    return {"layout": layout, "cases": len(together), "wanted_precision": PRECISION, **chosen, **curve(together)}


def write(
    folder: Path, scored: dict[str, list[tuple[float, bool]]], local_min_confidence: float, layout: str
) -> dict[str, Any]:
    """Puts the thresholds, and the layout that they hold in, into the default model's entry of ``index.json``.

    Returns:
        What :func:`found` says.
    """
    chosen = found(scored, layout)
    index_path = folder / "index.json"
    index = json.loads(index_path.read_text("utf-8"))
    entry = next(model for model in index["models"] if model["name"] == index["default"])
    least = chosen["min_mean_logprob"]
    entry["profile"] = {
        "layout": layout,
        "local_min_confidence": local_min_confidence,
        "min_mean_logprob": {"mid_line": least, "line": least, "block": least},
    }
    part = folder / "index.json.part"
    part.write_text(json.dumps(index, indent=1) + "\n")
    os.replace(part, index_path)
    return chosen
