"""The commands `foretype bench index`, `foretype bench large-repository` and `foretype eval retrieval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_context.terminal import say
from foretype_eval.console import print_json, print_table, progress_bars, tell
from foretype_retrieval.embedder import Embedder
from foretype_retrieval.static_embedder import default_embedder

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
    tell(report, _print_index, as_json=as_json)


def _print_index(report: dict[str, Any]) -> None:
    rows = [(name, row["value"], f"{row['at']} {row['aim']}") for name, row in report["figures"].items()]
    print_table(f"{report['chunks']:,} chunks of {report['files']:,} files", ("what", "measured", "aim"), rows)


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
    parts = {"first index": report["first_index"], "kept": report["kept"]}
    rows = [(f"{part}: {name}", value) for part, measured in parts.items() for name, value in measured.items()]
    print_table(f"{files:,} files, {report['first_index']['chunks']:,} chunks", ("what", "measured"), rows)


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
    rows: list[list[str]] = []
    for name, figures in report["rankers"].items():
        cells = [_shown(figures[column]) for column in ("recall@1", "recall@5", "mrr")]
        rows.append([name.replace("_", " "), *cells, _shown(report["fused_minus"].get(name))])
    print_table(title, ("ranking", "recall@1", "recall@5", "MRR", "fused minus it, recall@5"), rows)


def _shown(interval: dict[str, Any] | None) -> str:
    if interval is None:
        return ""
    spread = "no interval" if interval["low"] is None else f"{interval['low']:.3f} – {interval['high']:.3f}"
    return f"{interval['estimate']:.3f} ({spread})"
