"""`python -m foretype_lab bench|eval|models COMMAND`: the laboratory's commands where `foretype` does not know of it."""

from __future__ import annotations

import typer

from foretype_lab import commands, model_commands

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(commands.bench, name="bench")
app.add_typer(commands.evaluate, name="eval")
app.add_typer(model_commands.app, name="models")

if __name__ == "__main__":
    app(prog_name="python -m foretype_lab")
