"""`foretype bench speculation`: the table of :mod:`foretype_lab.speculation.bench`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from foretype_backend.errors import EngineUnavailableError
from foretype_eval.console import fail, print_json, print_table

from foretype_lab.speculation.bench import DRAFT, METHODS, SpeculationOptions, measure


def speculation(
    model: Annotated[Path, typer.Argument(help="folder with config.json, safetensors and tokenizer.json", exists=True)],
    store: Annotated[Path, typer.Option(help="folder with the text store", exists=True)],
    languages: Annotated[str, typer.Option(help="by comma")] = "python,javascript,go,shellscript",
    methods: Annotated[str, typer.Option(help=f"by comma, of {', '.join(METHODS)}")] = "ngram",
    at_once: Annotated[str, typer.Option(help="requests at once, by comma")] = "1,4,8",
    samples: Annotated[int, typer.Option(help="places of each language", min=1)] = 8,
    guesses: Annotated[int, typer.Option(help="tokens guessed in a step, at most", min=1)] = 4,
    draft_layers: Annotated[
        int, typer.Option(help=f"of {DRAFT}: the shipped network's first layers are the draft", min=0)
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")] = False,
) -> None:
    """What guessing tokens is worth on this machine's vLLM, by language and load, beside the same requests without it."""
    wanted = tuple(methods.split(","))
    if unknown := set(wanted) - set(METHODS):
        fail(f"--methods: there is no method {min(unknown)}; there are {', '.join(METHODS)}")
    if DRAFT in wanted and not draft_layers:
        fail(f"--draft-layers: the method {DRAFT} needs a number, 1 or more and fewer than the network has")
    options = SpeculationOptions(
        model=model,
        store=store,
        languages=tuple(languages.split(",")),
        methods=wanted,
        at_once=tuple(map(int, at_once.split(","))),
        samples=samples,
        guesses=guesses,
        draft_layers=draft_layers,
    )
    try:
        rows = asyncio.run(measure(options))
    except (EngineUnavailableError, ValueError) as error:
        fail(str(error))
    if as_json:
        print_json({"rows": [row._asdict() for row in rows]})
        return
    told = "at once", "language", "tokens/s", "times", "accepted", "tokens a step", "a step takes, times", "breaks even"
    cells = [
        [
            *(row.method, row.at_once, row.language, f"{row.tokens_per_s:.1f}", f"{row.gain:.2f}"),
            *(f"{row.accepted_share:.0%}", f"{row.tokens_per_step:.2f}", f"{row.step_ratio:.2f}"),
            *(f"{row.breaks_even:.0%}", f"{row.equal} of {row.requests}"),
        ]
        for row in rows
    ]
    print_table("", ("method", *told, "equal"), cells)
