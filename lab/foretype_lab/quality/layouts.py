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

from foretype_lab.quality.held_out_cuts import Encode, HeldOutCut, draw_cases, prompt
from foretype_lab.training.data import Store
from foretype_lab.training.tokenizer import SPECIAL_IDS

LAYOUTS = ("psm_classic", "psm_line_last", "psm_growing", "spm")
CONTEXT = "+context"
MARGIN = -0.01
"""Non-inferior: at most one point worse, with 95 % confidence."""


def variants(layout: str) -> tuple[str, ...]:
    """What is measured of a model that is served in ``layout``: every layout, and that one behind other files."""
    return (*LAYOUTS, layout + CONTEXT)


def context_of(case: HeldOutCut, store: Store, encode: Encode, budget: int) -> list[int]:
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
    models: Mapping[str, Any],
    store: Store,
    encode: Encode,
    cuts: int,
    out: Path,
    measured: Sequence[str],
    budget: int = 512,
) -> Iterator[int]:
    """Measures ``cuts`` next-line cuts with every model and variant, appending to ``out``; yields how many are done.

    What ``out`` holds already is not measured again: a variant that is new adds its own lines.
    """
    known = {_key(line): line for line in read(out)}
    cases = [case for case in draw_cases(store, cuts, seed=41) if case.kind == "next_line"]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as stream:
        for number, case in enumerate(cases, start=1):
            answer = [*encode(case.answer), SPECIAL_IDS["<|end_of_middle|>"]]
            line: dict[str, Any] = {"repo": case.repo, "path": case.path, "at": case.hole.start}
            have = known.get(_key(line), {})
            for variant in measured:
                missing = [name for name in models if f"{name}/{variant}" not in have]
                if not missing:
                    continue
                context = context_of(case, store, encode, budget // 2) if variant.endswith(CONTEXT) else []
                room = budget + len(context) - budget // 2 if context else budget
                ids = prompt(case, variant.removesuffix(CONTEXT), encode, room, context)
                for name in missing:
                    line[f"{name}/{variant}"] = exact(models[name], ids, answer)
            if any("/" in key for key in line):
                stream.write(json.dumps(line) + "\n")
                stream.flush()
                yield number


def _key(line: Mapping[str, Any]) -> tuple[str, str, int]:
    return line["repo"], line["path"], line["at"]


def read(path: Path) -> list[dict[str, Any]]:
    """The cuts, each once with all that was measured of it; a last line that was cut off is dropped from the file, too."""
    if not path.exists():
        return []
    lines: list[dict[str, Any]] = []
    for text in path.read_text("utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cuts: dict[tuple[str, str, int], dict[str, Any]] = {}
    for line in lines:
        cuts.setdefault(_key(line), {}).update(line)
    return list(cuts.values())


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
    """``one`` minus ``other`` over all cuts where both were measured.

    Raises:
        ValueError: there is none; or all are of one repository, whose interval would have no width and prove anything.
    """
    differences: dict[str, list[float]] = {}
    for line in lines:
        if one in line and other in line:
            differences.setdefault(str(line["repo"]), []).append(float(line[one]) - float(line[other]))
    if not differences:
        raise ValueError(f"no cut was measured in both {one} and {other}; measure more")
    if len(differences) < 2:
        raise ValueError(f"{one} and {other} were measured in one repository only; an interval needs two, measure more")
    mean, low, high = bounds(differences)
    return {"cuts": sum(map(len, differences.values())), "difference": mean, "low_95": low, "high_95": high}


def summarise(lines: Sequence[Mapping[str, Any]], names: Sequence[str], layout: str) -> dict[str, Any]:
    """What the card prints: rates, and the comparisons that decide. Each is over the cuts where its parts were measured.

    Args:
        names: of the models, the shipped one first.
        layout: that the shipped one is served in.

    Raises:
        ValueError: nothing was measured of a variant.
    """
    shipped, served = names[0], f"{names[0]}/{layout}"
    rates: dict[str, dict[str, float]] = {}
    for key in (f"{name}/{variant}" for name in names for variant in variants(layout)):
        told = [bool(line[key]) for line in lines if key in line]
        rates[key] = {"cuts": len(told), "exact": sum(told) / max(1, len(told))}
    result: dict[str, Any] = {
        "cuts": len(lines),
        "repositories": len({line["repo"] for line in lines}),
        "margin": MARGIN,
        "layout": layout,
        "rates": rates,
        "against_classic": {
            other: compare(lines, f"{shipped}/{other}", f"{shipped}/psm_classic") for other in LAYOUTS[1:]
        },
        "served_against": {
            other: compare(lines, served, f"{shipped}/{other}")
            for other in LAYOUTS
            if other not in (layout, "psm_classic")
        },
        "context": compare(lines, served + CONTEXT, served),
        "beside": {name: compare(lines, served, f"{name}/{layout}") for name in names[1:]},
    }
    for found in result["against_classic"].values():
        found["non_inferior"] = found["low_95"] >= MARGIN
    result["context"]["helps"] = result["context"]["low_95"] > 0
    return result
