"""`python -m foretype_lab.together WEIGHTS --fit REPO … --report REPO …`: does the network make the adaptive model's texts surer?

Rules are fitted on one set of repositories and reported on another: keys saved by each rule on the same lines, paired with the
adaptive candidate alone. What ships is decided by that: never less saved than the adaptive candidate alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from foretype_client.adaptive.candidates import CopyLine, LocalModel
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.table import shipped_table
from foretype_context.terminal import say_json
from foretype_eval.console import fail
from foretype_eval.errors import RepositoryError
from foretype_models import artifacts

from foretype_lab.adaptive.fit import commits_with_files
from foretype_lab.adaptive.typed import Counts, report, typed
from foretype_lab.errors import ExportError
from foretype_lab.together.network_says import NetworkScorer
from foretype_lab.together.places import Places, Ruled, Told, told_of
from foretype_lab.together.rules import RULES, Rule, fit_rule, log_loss

__all__ = ["app", "main", "paired"]

app = typer.Typer()
_RESAMPLES: Final = 4000


def paired(one: list[Counts], other: list[Counts], *, seed: int = 0) -> list[float]:
    """Keys that `one` saves beyond `other`, as a share of all keys, with its 95 % interval; commits resampled."""
    first, second = np.array(one, np.float64), np.array(other, np.float64)
    picks = np.random.default_rng(seed).integers(0, len(first), (_RESAMPLES, len(first)))

    def more(rows: Any) -> Any:
        keys = first[rows, 0].sum(-1)
        return (second[rows, 1].sum(-1) - first[rows, 1].sum(-1)) / np.maximum(keys, 1)

    exact = more(np.arange(len(first)))
    return [round(float(value), 4) for value in (exact, *np.percentile(more(picks), [2.5, 97.5]))]


@app.command()
def main(
    weights: Annotated[Path, typer.Argument(help="GGUF file of ours, or a checkpoint.")],
    fit: Annotated[list[Path], typer.Option(help="Git repository that rules are fitted on.")],
    on: Annotated[list[Path], typer.Option("--report", help="Git repository that they are reported on.")],
    layout: Annotated[str, typer.Option(help="Of the network's prompt.")] = "psm_growing",
    prompt_tokens: Annotated[int, typer.Option(min=64, help="Of it, at most.")] = 512,
    commits: Annotated[int, typer.Option(min=1, help="Newest commits of each.")] = 15,
    keys: Annotated[int, typer.Option(min=10, help="Keys typed of each commit, about.")] = 100,
) -> None:
    """Fit and report rules that join the adaptive model and the network."""
    from foretype_lab.training.tokenizer import to_tiktoken

    try:
        encode = to_tiktoken(artifacts.locate().tokenizer_path).encode_ordinary
        score = NetworkScorer(weights, encode, layout=layout, prompt_tokens=prompt_tokens)
        table = shipped_table()
        told: list[Told] = []
        for path in fit:
            told += told_of(commits_with_files(path, commits), Places(AdaptiveModel(table), score), keys_max=keys)
        if not told:
            fail("the repositories of --fit gave no place at which something is proposed; name others")
        places, right = [one.place for one in told], [one.right for one in told]
        rules = {name: fit_rule(name, places, right) for name in RULES}
        rows: dict[str, list[Counts]] = {name: [] for name in ("adaptive", "copy_line", *RULES)}
        judged: list[Told] = []
        for path in on:
            looked = Places(AdaptiveModel(table), score)
            for item in commits_with_files(path, commits):
                judged += told_of([item], looked, keys_max=keys)  # the network is asked here, and by no rule again
                for name, system in _systems(looked, rules).items():
                    rows[name].append(typed(item, system, keys_max=keys, knows=looked.model))
    except (RepositoryError, ExportError, artifacts.ArtifactError, ValueError) as error:
        fail(str(error))
    if not rows["adaptive"]:
        fail("the repositories of --report have no commit that wrote Python; name others")
    truth = [one.right for one in judged]
    say_json(
        {
            **report(rows),
            "over_adaptive": {name: paired(rows[name], rows["adaptive"]) for name in RULES},
            "log_loss": {
                "adaptive": round(log_loss([one.place.chance for one in judged], truth), 4),
                **{n: round(log_loss([r.chance(one.place) for one in judged], truth), 4) for n, r in rules.items()},
            },
            "places": {"fit": len(told), "report": len(judged), "right": round(sum(truth) / max(1, len(truth)), 4)},
            "rules": {name: [round(float(value), 4) for value in rule.weights] for name, rule in rules.items()},
        }
    )


def _systems(places: Places, rules: dict[str, Rule]) -> dict[str, LocalModel]:
    return {
        "adaptive": Ruled(places, lambda place: place.chance),
        "copy_line": CopyLine(),
        **{name: Ruled(places, rule.chance) for name, rule in rules.items()},
    }


if __name__ == "__main__":
    app()
