"""The command `foretype eval gate`."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from foretype_context.terminal import console
from foretype_wire.credentials import allowed_in_clear

from foretype_eval.console import print_json, print_table, progress_bars
from foretype_eval.errors import EvalError
from foretype_eval.gate.sides import Data, Progress, Side, fim_run, replay_run, side_of, system_of
from foretype_eval.gate.verdict import LEVEL, MARGINS, MetricVerdict, deciding, judge_fim, judge_replay
from foretype_eval.gateway_options import TokenFile, read_token

_METHOD = "one-sided 95 % bounds: the lesser of a paired bootstrap over problems or commits and of what as many could have missed"


def gate(
    baseline: Annotated[
        str, typer.Option(help="What stands: weights (.gguf), a profile (.toml), a ws:// URL, a run, or `shipped`.")
    ],
    candidate: Annotated[str, typer.Option(help="What shall take its place; likewise.")],
    fim: Annotated[Path | None, typer.Option(help="Benchmark file, as `eval fim --data` takes it.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Repository, as `eval replay --repo` takes it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            help="METRIC=SHARE: how much worse is still as good. " + ", ".join(f"{k}={v}" for k, v in MARGINS.items())
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many items, spread over --fim.")] = None,
    execute: Annotated[bool, typer.Option(help="Run the tests of --fim in the sandbox.")] = True,
    max_tokens: Annotated[int, typer.Option(min=1, help="Token limit of one completion of --fim.")] = 192,
    commits: Annotated[str, typer.Option(help="Of --replay: number of newest commits, or a range A..B.")] = "20",
    system: Annotated[
        str | None,
        typer.Option(help="Row of the replays that is compared: network (the model alone), unfiltered or model."),
    ] = None,
    latency_trace: Annotated[Path | None, typer.Option(help="Lay these latencies on both replays.")] = None,
    baseline_layout: Annotated[str | None, typer.Option(help="Prompt layout; default is the profile's.")] = None,
    candidate_layout: Annotated[
        str | None, typer.Option(help="Likewise; a new layout passes through here, too.")
    ] = None,
    token_file: TokenFile = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs that are made; each can be a side again.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of bootstrap and typist.")] = 0,
) -> None:
    """Say whether the candidate is as good as the baseline. Ends with 0 where it is, with 1 where it is not or nobody can tell."""
    token, clear = read_token(token_file), allowed_in_clear(os.environ)
    data = Data(
        fim=fim,
        limit=limit,
        execute=execute,
        max_tokens=max_tokens,
        replay=replay,
        commits=int(commits) if commits.isdigit() else commits,
        system=system or "network",
        latency_trace=latency_trace,
        seed=seed,
    )
    margins = _margins(margin or [])
    sides = (
        side_of("--baseline", baseline, layout=baseline_layout, token=token, clear=clear),
        side_of("--candidate", candidate, layout=candidate_layout, token=token, clear=clear),
    )
    with contextlib.ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foretype-gate-")))
        progress = stack.enter_context(progress_bars())
        verdicts = _verdicts(sides, data, margins, system, folder, progress)
    whole = deciding(verdicts)
    if as_json:
        print_json(
            {
                **{side.option[2:]: side.named if "://" in side.named else Path(side.named).name for side in sides},
                **_told(whole),
                "sha256": {side.option[2:]: side.sha256() for side in sides},
                "level": LEVEL,
                "method": _METHOD,
                "metrics": [_told(one) for one in verdicts],
            }
        )
    else:
        _print(whole, verdicts)
    raise typer.Exit(0 if whole.passes else 1)


def _verdicts(
    sides: tuple[Side, Side],
    data: Data,
    margins: dict[str, float],
    system: str | None,
    folder: Path,
    progress: Progress,
) -> list[MetricVerdict]:
    before, after = sides
    runs = [side.run for side in sides if side.run is not None]
    by_fim = data.fim is not None or any(run.fim for run in runs)
    by_replay = data.replay is not None or any(run.replay for run in runs)
    if len(runs) == len(sides):  # there is nothing left to measure, whatever the options name
        by_fim, by_replay = bool(runs[0].fim), bool(runs[0].replay)
    if not by_fim and not by_replay:
        raise EvalError("give --fim FILE, --replay REPO or both: nothing was measured yet")
    verdicts: list[MetricVerdict] = []
    if by_fim:
        first, second = (fim_run(side, data, folder / f"{side.option[2:]}-fim", progress=progress) for side in sides)
        verdicts += judge_fim(first, second, margins, seed=data.seed)
    if by_replay:
        first = replay_run(before, data, folder / "baseline-replay", progress=progress)
        second = replay_run(after, data, folder / "candidate-replay", progress=progress)
        verdicts += judge_replay(first, second, system_of(first, second, system), margins, seed=data.seed)
    return verdicts


def _margins(given: list[str]) -> dict[str, float]:
    """The margins, with those that are given in place. Raises EvalError."""
    margins = dict(MARGINS)
    for one in given:
        metric, _, share = one.partition("=")
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if metric not in margins or not 0 < value < 1:
            raise EvalError(
                f"--margin {one}: METRIC=SHARE, where the metric is one of {', '.join(margins)} and the share between 0 and 1"
            )
        margins[metric] = value
    return margins


def _told(verdict: MetricVerdict) -> dict[str, Any]:
    return msgspec.structs.asdict(verdict)


def _line(one: MetricVerdict) -> str:
    """The verdict in one line."""
    told = (
        f"{one.verdict}: {one.metric} {one.before:.2%} to {one.after:.2%}, difference {100 * one.difference:+.2f} points "
        f"({100 * one.low:+.2f} to {100 * one.high:+.2f}), margin {100 * one.margin:g}, {one.n:,} items of {one.clusters:,}"
    )
    return f"{told}; {one.reason}" if one.reason else told


def _print(whole: MetricVerdict, verdicts: list[MetricVerdict]) -> None:
    console().print(_line(whole), highlight=False, soft_wrap=True)
    rows: list[list[str]] = []
    for one in verdicts:
        points = [f"{100 * value:+.2f}" for value in (one.difference, one.low, one.high)]
        rows.append(
            [one.metric, f"{one.before:.2%}", f"{one.after:.2%}", *points, f"{100 * one.margin:g}", one.verdict]
        )
    columns = ("metric", "baseline", "candidate", "difference", "low", "high", "margin", "verdict")
    print_table("", columns, rows, words=("verdict",))
