"""The command `foretype eval replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_client.policy.switches import Switches

from foretype_eval.console import fail, print_table, progress_bars, tell
from foretype_eval.gateway_options import GatewayUrl, ModelFile, TokenFile, gateway_options
from foretype_eval.replay.accept import Rule
from foretype_eval.replay.run import SYSTEMS, UNFILTERED, ReplayOptions, run_replay


def replay(
    repo: Annotated[Path, typer.Option(help="Git repository whose commits are typed, or a recording of edits.")],
    commits: Annotated[str, typer.Option(help="Number of newest commits, or a range A..B.")] = "10",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    systems: Annotated[str, typer.Option(help="Of model, unfiltered, network, adaptive, copy_line, empty.")] = ",".join(
        SYSTEMS
    ),
    accept: Annotated[Rule, typer.Option(help="When the simulated developer accepts.")] = Rule.LINE,
    client: Annotated[str, typer.Option(help="reuse (the product's) or strict.")] = "reuse",
    with_: Annotated[
        str,
        typer.Option("--with", help=f"Parts of the client's policy to switch on, of {', '.join(Switches.names())}."),
    ] = "",
    without: Annotated[str, typer.Option(help="Parts of it to switch off.")] = "",
    in_strings: Annotated[bool | None, typer.Option(help="Suggest in strings; default as the client does.")] = None,
    in_comments: Annotated[bool | None, typer.Option(help="Suggest in comments; likewise.")] = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="The rule of showing learns from commit to commit what the developer takes.")
    ] = False,
    debounce_ms: Annotated[float, typer.Option(min=0)] = 75.0,
    decide_ms: Annotated[float, typer.Option(min=0, help="A suggestion is read this long before it is taken.")] = 200.0,
    growing: Annotated[
        bool, typer.Option("--growing", help="The editor is shown beginnings, and asks again when they grow.")
    ] = False,
    layout: Annotated[str | None, typer.Option(help="Prompt layout; default is the profile's.")] = None,
    suffix: Annotated[list[str] | None, typer.Option(help="File endings to type; default .py.")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    simulate: Annotated[bool, typer.Option("--simulate", help="No gateway: latencies from a trace.")] = False,
    oracle: Annotated[
        float, typer.Option(min=0, max=1, help="With --simulate: a model that knows this share of the lines.")
    ] = 0.0,
    latency_trace: Annotated[Path | None, typer.Option(help="Lay these latencies on the clock.")] = None,
    save_trace: Annotated[Path | None, typer.Option(help="Write the measured latencies.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for rows; an interrupted run goes on there.")] = None,
    gateway: GatewayUrl = None,
    token_file: TokenFile = None,
    model: ModelFile = None,
    previous_model: Annotated[
        Path | None, typer.Option(help="Another model file, for the row `previous_model`.")
    ] = None,
) -> None:
    """Type the commits of a repository keystroke by keystroke, and count what was saved."""
    named = tuple(part.strip() for part in systems.split(",") if part.strip())
    if unknown := set(named) - {*SYSTEMS, *UNFILTERED}:
        fail(
            f"--systems: {', '.join(sorted(unknown))} is none of model, unfiltered, network, adaptive, copy_line, empty"
        )
    if client not in ("reuse", "strict"):
        fail(f"--client: {client!r} is neither reuse nor strict")
    options = ReplayOptions(
        repo=repo,
        commits=int(commits) if commits.isdigit() else commits,
        suffixes=tuple(suffix or (".py",)),
        systems=named,
        rule=accept,
        reuse=client == "reuse",
        learn=learn,
        in_strings=in_strings,
        in_comments=in_comments,
        with_=policy_switches(with_),
        without=policy_switches(without),
        debounce_ms=debounce_ms,
        layout=layout,
        decide_ms=decide_ms,
        growing=growing,
        seed=seed,
        simulate=simulate,
        oracle=oracle,
        latency_trace=latency_trace,
        save_trace=save_trace,
        out=out,
        previous_model=previous_model,
        gateway=gateway_options(gateway, token_file, model=model),
    )
    with progress_bars() as progress:
        result = run_replay(options, progress=progress)
    tell(result, _print, as_json=as_json)


def policy_switches(names: str, options: str = "--with, --without") -> tuple[str, ...]:
    """The names of switches in what was given for `options`, sorted. Ends the command at one that is none."""
    listed = tuple(sorted(name.strip().replace("-", "_") for name in names.split(",") if name.strip()))
    try:
        Switches().switched(on=listed)
    except ValueError as error:
        fail(f"{options}: {error}")
    return listed


def _print(result: dict[str, Any]) -> None:
    title = f"{result['repo']}: {result['commits']} commits, {result['accept_rule']}, {result['client']} client"
    columns = ("system", "keystrokes saved", "95 % interval", "precision", "shown", "late", "requests", "cached")

    def percent(value: float | None) -> str | None:
        return None if value is None else f"{value:.1%}"

    def cells(name: str, row: dict[str, Any]) -> list[str | None]:
        ci = row["ci"]["ksr"]
        interval = None if ci is None else f"{ci[0]:.1%} to {ci[1]:.1%}"
        shares = (percent(row[key]) for key in ("a_line_precision", "show_rate", "late_rate"))
        return [name, percent(row["ksr"]), interval, *shares, row["requests"], percent(row["cached_share"])]

    print_table(title, columns, [cells(name, row) for name, row in result["systems"].items()])
