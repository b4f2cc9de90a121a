"""The command `foretype eval adaptive`."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from foretype_client.adaptive.table import shipped_table
from foretype_context.terminal import console
from foretype_eval.console import fail, print_json, progress_bars
from foretype_eval.statistics import Interval, cluster_bootstrap, paired_difference, percentiles
from rich.table import Table

from foretype_lab.adaptive.cuts import KINDS, CutAnswer, SourceFile, answers
from foretype_lab.adaptive.speed import suggest_ms
from foretype_lab.training.data import Store

__all__ = ["adaptive", "report"]

SYSTEMS: Final = ("adaptive", "adaptive_without_table", "copy_line", "empty")
_STEPS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_PRECISIONS: Final = (0.3, 0.4, 0.5, 0.7)
_RESAMPLES: Final = 2000


def adaptive(
    store: Annotated[Path, typer.Option(help="Text store of held-out repositories (validation/).")],
    cuts: Annotated[int, typer.Option(min=10, help="Cuts in each repository.")] = 120,
    keys: Annotated[int, typer.Option(min=20, help="Keys typed into a large file, to time them.")] = 400,
    seed: Annotated[int, typer.Option()] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Measure the adaptive model at cuts of held-out repositories, beside copying a line and nothing."""
    try:
        texts = Store(store)
    except (OSError, ValueError) as error:
        fail(f"--store {store}: {error}; name the folder that holds text.bin and index.json")
    table = shipped_table()
    found: list[CutAnswer] = []
    files: list[SourceFile] = []
    with progress_bars() as progress:
        for number, (name, (first, last)) in enumerate(texts.repository_range.items(), start=1):
            files = [SourceFile(name, texts.index[n][1], texts.text(n)) for n in range(first, last)]
            random.Random(f"{seed}:{name}").shuffle(files)
            found += answers(files, table, cuts=cuts, seed=zlib.crc32(f"{seed}:{name}".encode()))
            progress("repositories", number, len(texts.repository_range))
        if not found:
            fail(f"--store {store}: no file is long enough to cut; build a larger store")
        speed = suggest_ms(files, table, keys=keys, seed=seed)
    result = report(found, seed=seed) | {
        "table": None if table is None else table.language,
        "suggest_ms": speed._asdict(),
        "suggest_setting": "10,000 lines, 150 neighbours, one key each",
    }
    if as_json:
        print_json(result)
    else:
        _print(result)


def report(found: Sequence[CutAnswer], *, seed: int) -> dict[str, Any]:
    """Per kind: exact match with intervals by repository, the paired differences, and precision by confidence."""
    kinds: dict[str, Any] = {}
    for kind in KINDS:
        rows = [answer for answer in found if answer.kind == kind]
        if not rows:
            continue
        clusters = [answer.repository for answer in rows]
        right = {system: [float(answer.right[system]) for answer in rows] for system in SYSTEMS}

        def ends(interval: Interval) -> list[float | None]:
            return list(interval.rounded().values())

        kinds[kind] = {
            "cuts": len(rows),
            "repositories": len(set(clusters)),
            "exact": {
                system: ends(
                    cluster_bootstrap(right[system], clusters, seed=seed, resamples=_RESAMPLES, proportion=True)
                )
                for system in SYSTEMS
            },
            "table_gain": ends(
                paired_difference(right["adaptive"], right["adaptive_without_table"], clusters, seed=seed)
            ),
            "over_copy_line": ends(paired_difference(right["adaptive"], right["copy_line"], clusters, seed=seed)),
            "by_confidence": _calibration(rows),
            "at_precision": {str(least): _at_precision(rows, least) for least in _PRECISIONS},
        }
    return {"kinds": kinds, "candidate_us": percentiles([answer.micros for answer in found])._asdict()}


def _calibration(rows: Sequence[CutAnswer]) -> list[dict[str, float | int | None]]:
    table: list[dict[str, float | int | None]] = []
    for low, high in zip(_STEPS, (*_STEPS[1:], 1.01), strict=True):
        inside = (
            [row for row in rows if low < row.shown["adaptive"] <= high]
            if low
            else [row for row in rows if 0 < row.shown["adaptive"] <= high]
        )
        n = len(inside)
        table.append(
            {
                "from": low,
                "n": n,
                "mean_confidence": round(sum(row.shown["adaptive"] for row in inside) / n, 4) if n else None,
                "precision": round(sum(row.right["adaptive"] for row in inside) / n, 4) if n else None,
            }
        )
    return table


def _at_precision(rows: Sequence[CutAnswer], least: float) -> dict[str, float] | None:
    """The least threshold from which on what is shown is right this often, and the share of cuts where it shows."""
    ordered = sorted((row for row in rows if row.shown["adaptive"] > 0), key=lambda row: -row.shown["adaptive"])
    best: dict[str, float] | None = None
    right = 0
    for shown, row in enumerate(ordered, start=1):
        right += row.right["adaptive"]
        if right / shown >= least:
            best = {
                "threshold": round(row.shown["adaptive"], 4),
                "precision": round(right / shown, 4),
                "show_rate": round(shown / len(rows), 4),
            }
    return best


def _print(result: dict[str, Any]) -> None:
    table = Table(title="exact match", title_justify="left")
    for column in ("kind", "cuts", *SYSTEMS):
        table.add_column(column)
    for kind, row in result["kinds"].items():
        table.add_row(kind, str(row["cuts"]), *(_share(*row["exact"][system]) for system in SYSTEMS))
    screen = console()
    screen.print(table)
    for kind, row in result["kinds"].items():
        for least, point in row["at_precision"].items():
            screen.print(f"{kind}, precision ≥ {least}: {point}")
    screen.print(f"suggest, {result['suggest_setting']}: {result['suggest_ms']} ms")


def _share(estimate: float, low: float | None, high: float | None) -> str:
    return f"{estimate:.1%} ({'no interval' if low is None else f'{low:.1%} to {high:.1%}'})"
