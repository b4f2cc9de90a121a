"""`foretype simulate`: what a fleet does in an hour that has not come yet, before anybody buys it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer
from foretype_context.terminal import console, say, say_json
from foretype_wire.errors import GatewayGoneError
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from foretype_plan.errors import PlanError
from foretype_plan.number_format import number
from foretype_plan.scenario import Tier, inputs_of
from foretype_plan.simulation.page import page as page_of
from foretype_plan.simulation.page import read_result
from foretype_plan.simulation.people import read_arrivals, shipped_arrivals
from foretype_plan.simulation.runs import Progress as Advance
from foretype_plan.simulation.runs import Rows, run_scenario
from foretype_plan.simulation.scenarios import SCENARIOS
from foretype_plan.simulation.world_day import check, world_day

_SHOWN = {
    "ttft_p50_ms": "p50, ms",
    "ttft_p99_ms": "p99, ms",
    "goodput": "goodput",
    "refused": "refused",
    "cached_share": "cached",
    "replica_hours": "replica hours",
}
"""Figures of a scenario's table, and what is above them."""


def simulate(
    scenario: Annotated[str | None, typer.Option(help="Which; --list names them.")] = None,
    names: Annotated[bool, typer.Option("--list", help="Name the scenarios.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    measured: Annotated[
        bool, typer.Option("--validate", help="Start a real gateway, load it, and compare: a minute, three with vLLM.")
    ] = False,
    vllm: Annotated[
        Path | None,
        typer.Option(
            help="With --validate: Python of an environment with vLLM; else FORETYPE_VLLM_PYTHON, or that of `make vllm-env`."
        ),
    ] = None,
    day: Annotated[bool, typer.Option("--day", help="A day of --developers over three regions.")] = False,
    check_: Annotated[
        bool, typer.Option("--check", help="A small cell's whole day beside a sample of it: minutes.")
    ] = False,
    developers: Annotated[float, typer.Option(help="Of the day.")] = 1_000_000.0,
    windows: Annotated[int, typer.Option(min=1, max=240, help="Of each hour and region, that the day plays.")] = 2,
    model: Annotated[
        str | None, typer.Option(help="Of the catalogue, or its config.json; qwen2.5-coder-1.5b, and 7b for the day.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="As `foretype plan` knows them; l4, and h100 for the day.")] = None,
    gpus_per_replica: Annotated[int, typer.Option(help="Tensor parallelism.")] = 1,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="An input of the plan, as in --set batch=16.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Arrivals of your own, as `record_arrivals` writes them, for those that ship.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs of each variant.")] = 5,
    seconds: Annotated[
        float, typer.Option(min=10, max=86_400, help="Of each run, after half a minute that is not counted.")
    ] = 60.0,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write what was run as a page that needs nothing else.")
    ] = None,
    given_before: Annotated[
        list[Path] | None, typer.Option("--from", help="With --page: also what an earlier run printed with --json.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File of rows; an interrupted run goes on there.")] = None,
) -> None:
    """Play a fleet in virtual time: the product's own decisions around a model of its engines."""
    try:
        earlier = [read_result(path) for path in given_before or []]
        made: dict[str, Any] = {}
        if names or not (scenario or measured or day or check_ or page):
            _list(json=json)
            return
        tier = Tier(
            model=model or ("qwen2.5-coder-7b" if day else "qwen2.5-coder-1.5b"),
            gpu=gpu or ("h100" if day else "l4"),
            gpus_per_replica=gpus_per_replica,
            inputs=inputs_of(given or []),
        )
        arrivals = shipped_arrivals() if trace is None else read_arrivals(trace)
        rows = Rows(out)
        with _bars() as progress:
            if measured:
                from foretype_plan.simulation.validate import validate  # needs the load generator and a gateway

                made = validate(seconds=20.0, vllm=vllm, progress=progress)
            elif check_:
                made = check(tier=tier, arrivals=arrivals, progress=progress)
            elif day:
                made = world_day(
                    developers=developers, tier=tier, arrivals=arrivals, windows=windows, rows=rows, progress=progress
                )
            elif scenario:
                made = run_scenario(
                    scenario,
                    tier=tier,
                    arrivals=arrivals,
                    seconds=seconds,
                    seeds=seeds,
                    rows=rows,
                    progress=progress,
                )
        if page is not None:
            page.write_text(page_of([*earlier, *([made] if made else [])]), "utf-8")
    except (PlanError, GatewayGoneError, OSError, msgspec.ValidationError) as error:
        say(f"foretype simulate: {error}", err=True)
        raise typer.Exit(2) from error
    if json:
        say_json(made, indent=2)
    elif page is not None:
        say(page)
    elif "variants" in made:
        _show(made)
    elif "pairs" in made:
        _show_pairs(made)
    else:
        _show_figures(made)


@contextlib.contextmanager
def _bars() -> Generator[Advance]:
    screen = console(stderr=True)
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, Any] = {}
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as bars:

        def advance(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield advance


def _list(*, json: bool) -> None:
    if json:
        say_json(
            {
                "scenarios": {
                    name: {"says": one.says, "variants": list(one.variants)} for name, one in SCENARIOS.items()
                }
            },
            indent=2,
        )
        return
    table = Table("scenario", "", "variants")
    for name, one in SCENARIOS.items():
        table.add_row(name, one.says, "; ".join(one.variants))
    console().print(table)


def _show(made: dict[str, Any]) -> None:
    table = Table(
        "",
        *_SHOWN.values(),
        title=f"{made['scenario']}: {made['says']}; {made['model']} on {made['gpu']}, {made['seeds']} seeds",
        box=SIMPLE_HEAD,
    )
    for one in made["variants"]:
        table.add_row(one["name"], *(_told(one["figures"][key]) for key in _SHOWN))
    console().print(table)


def _told(figure: dict[str, float]) -> str:
    """The mean, and below it half of the interval, which is as wide on both sides: seven columns have 80 characters."""
    return f"{number(figure['mean'], 3)}\n± {number((figure['high'] - figure['low']) / 2, 2)}"


def _show_pairs(made: dict[str, Any]) -> None:
    table = Table("", "predicted", "measured", "ratio", title="calibrated on a calm trace of the same gateway")
    for one in made["pairs"]:
        missed = " (missed)" if one["name"] in made["missed"] else ""
        table.add_row(one["name"], number(one["predicted"]), number(one["measured"]), f"{one['ratio']:.2f}{missed}")
    console().print(table)
    for what, why in made["left_out"].items():
        say(f"left out: {what}: {why}")


def _show_figures(made: dict[str, Any]) -> None:
    table = Table(show_header=False)
    for name, value in made.items():
        if isinstance(value, dict):
            table.add_row(
                name, "\n".join(f"{key} {number(one)}" for key, one in cast("dict[str, float]", value).items())
            )
        elif not isinstance(value, list):
            table.add_row(name, number(value))
    console().print(table)
