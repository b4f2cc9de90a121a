"""The command `foretype eval next-edit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from foretype_context.terminal import console
from foretype_lsp.options import Eagerness
from rich.table import Table

from foretype_eval.console import fail, print_json, progress_bars
from foretype_eval.errors import RecordingError, RepositoryError
from foretype_eval.next_edit.commits import SUFFIXES
from foretype_eval.next_edit.run import ENGINES, Found, on_cases, on_repositories

__all__ = ["next_edit"]


def next_edit(
    cases: Annotated[
        Path | None, typer.Option(help="Folder of scored fixtures, or one recording, in vscode-copilot-chat's formats.")
    ] = None,
    repo: Annotated[
        list[Path] | None, typer.Option(help="Git repository whose commits are typed a part of; may be given again.")
    ] = None,
    commits: Annotated[str, typer.Option(help="With --repo: number of newest commits, or a range A..B.")] = "50",
    suffix: Annotated[
        list[str] | None, typer.Option(help="With --repo: file endings; default is every language with a syntax.")
    ] = None,
    engine: Annotated[str, typer.Option(help=f"Of {', '.join(ENGINES)}.")] = "rules",
    eagerness: Annotated[
        Eagerness, typer.Option(help="Which evidence is shown, as the editors' setting.")
    ] = Eagerness.MEDIUM,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    wrong: Annotated[
        Path | None, typer.Option(help="Write what was offered and not wanted, with its lines, as JSON lines.")
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Measure next edits on cases whose next edit is known: how many are offered, right and wrong, and what that saves."""
    if (cases is None) == (not repo):
        fail("--cases, --repo: give one of both: fixtures or a recording, or a repository")
    if engine not in ENGINES:
        fail(f"--engine: {engine!r} is none of {', '.join(ENGINES)}")
    try:
        with progress_bars() as progress:
            found = _run(cases, repo or (), commits, engine, eagerness, tuple(suffix or SUFFIXES), seed, progress)
        if wrong is not None:
            wrong.write_bytes(b"".join(msgspec.json.encode(asdict(one)) + b"\n" for one in found.mistakes))
    except (RecordingError, RepositoryError, OSError) as error:
        fail(str(error))
    if as_json:
        print_json(found.result)
    else:
        _print(found.result)


def _run(
    cases: Path | None,
    repos: Sequence[Path],
    commits: str,
    engine: str,
    eagerness: Eagerness,
    suffixes: tuple[str, ...],
    seed: int,
    progress: Any,
) -> Found:
    if cases is not None:
        return on_cases(cases, engine, eagerness=eagerness, seed=seed, progress=progress)
    selection = int(commits) if commits.isdigit() else commits
    return on_repositories(
        repos, selection, engine, eagerness=eagerness, suffixes=suffixes, seed=seed, progress=progress
    )


def _print(result: dict[str, Any]) -> None:
    table = Table(title=f"{result['source']}: {result['kind']}", title_justify="left")
    table.add_column("")
    for column in (
        "opportunities",
        "shown",
        "right",
        "wrong",
        "precision",
        "recall",
        "wrong / 1,000 keys",
        "keys saved",
        "ms p50 / p99",
    ):
        table.add_column(column, justify="right")

    def add(name: str, row: dict[str, Any]) -> None:
        ci = row["ci"]
        table.add_row(
            name,
            *(f"{row[key]:,}" for key in ("opportunities", "shown", "right", "wrong")),
            *(_share(row[key], ci[key]) for key in ("precision", "recall")),
            "–"
            if row["wrong_per_1000_keys"] is None
            else f"{row['wrong_per_1000_keys']:.2f}{_ends(ci['wrong_per_1000_keys'], '.2f')}",
            f"{row['keys_saved']:,}",
            f"{row['ms']['p50']} / {row['ms']['p99']}",
        )

    for name, row in {result["engine"]: result, **result["floors"]}.items():
        add(name, row)
        for part in ("renames", "signatures"):
            if part in row and row[part]["opportunities"]:
                add(f"  {part}", row[part])
    console().print(table)


def _share(value: float | None, ci: list[float] | None) -> str:
    return "–" if value is None else f"{value:.1%}{_ends(ci, '.0%')}"


def _ends(ci: list[float] | None, form: str) -> str:
    return "" if ci is None else f" ({ci[0]:{form}} to {ci[1]:{form}})"
