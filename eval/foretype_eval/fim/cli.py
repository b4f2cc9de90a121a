"""The command `foretype eval fim`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_context.terminal import console

from foretype_eval.console import print_table, progress_bars, tell
from foretype_eval.fim.ask import AskOptions
from foretype_eval.fim.baselines import Baseline
from foretype_eval.fim.run import FimOptions, run_fim
from foretype_eval.gateway_options import Engine, GatewayUrl, ModelFile, ProfileFile, TokenFile, gateway_options


def fim(
    data: Annotated[Path, typer.Option(help="HumanEval-Infilling, SAFIM or SantaCoder-FIM, .jsonl or .jsonl.gz.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many items, spread over the file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for items.jsonl and summary.json.")] = None,
    baseline: Annotated[Baseline | None, typer.Option(help="A row that needs no model.")] = None,
    layout: Annotated[str | None, typer.Option(help="Prompt layout; default is the profile's.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Token limit of one completion.")] = 192,
    post_process: Annotated[bool, typer.Option(help="Run the product's own finishing over each answer.")] = False,
    execute: Annotated[bool, typer.Option(help="Run the tests in the sandbox.")] = True,
    check_references: Annotated[bool, typer.Option(help="Leave out items whose reference fails.")] = True,
    keep_text: Annotated[bool, typer.Option(help="Write completions into items.jsonl, for a look at them.")] = False,
    parallel: Annotated[int, typer.Option(min=1, help="Requests under way at once.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    gateway: GatewayUrl = None,
    token_file: TokenFile = None,
    engine: Engine = None,
    model: ModelFile = None,
    profile: ProfileFile = None,
) -> None:
    """Fill holes in programs, run their tests, report pass@1 and exact match with clustered intervals."""
    options = FimOptions(
        data=data,
        out=out,
        limit=limit,
        baseline=baseline,
        layout=layout,
        execute=execute,
        check_references=check_references,
        keep_text=keep_text,
        seed=seed,
        ask=AskOptions(max_tokens=max_tokens, post_process=post_process, parallel=parallel),
        gateway=gateway_options(gateway, token_file, engine=engine, model=model, profile=profile),
    )
    with progress_bars() as progress:
        summary = asyncio.run(run_fim(options, progress=progress))
    tell(summary, _print, as_json=as_json)


def _print(summary: dict[str, Any]) -> None:
    system = summary["system"]
    title = ", ".join(str(system[name]) for name in ("baseline", "model", "layout") if name in system)
    rows = [
        (name.replace("_", " "), f"{summary[name]:.1%}", ci and f"{ci[0]:.1%} to {ci[1]:.1%}")
        for name, ci in summary["ci"].items()
        if summary[name] is not None
    ]
    print_table(f"{summary['data']['file']}: {title}", ("measure", "value", "95 % interval"), rows)
    console().print(
        f"{summary['n']} items of {summary['clusters']} problems, {summary['executed']} executed, "
        f"{summary['data']['reference_failures']} left out because their reference fails. "
        f"Stop rule: {'; '.join(summary['data']['stop_rules'])}.",
        highlight=False,
    )
