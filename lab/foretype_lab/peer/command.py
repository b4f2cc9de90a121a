"""The commands `foretype bench peer` and `foretype bench peer-page`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_client.policy.switches import Switches
from foretype_context.errors import ForetypeError
from foretype_context.terminal import console
from foretype_eval.console import fail, print_json, progress_bars
from foretype_eval.replay.accept import Rule
from foretype_eval.replay.command import policy_switches
from rich.table import Table

from foretype_lab.errors import PeerResultError
from foretype_lab.peer.options import PeerOptions
from foretype_lab.peer.page import table_of, write_page
from foretype_lab.peer.run import SYSTEMS, run_peer


def peer(
    recording: Annotated[
        Path, typer.Argument(help="A recording (*.recording.w.json, JSON lines), or a git repository.")
    ],
    gguf: Annotated[Path | None, typer.Option(help="Model file for both; default is the shipped one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    commits: Annotated[str, typer.Option(help="Of a repository: number of newest commits, or a range A..B.")] = "3",
    from_minute: Annotated[float, typer.Option(min=0, help="Where in the recording typing begins.")] = 0.0,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="How much of it is typed; default all.")] = None,
    systems: Annotated[str, typer.Option(help=f"Of {', '.join(SYSTEMS)}.")] = "llama_vim,foretype_network,foretype",
    live: Annotated[
        bool, typer.Option("--live", help="Keys at their own time on the wall's clock; processor time is measured too.")
    ] = False,
    layout: Annotated[str | None, typer.Option(help="Of our prompts; default what the gateway says.")] = None,
    accept: Annotated[Rule, typer.Option(help="When the simulated developer accepts.")] = Rule.LINE,
    debounce_ms: Annotated[float, typer.Option(min=0, help="Of our client; llama.vim has none.")] = 25.0,
    with_: Annotated[
        str,
        typer.Option("--with", help=f"Parts of our client's policy to switch on, of {', '.join(Switches.names())}."),
    ] = "",
    threads: Annotated[int, typer.Option(min=0, help="Of llama.cpp; 0: as many as the embedded engine takes.")] = 0,
    suffix: Annotated[list[str] | None, typer.Option(help="File endings to type of a repository; default .py.")] = None,
) -> None:
    """Our client and gateway beside llama.vim and llama.cpp's server: one recording, one model file, one run."""
    named = tuple(part.strip() for part in systems.split(",") if part.strip())
    if unknown := [name for name in named if name not in SYSTEMS]:
        fail(f"--systems: {', '.join(unknown)} is none of {', '.join(SYSTEMS)}")
    options = PeerOptions(
        source=recording,
        gguf=gguf,
        commits=int(commits) if commits.isdigit() else commits,
        suffixes=tuple(suffix or (".py",)),
        from_minute=from_minute,
        minutes=minutes,
        systems=named,
        live=live,
        layout=layout,
        rule=accept,
        debounce_ms=debounce_ms,
        with_=policy_switches(with_, "--with"),
        threads_wanted=threads,
    )
    try:
        with progress_bars() as progress:
            result = run_peer(options, progress=progress)
    except (ForetypeError, OSError) as error:
        fail(str(error))
    if as_json:
        print_json(result)
    else:
        _print(result)


def peer_page(
    results: Annotated[list[Path], typer.Argument(help="Files with the output of `bench peer --json`.")],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("docs/measurements/peers.md"),
) -> None:
    """Write the page about peers from result files."""
    try:
        write_page(out, results)
    except (PeerResultError, OSError) as error:
        fail(str(error))


def _print(result: dict[str, Any]) -> None:
    title = f"{result['recording']}: {result['keys']:,} keys; {result['model']}, {result['threads']} threads"
    table = Table("", *result["systems"], title=title, title_justify="left")
    for label, cells in table_of(result):
        table.add_row(label, *cells)
    console().print(table)
