"""The command `foretype bench context`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from foretype_context.errors import TokenizerError, UnknownGrammarError, UnknownLayoutError
from foretype_context.grammars.grammar import grammar
from foretype_context.terminal import console
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_eval.console import fail, print_json, progress_bars
from foretype_models.artifacts import locate
from foretype_models.errors import ArtifactError
from rich.table import Table

from foretype_lab.keystroke_cost.measure import ContextOptions, measure_context

__all__ = ["context"]


def context(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    lines: Annotated[int, typer.Option(min=100, max=20_000, help="Of the file that is typed in.")] = 10_000,
    keys: Annotated[int, typer.Option(min=20, help="Typed characters, each one measurement.")] = 2_000,
    snippets: Annotated[int, typer.Option(min=0, help="Candidates from other files per request.")] = 24,
    seed: Annotated[int, typer.Option(help="Where it is typed.")] = 0,
) -> None:
    """Measure what a key costs in the editor's process, in the shipped model's layout: the change, the parse, the prompt; and memory per document."""
    try:
        model = locate()
        tokenizer = load_tokenizer(model.tokenizer_path)
        family = grammar(model.grammar)
        layout = family.layout(own=model.profile.get("layout"))
        with progress_bars() as progress:
            options = ContextOptions(
                lines=lines, keys=keys, snippets=snippets, grammar=family.id, layout=layout, seed=seed
            )
            result = measure_context(tokenizer, options, progress=progress)
    except (ArtifactError, TokenizerError, UnknownGrammarError, UnknownLayoutError, OSError) as error:
        fail(str(error))
    if as_json:
        print_json(result)
    else:
        console().print(_table(result))


def _table(result: dict[str, Any]) -> Table:
    memory = result["memory"]
    table = Table(
        title=f"{result['lines']:,} lines, {result['keys']:,} keys, {result['snippets']} snippets; ms",
        title_justify="left",
        caption=f"memory per byte of text: {memory['opened_per_byte']} opened, {memory['used_per_byte']} in use",
    )
    for name in ("", "p50", "p95", "p99", "max"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for name, shown in (("didchange", "didChange"), ("assembly", "assembly"), ("syntax", "… of it syntax")):
        table.add_row(shown, *(f"{value:.3f}" for value in result[f"{name}_ms"].values()))
    return table
