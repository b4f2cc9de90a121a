"""The command `foretype bench peer-load`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import uvloop
from foretype_eval.console import progress_bars, tell
from foretype_eval.load.command import print_report

from foretype_lab.other_gateways.measure import PeerLoadOptions, run_peer


def peer_load(
    peer: Annotated[str, typer.Argument(help="smg, foretype, or the http:// URL of a running gateway.")],
    rate: Annotated[float, typer.Option(min=0.1, help="Requests per second, of all developers together.")] = 100.0,
    seconds: Annotated[float, typer.Option(min=0.5)] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    developers: Annotated[int, typer.Option(min=1, help="Connections that type.")] = 200,
    search: Annotated[bool, typer.Option(help="Find the highest rate within --limit-ms, from --rate.")] = False,
    limit_ms: Annotated[float, typer.Option(min=0.1, help="p99 of added time that --search allows.")] = 10.0,
    frame_ms: Annotated[float, typer.Option(min=0, help="Scripted engine: time between its six frames.")] = 5.0,
    seed: Annotated[int, typer.Option()] = 0,
    pin: Annotated[bool, typer.Option(help="Gateway on the first core, generator on the last.")] = True,
) -> None:
    """The load of `bench load` over SSE at another gateway, or at ours, before the same scripted engine."""
    options = PeerLoadOptions(
        peer=peer,
        rate=rate,
        seconds=seconds,
        developers=developers,
        search=search,
        limit_ms=limit_ms,
        frame_ms=frame_ms,
        seed=seed,
        pin=pin,
    )
    with progress_bars() as progress:
        result = uvloop.run(run_peer(options, progress=progress))
    tell(result, _print, as_json=as_json)


def _print(result: dict[str, Any]) -> None:
    rows = {"added by the gateway": result.get("added_ms"), "engine asked directly": result["direct"]["added_ms"]}
    rows |= {"whole answer": result.get("total_ms"), "per token after the first": result.get("tpot_ms")}
    if "at_rate" in result:
        rows[f"added at {result['rate']:g}/s"] = result["at_rate"]["added_ms"]
    rows["generator behind its plan"] = result.get("generator_late_ms")
    figures = ("gateway_cpu_ms_per_request", "gateway_cpu_share", "generator_cpu_share", "gateway_resident_mib")
    print_report(result, result["peer"], rows, figures)
