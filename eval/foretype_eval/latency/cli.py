"""The command `foretype bench latency`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from foretype_context.terminal import console

from foretype_eval.console import progress_bars, tell
from foretype_eval.gateway import connected
from foretype_eval.gateway_options import Engine, GatewayUrl, ModelFile, ProfileFile, TokenFile, gateway_options
from foretype_eval.latency.editor_bench import measure_editor, measure_start
from foretype_eval.latency.first_sight import measure_first_sight
from foretype_eval.latency.gateway_bench import measure_gateway
from foretype_eval.latency.next_edit_bench import measure_next_edits
from foretype_eval.latency.options import QUICK, Counts, LatencyFigures, LatencyOptions, Part, Progress
from foretype_eval.latency.report import report, show


async def run_latency(
    options: LatencyOptions, *, progress: Progress = lambda _step, _done, _total: None
) -> dict[str, Any]:
    """Measure everything and return the report.

    Raises:
        GatewayGoneError, RequestRefusedError: the gateway cannot be reached, or refused a request.
        EvalError: there is no code here to type, or the language server ended or answered with an error.
    """
    figures = LatencyFigures()
    own = options.gateway.url is None and options.gateway.engine in {None, "embedded"}
    if Part.START in options.parts and own and options.gateway.profile is None:
        await measure_start(options.gateway, figures, options.counts.starts, progress=progress)
    async with connected(options.gateway, client_name="foretype-bench") as gateway:
        if options.parts & {Part.PROMPTS, Part.LONG_PROMPTS, Part.CANCEL}:
            await measure_gateway(gateway, options, figures, progress=progress)
        if Part.EDITOR in options.parts:
            await measure_editor(gateway, options, figures, progress=progress)
        if Part.FIRST_SIGHT in options.parts:
            await measure_first_sight(gateway, options.seed, figures, options.counts.first_sights, progress=progress)
        profile = gateway.profile
    if Part.NEXT_EDIT in options.parts:  # asks nobody: a gateway that is not there is said before it
        measure_next_edits(options.counts.next_edit, figures, progress=progress)
    return report(figures, options, profile)


def latency(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quick: Annotated[
        bool, typer.Option(help="A tenth of the measurements: to see that it works, not to publish.")
    ] = False,
    gateway: GatewayUrl = None,
    token_file: TokenFile = None,
    engine: Engine = None,
    model: ModelFile = None,
    profile: ProfileFile = None,
    only: Annotated[list[Part] | None, typer.Option(help="Measure these parts only; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Which files and lines are typed.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the JSON object to this file too.")] = None,
) -> None:
    """Time to first token cold and warm, type-through, changes, cancels, start: through the real client and server."""
    options = LatencyOptions(
        counts=QUICK if quick else Counts(),
        seed=seed,
        parts=frozenset(only or Part),
        gateway=gateway_options(gateway, token_file, engine=engine, model=model, profile=profile),
    )
    with progress_bars() as progress:
        result = asyncio.run(run_latency(options, progress=progress))
    if out is not None:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    tell(result, _print, as_json=as_json)


def _print(result: dict[str, Any]) -> None:
    show(result)
    for note in result["notes"]:
        console().print(f"note: {note}", highlight=False)
