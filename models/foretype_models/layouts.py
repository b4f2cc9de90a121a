"""Do the fast layouts cost quality, does context help, does Q8_0 hurt? The same held-out cuts, several prompts, paired.

A next line counts as exact when every one of its tokens, the end-of-middle token included, is the greedy choice behind the
tokens before it: that is what greedy generation would write, at the price of one forward pass. A cut's figures are one line
of a JSONL file, so that an interrupted measurement goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretype_models.cases import Case, Encode, draw_cases, prompt
from foretype_models.data import Store
from foretype_models.tokenizer import SPECIAL_IDS

LAYOUTS = ("psm_classic", "psm_line_last", "psm_growing")
CONTEXT = "psm_line_last+context"
VARIANTS = (*LAYOUTS, CONTEXT)
MARGIN = -0.01
"""Non-inferior: at most one point worse, with 95 % confidence."""


def context_of(case: Case, store: Store, encode: Encode, budget: int) -> list[int]:
    """Other files of the repository, nearest in path order first, as training put them in front."""
    files = range(*store.repository_range[case.repo])
    here = next(number for number in files if store.index[number][1] == case.path)
    ids = [SPECIAL_IDS["<|repo_name|>"], *encode(case.repo + "\n")]
    for other in sorted(
        (number for number in files if number != here), key=lambda number: (abs(number - here), number)
    ):
        header = [SPECIAL_IDS["<|file_sep|>"], *encode(store.index[other][1] + "\n")]
        room = min(budget // 2, budget - len(ids)) - len(header)
        if room < 32:
            break
        ids += header + encode(store.slice(other, 0, 4 * room))[:room]
    return ids


def exact(model: Any, ids: Sequence[int], answer: Sequence[int]) -> bool:
    """Whether greedy decoding would write exactly ``answer`` behind ``ids``."""
    import torch

    device = model.model.embed_tokens.weight.device
    with torch.no_grad():
        hidden = model.model(
            torch.tensor([[*ids, *answer[:-1]]], device=device), *_tables(model, len(ids) + len(answer) - 1)
        )
        # Logits where the answer is told, not over the whole prompt: the vocabulary is most of the work.
        said = torch.nn.functional.linear(hidden[0, len(ids) - 1 :], model.model.embed_tokens.weight).argmax(-1)
    return said.tolist() == list(answer)


def _tables(model: Any, length: int) -> tuple[Any, Any]:
    return model.cosine[:length], model.sine[:length]


def run(
    models: Mapping[str, Any], store: Store, encode: Encode, cuts: int, out: Path, budget: int = 512
) -> Iterator[int]:
    """Measures ``cuts`` next-line cuts with every model and variant, appending to ``out``; yields how many are done."""
    done = len(read(out))
    cases = [case for case in draw_cases(store, cuts, seed=41) if case.kind == "next_line"]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as stream:
        for number, case in enumerate(cases[done:], start=done + 1):
            answer = [*encode(case.answer), SPECIAL_IDS["<|end_of_middle|>"]]
            line: dict[str, Any] = {"repo": case.repo, "path": case.path, "at": case.hole.start}
            for variant in VARIANTS:
                context = context_of(case, store, encode, budget // 2) if variant == CONTEXT else []
                room = budget + len(context) - budget // 2 if context else budget
                ids = prompt(case, variant.removesuffix("+context"), encode, room, context)
                for name, model in models.items():
                    line[f"{name}/{variant}"] = exact(model, ids, answer)
            stream.write(json.dumps(line) + "\n")
            stream.flush()
            yield number


def read(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole; a last one that was cut off is dropped from the file, too."""
    if not path.exists():
        return []
    lines: list[dict[str, Any]] = []
    for text in path.read_text("utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def bounds(
    differences: Mapping[str, Sequence[float]], draws: int = 10_000, seed: int = 1
) -> tuple[float, float, float]:
    """Mean difference with its 95 % interval, by bootstrap over clusters.

    Args:
        differences: per repository, the paired difference of each of its cuts.
    """
    sums = np.array([sum(values) for values in differences.values()], dtype=np.float64)
    sizes = np.array([len(values) for values in differences.values()], dtype=np.float64)
    chosen = np.random.default_rng(seed).integers(0, len(sums), (draws, len(sums)))
    means = sums[chosen].sum(1) / sizes[chosen].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(sums.sum() / sizes.sum()), float(low), float(high)


def compare(lines: Sequence[Mapping[str, Any]], one: str, other: str) -> dict[str, float]:
    """``one`` minus ``other`` over all cuts."""
    differences: dict[str, list[float]] = {}
    for line in lines:
        differences.setdefault(str(line["repo"]), []).append(float(line[one]) - float(line[other]))
    mean, low, high = bounds(differences)
    return {"difference": mean, "low_95": low, "high_95": high}


def summarise(lines: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """What the card prints: rates, and the comparisons that decide."""
    shipped = names[0]
    rates = {key: sum(bool(line[key]) for line in lines) / len(lines) for key in lines[0] if "/" in key}
    result: dict[str, Any] = {
        "cuts": len(lines),
        "repositories": len({line["repo"] for line in lines}),
        "margin": MARGIN,
        "exact": rates,
        "against_classic": {
            layout: compare(lines, f"{shipped}/{layout}", f"{shipped}/psm_classic") for layout in LAYOUTS[1:]
        },
        "context": compare(lines, f"{shipped}/{CONTEXT}", f"{shipped}/psm_line_last"),
        "beside": {name: compare(lines, f"{shipped}/psm_line_last", f"{name}/psm_line_last") for name in names[1:]},
    }
    for found in result["against_classic"].values():
        found["non_inferior"] = found["low_95"] >= MARGIN
    result["context"]["helps"] = result["context"]["low_95"] > 0
    return result
