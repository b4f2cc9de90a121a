"""The commands `foretype bench resume` and `foretype bench apart`."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import typer
from foretype_context.terminal import console
from foretype_eval.console import fail, print_json
from foretype_models.artifacts import locate
from foretype_models.errors import ArtifactError
from rich.table import Table

from foretype_lab.errors import ExportError, VllmError
from foretype_lab.model_files.export import write_safetensors
from foretype_lab.model_files.gguf_file import read_config, read_weights
from foretype_lab.served.apart import apart
from foretype_lab.served.resume import resumed

__all__ = ["prefill_apart", "resume"]

_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
_Seed = Annotated[int, typer.Option(help="Of the prompts.")]


def resume(
    tokens: Annotated[list[int] | None, typer.Option(min=256, max=7000, help="Of a session; repeatable.")] = None,
    sessions: Annotated[int, typer.Option(min=3, help="Of each length.")] = 6,
    seed: _Seed = 0,
    as_json: _Json = False,
) -> None:
    """First token of a chat session that is taken up again: its blocks in the engine's memory, in the host's, and gone."""
    with _measuring() as (model, scratch):
        rows = [
            asyncio.run(resumed(model, _new(scratch, str(one)), history_tokens=one, sessions=sessions, seed=seed))
            for one in tokens or [1000, 4000]
        ]
    if as_json:
        print_json({"rows": rows})
        return
    table = Table("tokens", "blocks", "n", "first token p50 ms", "longest")
    for row in rows:
        for place, found in row["first_token_ms"].items():
            middle, longest = statistics.median(found), max(found)
            table.add_row(
                str(row["history_tokens"]),
                place.replace("_", " "),
                str(len(found)),
                f"{middle:.1f}",
                f"{longest:.1f}",
            )
    console().print(table)


def prefill_apart(
    steps: Annotated[list[int] | None, typer.Option(min=64, help="Tokens that a step computes; repeatable.")] = None,
    seconds: Annotated[float, typer.Option(min=5, help="Of each row.")] = 30.0,
    developers: Annotated[int, typer.Option(min=2, max=8)] = 4,
    seed: _Seed = 0,
    as_json: _Json = False,
) -> None:
    """Prompts computed on one `vllm serve` and answers on another, beside two that do both; one core each, so two are needed."""
    with _measuring() as (model, scratch):
        rows = asyncio.run(
            apart(model, scratch, steps=tuple(steps or (2048, 256)), seconds=seconds, developers=developers, seed=seed)
        )
    if as_json:
        print_json({"rows": rows})
        return
    table = Table(
        *("step", "work", "way", "answers", "tokens/s", "first p50", "first p95", "gap p50", "gap p99"),
        *("longest gap p50", "p95", "handed over"),
        title="ms",
    )
    for row in rows:
        cells: list[Any] = [row["step_tokens"], row["work"], row["way"], row["answers"], row["tokens_per_s"]]
        for key in ("first_token_ms", "gap_ms", "longest_gap_ms"):
            cells += row[key].values()
        table.add_row(*map(str, [*cells, "–" if row["handed_over_tokens"] is None else row["handed_over_tokens"]]))
    console().print(table)


@contextlib.contextmanager
def _measuring() -> Generator[tuple[Path, Path]]:
    """The shipped model as vLLM loads it, and a folder that goes; what cannot be measured is told."""
    try:
        with tempfile.TemporaryDirectory(prefix="foretype-served-") as scratch:
            shipped = locate()
            config = read_config(shipped.path)
            folder = Path(scratch) / "model"
            write_safetensors(read_weights(shipped.path, config), config, shipped.tokenizer_path, folder)
            yield folder, Path(scratch)
    except (VllmError, ArtifactError, ExportError, OSError) as error:
        fail(str(error))


def _new(folder: Path, name: str) -> Path:
    found = folder / name
    found.mkdir()
    return found
