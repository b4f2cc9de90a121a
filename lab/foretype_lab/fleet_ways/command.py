"""The command `foretype bench fleet`."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer
import uvloop
from foretype_context.terminal import console
from foretype_eval.console import fail, print_json, progress_bars
from foretype_eval.errors import WorkloadError
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from rich.table import Table

from foretype_lab.errors import FleetBenchError

__all__ = ["fleet"]


def fleet(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    engine: Annotated[
        str, typer.Option(help="What the replica spawns in place of the real vLLM of `make vllm-env`.")
    ] = "",
    keys: Annotated[int, typer.Option(min=1, help="Measured of each way.")] = 200,
    kills: Annotated[
        int,
        typer.Option(
            min=0, help="Kill a replica so many times, after the keys: when is it left, and its successor asked?"
        ),
    ] = 0,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """First token of one replica under Ray: direct, through gateway and directory, through HAProxy and through Ray's proxy."""
    try:  # Ray is an extra of its own: the other commands do without
        from foretype_lab.fleet_ways.measure import WaysOptions, run_ways
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed here: pip install 'foretype[fleet]'")
    options = WaysOptions(engine=tuple(shlex.split(engine)), keys=keys, kills=kills, seed=seed)
    try:
        with progress_bars() as progress:
            result = uvloop.run(run_ways(options, progress=progress))
    except (FleetBenchError, GatewayGoneError, RequestRefusedError, WorkloadError, TimeoutError, OSError) as error:
        fail(str(error) or type(error).__name__)
    if as_json:
        print_json(result)
    else:
        _print(result)


def _print(result: dict[str, Any]) -> None:
    title = f"first token, ms, over {result['keys']} keys of one replica ({result['engine']})"
    table = Table("", "p50", "p95", "p99", "added p50", title=title, title_justify="left")
    for name, row in result["first_token_ms"].items():
        added = result["added_ms"].get(name)
        shown = [f"{row[at]:.1f}" for at in ("p50", "p95", "p99")]
        table.add_row(name, *shown, "" if added is None else f"{added['p50']:+.1f}")
    screen = console()
    screen.print(table)
    phases = ", ".join(f"{name} {seconds:g}" for name, seconds in result["start_phases_s"].items())
    screen.print(f"up in {result['up_s']} s; seconds of the replica's start: {phases}")
    screen.print("MiB: " + ", ".join(f"{name} {mib}" for name, mib in result["memory_mib"].items()))
    for name, row in result["coming_ms"].items():
        screen.print(f"{name.replace('_', ' ')}: p50 {row['p50']:.0f} ms, most {row['max']:.0f} ms, of {row['n']}")
    if result["missing"]:
        screen.print(f"not installed here: {', '.join(result['missing'])}")
