"""The command `foretype bench prefill`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from foretype_context.errors import ForetypeError
from foretype_context.prompt.profile import Budgets
from foretype_context.terminal import console
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_eval.console import fail, print_json, progress_bars
from foretype_models.artifacts import locate
from rich.table import Table

from foretype_lab.prefill.asking_moments import Cause, moments_of
from foretype_lab.prefill.measure import LAYOUTS, MeasureOptions, measure
from foretype_lab.prefill.typed_commits import recording_of

_PIPE_COLUMNS: Final = 140

Progress = Callable[[str, int, int], None]


class PrefillOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, on what.

    Attributes:
        commits: of a repository: the newest N, or a range `A..B`.
        after_deletions: also ask after changes that insert nothing.
        seed: of the typist's rhythm when commits are typed.
    """

    source: Path
    commits: int | str = 10
    suffixes: tuple[str, ...] = (".py",)
    seed: int = 0
    block_tokens: int = 16
    layouts: tuple[str, ...] = LAYOUTS
    grammar: str | None = None
    prompt_tokens: int | None = None
    suffix_tokens: int | None = None
    debounce_ms: float = 75.0
    after_deletions: bool = True


def run_prefill(options: PrefillOptions, *, progress: Progress = lambda _step, _done, _total: None) -> dict[str, Any]:
    """Measure, and return the report.

    Raises:
        RecordingError, RepositoryError, OSError: the input cannot be read.
        ArtifactError, TokenizerError: no tokenizer.
        ProfileError: the budget is too small, or the grammar has no such layout.
        UnknownGrammarError: no such family.
    """
    shipped = locate()
    tokenizer, grammar = load_tokenizer(shipped.tokenizer_path), options.grammar or shipped.grammar
    recording = recording_of(
        options.source, options.commits, suffixes=options.suffixes, seed=options.seed, progress=progress
    )
    moments = list(moments_of(recording, debounce_ms=options.debounce_ms, after_deletions=options.after_deletions))
    chosen = {"prompt_tokens": options.prompt_tokens, "suffix_tokens": options.suffix_tokens}
    budgets = msgspec.structs.replace(Budgets(), **{name: value for name, value in chosen.items() if value is not None})
    measured = measure(
        moments,
        tokenizer,
        MeasureOptions(
            layouts=options.layouts,
            grammar=grammar,
            own_layout=shipped.profile.get("layout") if options.grammar is None else None,
            block_tokens=options.block_tokens,
            budgets=budgets,
        ),
        progress=lambda done: progress("requests", done, len(moments)),
    )
    return {
        **measured,
        "recording": recording.name,
        "grammar": grammar,
        "block_tokens": options.block_tokens,
        "debounce_ms": options.debounce_ms,
        "after_deletions": options.after_deletions,
        "seed": options.seed,
        "budgets": msgspec.to_builtins(budgets),
        "tokenizer_digest": tokenizer.digest,
        "left_out": recording.notes,
    }


def prefill(
    source: Annotated[Path, typer.Argument(help="A recording (*.recording.w.json, JSON lines), or a git repository.")],
    commits: Annotated[str, typer.Option(help="Of a repository: number of newest commits, or a range A..B.")] = "10",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    block: Annotated[int, typer.Option(min=1, max=1024, help="Tokens in a block of the cache.")] = 16,
    layout: Annotated[list[str] | None, typer.Option(help="These only; may be repeated.")] = None,
    grammar: Annotated[
        str | None,
        typer.Option(
            help="Of the model; default is the shipped model's. The layout that it is served in, or its first, is `default`."
        ),
    ] = None,
    prompt_tokens: Annotated[int | None, typer.Option(min=64, help="Of a prompt; default is the profile's.")] = None,
    suffix_tokens: Annotated[int | None, typer.Option(min=0, help="Of it below the caret; default likewise.")] = None,
    debounce_ms: Annotated[float, typer.Option(min=0)] = 75.0,
    after_deletions: Annotated[bool, typer.Option(help="Also ask after changes that insert nothing.")] = True,
    suffix: Annotated[list[str] | None, typer.Option(help="File endings to type; default .py.")] = None,
    seed: Annotated[int, typer.Option(help="Of the typist's rhythm.")] = 0,
) -> None:
    """Prompt tokens that a prefix cache must compute per new token, in each of our layouts."""
    layouts = tuple(layout or LAYOUTS)
    if unknown := [name for name in layouts if name not in LAYOUTS]:
        fail(f"--layout: {', '.join(unknown)} is none of {', '.join(LAYOUTS)}")
    options = PrefillOptions(
        source=source,
        commits=int(commits) if commits.isdigit() else commits,
        suffixes=tuple(suffix or (".py",)),
        seed=seed,
        block_tokens=block,
        layouts=layouts,
        grammar=grammar,
        prompt_tokens=prompt_tokens,
        suffix_tokens=suffix_tokens,
        debounce_ms=debounce_ms,
        after_deletions=after_deletions,
    )
    try:
        with progress_bars() as progress:
            result = run_prefill(options, progress=progress)
    except (ForetypeError, OSError) as error:
        fail(str(error))
    if as_json:
        print_json(result)
    else:
        screen = console()
        # In a pipe there is no width to respect, and half a figure is none.
        if not screen.is_terminal:
            screen = console(width=_PIPE_COLUMNS)
        screen.print(_table(result))


def _table(result: dict[str, Any]) -> Table:
    title = (
        f"{result['recording']}: {result['requests']:,} requests, {result['new_tokens']:,} new tokens "
        f"({result['typed_tokens']:,} typed); blocks of {result['block_tokens']}"
    )
    table = Table(title=title, title_justify="left", caption="computed tokens per request, by what happened before it")
    table.add_column("layout", no_wrap=True, min_width=15)
    for column in ("computed", "ratio", "typed", "cached", *(cause.value.replace("_", " ") for cause in Cause)):
        table.add_column(column, justify="right")
    for name, row in result["layouts"].items():
        shown = f"{name} *" if name == result["default"] else name
        causes = [row["by_cause"][cause.value] for cause in Cause]
        table.add_row(
            shown,
            f"{row['computed_tokens']:,}",
            *("–" if row[key] is None else f"{row[key]:.2f}" for key in ("ratio", "ratio_typed")),
            "–" if row["cached_share_session"] is None else f"{row['cached_share_session']:.1%}",
            *("–" if not one["requests"] else f"{one['computed_tokens'] / one['requests']:.0f}" for one in causes),
        )
    counts = next(iter(result["layouts"].values()))["by_cause"]
    table.add_row("requests", "", "", "", "", *(f"{counts[cause.value]['requests']:,}" for cause in Cause))
    return table
