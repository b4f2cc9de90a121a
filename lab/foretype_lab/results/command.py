"""The command `foretype eval results`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from foretype_context.terminal import say
from foretype_eval.console import fail, print_json, progress_bars
from foretype_eval.errors import LatencyTraceError, RepositoryError
from foretype_eval.gateway_options import Engine, GatewayUrl, ModelFile, TokenFile, gateway_options
from foretype_wire.errors import GatewayGoneError

from foretype_lab.results.page import page
from foretype_lab.results.sweep import SweepOptions, run_sweep

__all__ = ["results"]


def results(
    repo: Annotated[list[Path], typer.Option(help="Repository that the model never saw; may be repeated.")],
    out: Annotated[Path, typer.Option(help="Folder for rows and trace; a stopped run goes on there.")] = Path(
        "results"
    ),
    write: Annotated[
        Path | None, typer.Option(help="Write the page here, for example docs/measurements/shipped-model.md.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    keys: Annotated[int, typer.Option(min=100, help="Keystrokes to type in all.")] = 1000,
    minutes: Annotated[float | None, typer.Option(help="Begin nothing new after so long; run again to go on.")] = None,
    answers: Annotated[
        Path | None,
        typer.Option(help="Keep the model's answers here for the next run: one file per model. It holds text."),
    ] = None,
    layout: Annotated[list[str] | None, typer.Option(help="Only this layout; may be repeated.")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    gateway: GatewayUrl = None,
    token_file: TokenFile = None,
    model: ModelFile = None,
    engine: Engine = None,
) -> None:
    """Sweep layout, debounce and client with the model on held-out commits; write the page of results."""
    try:
        options = SweepOptions(
            repos=repo,
            out=out,
            keys=keys,
            minutes=minutes,
            layouts=layout,
            seed=seed,
            answers=answers,
            gateway=gateway_options(gateway, token_file, engine=engine, model=model),
        )
        with progress_bars() as progress:
            report = run_sweep(options, progress=progress)
    except (RepositoryError, LatencyTraceError, GatewayGoneError, OSError) as error:
        fail(str(error))
    given = [f"--repo {name.rpartition('/')[2]}" for name in report["repositories"]]
    given += [f"--keys {keys}", *(f"--layout {name}" for name in layout or ())]
    text = page(report, f"foretype eval results {' '.join(given)} --write docs/measurements/shipped-model.md")
    (out / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    if write is not None:
        write.write_text(text, "utf-8")
    if as_json:
        print_json(report)
    elif write is None:
        say(text)
