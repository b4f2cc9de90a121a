"""The command `foretype bench load`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Mapping, Sequence
from typing import Annotated, Any

import typer
from foretype_context.terminal import console

from foretype_eval.console import fail, print_json, print_table, progress_bars
from foretype_eval.gateway_options import GatewayUrl, ModelFile, ProfileFile, TokenFile, gateway_options
from foretype_eval.load.run import LoadOptions, run_load
from foretype_eval.load.scenarios import SCENARIOS, ScenarioOptions, run_scenario


def load(
    rate: Annotated[float, typer.Option(min=0.1, help="Requests per second, of all developers together.")] = 100.0,
    seconds: Annotated[float, typer.Option(min=0.5)] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    developers: Annotated[int, typer.Option(min=1, help="Connections that type.")] = 200,
    idle: Annotated[int, typer.Option(min=0, help="Connections that are open and silent.")] = 0,
    search: Annotated[bool, typer.Option(help="Find the highest rate within --limit-ms, from --rate.")] = False,
    limit_ms: Annotated[float, typer.Option(min=0.1, help="p99 of added time that --search allows.")] = 10.0,
    frame_ms: Annotated[float, typer.Option(min=0, help="Scripted engine: time between its six frames.")] = 5.0,
    seed: Annotated[int, typer.Option()] = 0,
    pin: Annotated[bool, typer.Option(help="Gateway on the first core, generator on the last.")] = True,
    engine: Annotated[str | None, typer.Option(help="Engine of the private gateway; default scripted.")] = "scripted",
    gateway: GatewayUrl = None,
    token_file: TokenFile = None,
    model: ModelFile = None,
    profile: ProfileFile = None,
    scenario: Annotated[
        str | None, typer.Option(help=f"{', '.join(SCENARIOS)}: see docs/operations.md; a private gateway of its own.")
    ] = None,
    capacity: Annotated[
        float, typer.Option(min=1, help="Scenarios: requests/s that the engine has slots for.")
    ] = 200.0,
    times: Annotated[float, typer.Option(min=0.1, help="overload: of the capacity, that is asked.")] = 3.0,
    pairs: Annotated[int, typer.Option(min=1, help="fairness, hostile: runs without and with the flood.")] = 5,
    idle_s: Annotated[float, typer.Option(min=1, help="sessions: silence before memory is measured.")] = 60.0,
    events: Annotated[int, typer.Option(min=1, help="churn: connects, cancels and disconnects.")] = 20_000,
) -> None:
    """Simulated developers against a gateway: added latency, cancels, refusals, leaks, CPU per request."""
    if scenario is not None and (scenario not in SCENARIOS or gateway is not None):
        fail(f"--scenario is one of {', '.join(SCENARIOS)}, and starts a gateway of its own: leave --gateway out")
    options = LoadOptions(
        rate=rate,
        seconds=seconds,
        developers=developers,
        idle=idle,
        search=search,
        limit_ms=limit_ms,
        frame_ms=frame_ms,
        seed=seed,
        pin=pin,
        gateway=gateway_options(gateway, token_file, engine=engine, model=model, profile=profile),
    )
    with progress_bars() as progress:
        if scenario is not None:
            wanted = ScenarioOptions(
                load=options, capacity=capacity, times=times, pairs=pairs, idle_s=idle_s, events=events
            )
            result = _run(run_scenario(scenario, wanted, progress=progress))
        else:
            result = _run(run_load(options, progress=progress))
    if as_json or scenario is not None:
        print_json(result)
    else:
        _print(result)


def _run(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    if sys.platform == "win32":
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)


def _print(result: dict[str, Any]) -> None:
    rows = {"added by the gateway": result.get("added_ms"), "cancel, sent to engine": result.get("cancel_ms")}
    rows["cancel, sent to done"] = result.get("cancel_done_ms")
    rows |= {f"first text, {name}": row for name, row in result.get("ttft_ms", {}).items()}
    rows |= {f"whole answer, {name}": row for name, row in result.get("total_ms", {}).items()}
    rows["generator behind its plan"] = result.get("generator_late_ms")
    figures = (
        "availability",
        "refused",
        "unanswered",
        "leaked_slots",
        "cached_share",
        "wasted_token_share",
        "gateway_cpu_ms_per_request",
        "of_it_engine_cpu_ms",
        "gateway_cpu_share",
        "generator_cpu_share",
        "gateway_resident_mib",
    )
    print_report(result, f"{result['developers']} developers", rows, figures)


def print_report(result: dict[str, Any], whose: str, rows: Mapping[str, Any], figures: Sequence[str]) -> None:
    """For people: a table of latencies, those that were measured, and below it the figures that `result` has.

    Args:
        whose: load it is, for the title.
        rows: by what is in front of them, as `percentiles_ms` gives them; None where nothing was measured.
    """
    columns = ("n", "p50", "p95", "p99", "max")
    measured = {name: [row[key] for key in columns] for name, row in rows.items() if row is not None}
    cells = [[name, *(None if one is None else f"{one:g}" for one in row)] for name, row in measured.items()]
    print_table(f"{result.get('achieved_rate', 0)} requests/s, {whose}", ("ms", *columns), cells)
    for name in ("verdict", *figures):
        if name in result:
            shown = "highest rate" if name == "verdict" else name.replace("_", " ")
            console().print(f"{shown}: {result[name]}", highlight=False)
