"""`python -m foretype_lab.corpus_table --store FOLDER --out FILE`: builds the corpus table of the adaptive model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from foretype_context.terminal import say, say_json

from foretype_lab.corpus.store import Store
from foretype_lab.corpus_table.build import build_table
from foretype_lab.errors import LabError


def main(
    store: Annotated[Path, typer.Option(help="Text store to count, as `foretype models` prepares it.")],
    out: Annotated[Path, typer.Option(help="File to write.")],
    megabytes_per_repository: Annotated[float, typer.Option(min=0.01)] = 5.0,
    lexemes: Annotated[int, typer.Option(min=256, max=60_000, help="Size of the vocabulary.")] = 8192,
    bytes_max: Annotated[int, typer.Option(min=10_000, help="Size of the file.")] = 5_000_000,
) -> None:
    """Count a text store and write the table."""
    try:
        result = build_table(
            Store(store),
            out,
            bytes_per_repository=int(megabytes_per_repository * 1_000_000),
            lexemes=lexemes,
            bytes_max=bytes_max,
        )
    except (LabError, OSError) as error:
        say(str(error), err=True)
        raise typer.Exit(1) from error
    say_json(result)


if __name__ == "__main__":
    typer.run(main)
