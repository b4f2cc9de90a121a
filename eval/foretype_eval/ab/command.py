"""The command `foretype eval ab`."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_backend.experiments.assign import Design
from foretype_backend.experiments.rows import METRICS
from foretype_backend.experiments.verdict import AbOptions, analyse
from foretype_context.terminal import console

from foretype_eval.ab.rows import load_rows
from foretype_eval.ab.simulate import World, simulate
from foretype_eval.ab.stored import stored_rows
from foretype_eval.console import fail, print_table, progress_bars, tell


def ab(
    data: Annotated[
        Path | None, typer.Argument(help="User-days as CSV or JSON lines: user, day, variant, opportunities, ….")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    store: Annotated[str | None, typer.Option(help="Daily sums of this telemetry store, in place of a file.")] = None,
    tenant: Annotated[str | None, typer.Option(help="With --store: only this tenant.")] = None,
    since: Annotated[
        datetime.datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="With --store: first day; earlier ones only reduce variance."),
    ] = None,
    design: Annotated[Design, typer.Option(help="Within users by day, or between users.")] = Design.SWITCHBACK,
    metric: Annotated[str, typer.Option(help=f"Primary metric: {', '.join(METRICS)}.")] = "rcpo",
    control: Annotated[str | None, typer.Option(help="Name of the control variant.")] = None,
    treatment: Annotated[str | None, typer.Option(help="Name of the other variant.")] = None,
    planned_days: Annotated[int, typer.Option(min=1, help="Length planned before the start.")] = 10,
    alpha: Annotated[float, typer.Option(min=1e-6, max=0.5)] = 0.05,
    salt: Annotated[str | None, typer.Option(help="Check the recorded variants against this assignment.")] = None,
    language: Annotated[str | None, typer.Option(help="Only this language.")] = None,
    simulated: Annotated[bool, typer.Option("--simulate", help="Experiments with a known truth instead.")] = False,
    experiments: Annotated[int, typer.Option(min=10, help="With --simulate: how many per row.")] = 1000,
    users: Annotated[int, typer.Option(min=4, help="With --simulate: developers.")] = 40,
    days: Annotated[int, typer.Option(min=1, help="With --simulate: days.")] = 10,
    lift: Annotated[list[float] | None, typer.Option(help="With --simulate: true relative effects.")] = None,
    seed: Annotated[int, typer.Option(help="With --simulate.")] = 0,
) -> None:
    """Compare two variants, or say why they cannot be compared; `--simulate` shows how often that errs."""
    if simulated:
        world = World(users=users, days=days, pre_days=days)
        with progress_bars() as progress:
            result = simulate(
                world,
                experiments=experiments,
                alpha=alpha,
                seed=seed,
                lifts=lift or (0.0, 0.05, 0.10, 0.15, 0.20),
                progress=progress,
            )
    elif (data is None) == (store is None):
        fail("name a file of user-days, or give --store URL, or --simulate")
    else:
        options = AbOptions(
            design=design,
            metric=metric,
            control=control,
            treatment=treatment,
            planned_days=planned_days,
            alpha=alpha,
            salt=salt,
            language=language,
        )
        first = None if since is None else since.date()
        rows = load_rows(data) if data is not None else stored_rows(str(store), tenant=tenant, since=first)
        result = analyse(rows, options)
    tell(result, _print_simulation if simulated else _print, as_json=as_json)


def _print_simulation(result: dict[str, Any]) -> None:
    world = result["world"]
    columns = ("design", "true lift", "verdict, daily looks", "plain test at the end", "plain test daily (wrong)")
    shares = ("verdict_daily", "plain_at_end", "plain_daily")
    rows = [[row["design"], f"{row['lift']:+.0%}", *(f"{row[one]:.1%}" for one in shares)] for row in result["table"]]
    print_table(f"{world['users']} developers, {world['days']} days: share called different", columns, rows)


def _print(result: dict[str, Any]) -> None:
    screen = console()
    columns = (str(result["control"]), str(result["treatment"]), "difference", "on the way", "at the end")
    value = result["value"]
    cells = (value["control"], value["treatment"], result["difference"], result["ci_on_the_way"], result["ci_at_end"])
    print_table(f"{result['metric']} = {result['definition']}, {result['design']}", columns, [cells])
    screen.print(f"{result['users']} users, {result['days']} days, {result['units']} units", highlight=False)
    screen.print(f"verdict: {result['verdict']}", highlight=False)
    for reason in result["reasons"]:
        screen.print(f"  because {reason}", highlight=False, markup=False)
