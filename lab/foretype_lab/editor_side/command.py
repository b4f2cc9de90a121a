"""The commands `foretype bench footprint`, `foretype bench large-file` and `foretype bench context`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import typer
from foretype_eval.console import print_table, tell

from foretype_lab.editor_side.assembly import measure_context
from foretype_lab.editor_side.footprint import measure_footprint
from foretype_lab.editor_side.large_file import measure_large_file

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def footprint(
    as_json: AsJson = False,
    imports: Annotated[int, typer.Option(min=0, help="Interpreters that import the language server.")] = 10,
    idle_s: Annotated[float, typer.Option(min=0, help="Seconds of silence that are watched; 0: none.")] = 20.0,
    settle_s: Annotated[float, typer.Option(min=0, help="Seconds of silence before that.")] = 10.0,
) -> None:
    """Import time of the language server; its memory and the private gateway's; processor time while nobody types."""
    tell(asyncio.run(measure_footprint(imports=imports, idle_s=idle_s, settle_s=settle_s)), _print, as_json=as_json)


def large_file(
    as_json: AsJson = False,
    files: Annotated[int, typer.Option(min=1, help="Opened one after the other; each is one first key.")] = 12,
    lines: Annotated[int, typer.Option(min=100, max=20_000)] = 10_000,
    keys: Annotated[int, typer.Option(min=2, max=40, help="Typed in each.")] = 20,
    rest_s: Annotated[float, typer.Option(min=0, help="From opening a file to its first key.")] = 0.5,
) -> None:
    """The first key in a large file that was just opened, through the real language server, and the keys after it."""
    tell(asyncio.run(measure_large_file(files=files, lines=lines, keys=keys, rest_s=rest_s)), _print, as_json=as_json)


def context(
    as_json: AsJson = False,
    lines: Annotated[int, typer.Option(min=100, max=20_000, help="Of the file that is typed in.")] = 10_000,
    keys: Annotated[int, typer.Option(min=20, help="Typed characters, each one measurement.")] = 2_000,
    snippets: Annotated[int, typer.Option(min=0, help="Candidates from other files per request.")] = 24,
    seed: Annotated[int, typer.Option(help="Where it is typed.")] = 0,
) -> None:
    """What a key costs in the editor's process, in the shipped model's layout: the change, the parse, the prompt."""
    tell(measure_context(lines=lines, keys=keys, snippets=snippets, seed=seed), _print, as_json=as_json)


def _print(report: dict[str, Any]) -> None:
    rows = [(name, msgspec.json.encode(value).decode()) for name, value in report.items()]
    print_table("", ("what", "measured"), rows, words=("measured",))
