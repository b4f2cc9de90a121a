"""The commands `foretype bench index`, `foretype bench large-repository` and `foretype eval retrieval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_context.terminal import console, say
from foretype_eval.console import print_json, progress_bars
from foretype_retrieval.embedder import Embedder
from foretype_retrieval.static_embedder import default_embedder
from rich.table import Table

from foretype_lab.retrieval.index_bench import bench_index
from foretype_lab.retrieval.large_repository import bench_large_repository
from foretype_lab.retrieval.recall import measure_recall
from foretype_lab.retrieval.repositories import load_repositories

Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="SOURCE...", help="A repository, a folder of repositories, or a .jsonl.gz shard of {repo, path, text}."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
EmbedderOption = Annotated[
    Path | None,
    typer.Option("--embedder", metavar="NAME_OR_PATH", help="Table (.npz) or sentence-transformers model."),
]


def _embedder(path: Path | None) -> Embedder | None:
    return default_embedder(path, complain=lambda reason: say(f"note: {reason}", err=True))


def index(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(metavar="SOURCE...", help="As of `eval retrieval`; default: this interpreter's library."),
    ] = None,
    chunks: Annotated[
        int, typer.Option(min=100, help="Chunks to index, about; fewer where there are no more.")
    ] = 100_000,
    questions: Annotated[int, typer.Option(min=10, help="Questions to ask.")] = 1_000,
    saves: Annotated[int, typer.Option(min=1, help="Saves to take in.")] = 50,
    embedder: EmbedderOption = None,
    as_json: AsJson = False,
) -> None:
    """Index, open, ask and update: chunks per second, memory, milliseconds."""
    report = bench_index(sources or [], embedder, chunks=chunks, questions=questions, saves=saves)
    if as_json:
        print_json(report)
        return
    table = Table("what", "measured", "aim", title=f"{report['chunks']:,} chunks of {report['files']:,} files")
    for name, row in report["figures"].items():
        table.add_row(name, str(row["value"]), f"{row['at']} {row['aim']}")
    console().print(table)


def large_repository(
    files: Annotated[int, typer.Option(min=100, help="Generated files, of one function each.")] = 200_000,
    saves: Annotated[int, typer.Option(min=1, help="Saves to take in.")] = 30,
    as_json: AsJson = False,
) -> None:
    """A generated repository of many files: first index, memory, and a save until it is found."""
    report = bench_large_repository(files=files, saves=saves)
    if as_json:
        print_json(report)
        return
    table = Table("what", "measured", title=f"{files:,} files, {report['first_index']['chunks']:,} chunks")
    for part in ("first_index", "kept"):
        for name, value in report[part].items():
            table.add_row(f"{part.replace('_', ' ')}: {name}", str(value))
    console().print(table)


def retrieval(
    sources: Sources,
    per_repository: Annotated[int, typer.Option(min=1, help="Places of one repository at most.")] = 120,
    seed: Annotated[int, typer.Option(help="Which places.")] = 1,
    embedder: EmbedderOption = None,
    as_json: AsJson = False,
) -> None:
    """Recall of the definition that the next line needs: fused, and each of its parts alone."""
    with progress_bars() as progress:
        report = measure_recall(
            load_repositories(sources),
            _embedder(embedder),
            per_repository=per_repository,
            seed=seed,
            progress=progress,
        )
    if as_json:
        print_json(report)
        return
    title = f"{report['places']:,} places of {report['repositories']} repositories; 95 % intervals over repositories"
    table = Table("ranking", "recall@1", "recall@5", "MRR", "fused minus it, recall@5", title=title)
    for name, figures in report["rankers"].items():
        cells = [_shown(figures[column]) for column in ("recall@1", "recall@5", "mrr")]
        table.add_row(name.replace("_", " "), *cells, _shown(report["fused_minus"].get(name)))
    console().print(table)


def _shown(interval: dict[str, Any] | None) -> str:
    if interval is None:
        return ""
    spread = "no interval" if interval["low"] is None else f"{interval['low']:.3f} – {interval['high']:.3f}"
    return f"{interval['estimate']:.3f} ({spread})"
