"""`python -m foretype_models.use`: for the language server, which starts it."""

from __future__ import annotations

import typer

from foretype_models.use.cli import use

if __name__ == "__main__":
    typer.run(use)
