"""`foretype plan`: how many GPUs, of which kind, at which latency and price; and which wall binds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from foretype_context.terminal import console, say, say_json
from rich.table import Table

from foretype_plan.errors import PlanError
from foretype_plan.measured import measured
from foretype_plan.number_format import number
from foretype_plan.page import page as page_of
from foretype_plan.plan import plan as planned
from foretype_plan.reference import TOLERANCE, reference
from foretype_plan.scenario import Scenario, Tier, inputs_of, read


def plan(
    file: Annotated[
        Path | None, typer.Argument(help="A TOML file; flags that are given change its first tier.")
    ] = None,
    developers: Annotated[float | None, typer.Option(help="How many write code with it.")] = None,
    model: Annotated[str | None, typer.Option(help="Of the catalogue, or its config.json.")] = None,
    gpu: Annotated[str | None, typer.Option(help="h100, h200, b200, a100, l40s, l4, cpu, cpu-2, …")] = None,
    gpus_per_replica: Annotated[int | None, typer.Option(help="Tensor parallelism.")] = None,
    weight_bits: Annotated[int | None, typer.Option(help="16, 8 or 4.")] = None,
    kv_bits: Annotated[int | None, typer.Option(help="16 or 8.")] = None,
    price: Annotated[float | None, typer.Option(help="Of one GPU an hour, dollars.")] = None,
    regions: Annotated[int | None, typer.Option(help="Data centres that share the fleet.")] = None,
    budget: Annotated[float | None, typer.Option(help="Dollars a month.")] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="Another input, as in --set warm_share=0.9; --json lists all.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write a page to play with; it needs nothing else.")
    ] = None,
    cases: Annotated[
        bool, typer.Option("--reference", help="Five case studies from their own inputs instead.")
    ] = False,
    published: Annotated[
        bool, typer.Option("--measured", help="Published measurements beside the formulas instead.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: every number with its formula and band.")] = False,
) -> None:
    """Plan a fleet before it is bought: GPUs, latency, cost, and the wall that binds."""
    if cases or published:
        _compared("cases" if cases else "measured", reference() if cases else measured(), json=json)
        return
    try:
        scenario = read(file) if file is not None else Scenario()
        scenario = _changed(
            scenario,
            {"developers": developers, "regions": regions, "budget_month": budget},
            {"model": model, "gpu": gpu, "gpus_per_replica": gpus_per_replica, "weight_bits": weight_bits}
            | {"kv_bits": kv_bits, "price": price},
            inputs_of(given or []),
        )
        made = planned(scenario)
        if page is not None:
            page.write_text(page_of(scenario), "utf-8")
    except (PlanError, OSError) as error:
        say(f"foretype plan: {error}", err=True)
        raise typer.Exit(2) from error
    if json:
        say_json(made, indent=2)
    elif page is not None:
        say(page)
    else:
        _show(made, scenario)


def _changed(scenario: Scenario, whole: dict[str, Any], tier: dict[str, Any], inputs: dict[str, float]) -> Scenario:
    scenario = msgspec.structs.replace(scenario, **{key: value for key, value in whole.items() if value is not None})
    tier = {key: value for key, value in tier.items() if value is not None}
    if not scenario.tier or not (tier or inputs):
        return scenario
    name, first = next(iter(scenario.tier.items()))
    made: Tier = msgspec.structs.replace(first, **tier, inputs=first.inputs | inputs)
    return msgspec.structs.replace(scenario, tier=scenario.tier | {name: made})


def _compared(name: str, rows: list[dict[str, Any]], *, json: bool) -> None:
    if json:
        say_json({name: rows}, indent=2)
        return
    screen = console()
    first, second = ("expected", "got") if name == "cases" else ("measured", "predicted")
    table = Table(
        "", first, second, "ratio", title=f"within {TOLERANCE:.0%}, from their own inputs" if name == "cases" else None
    )
    for row in rows:
        what = f"{row['case']}  {row['quantity']}" if name == "cases" else row["what"]
        table.add_row(what, number(row[first]), number(row[second]), f"{row['ratio']:.2f}")
    screen.print(table)


def _show(made: dict[str, Any], scenario: Scenario) -> None:
    screen = console()
    for name, tier in made["tiers"].items():
        title = f"{name}: {tier['model']} on {tier['gpu']}, {tier['gpus_per_replica']} a replica"
        table = Table(show_header=False, title=title)
        ttft, gpus, cost = tier["ttft_ms"], tier["gpus"], tier["cost"]
        table.add_row("first token, ms: warm; cold", f"{ttft['warm']:.0f}; {ttft['cold']:.0f}")
        late = "" if tier["meets_objective"] else " (misses its objective)"
        table.add_row("… p50; p95; p99", f"{ttft['p50']:.0f}; {ttft['p95']:.0f}; {ttft['p99']:.0f}{late}")
        band = tier["figures"]["gpus_peak"]
        table.add_row(
            "GPUs: mean; peak; one failure",
            f"{gpus['mean']:,.0f}; {gpus['peak']:,.0f} ({band['low']:,.0f} to {band['high']:,.0f}); {gpus['with_failure']:,.0f}",
        )
        table.add_row("$ a month: following the day; fixed", f"{cost['month']:,.0f}; {cost['month_fixed']:,.0f}")
        table.add_row("$ for 1,000 accepted tokens", f"{cost['per_1k_accepted']:.4f}")
        table.add_row("binds", f"{tier['binding']}: {tier['why']}")
        table.add_row("prompts and answers", _beside(tier["prefill"]))
        for lever in tier["levers"][:3]:
            table.add_row(
                f"… {lever['lever']}", f"{lever['gpus_by_now']:.0%} of the GPUs, p99 {lever['p99_ms']:.0f} ms"
            )
        screen.print(table)
    if made["binding"] == "money":
        screen.print(f"over the budget of $ {scenario.budget_month:,.0f} a month")


def _beside(prefill: dict[str, Any]) -> str:
    """Whether prompts belong on servers of their own."""
    most = f"{number(prefill['chunk_tokens_most'], 3)} tokens"
    if prefill["split_could_pay"]:
        return f"apart could pay: beside answers a step may have {most}, and {number(prefill['ridge_tokens'], 3)} cost the same"
    if not prefill["chunk_tokens_most"]:
        return "answers pause too long without any: a smaller batch, or fewer bits"
    return f"together, in steps of up to {most}; apart would only add {number(prefill['hand_over_ms'], 2)} ms"
