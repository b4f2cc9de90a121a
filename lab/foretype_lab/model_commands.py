"""What the laboratory adds to ``foretype models``. Heavy imports are inside the commands, so that ``foretype --help`` stays fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from foretype_models.fetch.commands import fail

app = typer.Typer(help="Model files: what they do where nothing is right or wrong yet.", no_args_is_help=True)


@app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction] - a group of one command is still a group, which joins the package's
    """What the laboratory adds."""


@app.command()
def behave(
    model: Annotated[Path, typer.Argument(help="GGUF file, served in the grammar and layout that it says")],
    store: Annotated[Path, typer.Option(help="folder with the text store validation/ (lab/README.md)")],
    cuts: Annotated[int, typer.Option(min=1, help="of each language and kind")] = 100,
    languages: Annotated[str | None, typer.Option(help="by comma; all that the store has if not given")] = None,
    layout: Annotated[str | None, typer.Option(help="prompt layout; default is the one that the file says")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")] = False,
) -> None:
    """Measures what a model's answers do on held-out files: exact lines, ends, loops, harm to the syntax; by language."""
    import asyncio

    from foretype_context.errors import ForetypeError
    from foretype_eval.console import progress_bars, tell

    from foretype_lab.quality import behave as measuring

    wanted = None if languages is None else tuple(filter(None, languages.split(",")))
    try:
        with progress_bars() as progress:
            work = measuring.measure(model, store, cuts=cuts, languages=wanted, layout=layout, progress=progress)
            result = asyncio.run(work)
    except (ForetypeError, OSError) as error:
        raise fail(str(error)) from error
    tell(result, measuring.show, as_json=as_json)
