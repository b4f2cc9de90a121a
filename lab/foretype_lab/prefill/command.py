"""The command `foretype bench prefill`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from foretype_context.prompt.profile import Budgets
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_eval.console import fail, print_table, progress_bars, tell
from foretype_models.artifacts import locate

from foretype_lab.prefill.asking_moments import Cause, moments_of
from foretype_lab.prefill.measure import LAYOUTS, MeasureOptions, measure
from foretype_lab.prefill.typed_commits import recording_of


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
    shipped = locate()
    tokenizer, spoken = load_tokenizer(shipped.tokenizer_path), grammar or shipped.grammar
    chosen = {"prompt_tokens": prompt_tokens, "suffix_tokens": suffix_tokens}
    budgets = msgspec.structs.replace(Budgets(), **{name: value for name, value in chosen.items() if value is not None})
    options = MeasureOptions(
        layouts=layouts,
        grammar=spoken,
        own_layout=shipped.profile.get("layout") if grammar is None else None,
        block_tokens=block,
        budgets=budgets,
    )
    with progress_bars() as progress:
        selection = int(commits) if commits.isdigit() else commits
        suffixes = tuple(suffix or (".py",))
        recording = recording_of(source, selection, suffixes=suffixes, seed=seed, progress=progress)
        moments = list(moments_of(recording, debounce_ms=debounce_ms, after_deletions=after_deletions))
        many = len(moments)
        measured = measure(moments, tokenizer, options, progress=lambda done: progress("requests", done, many))
    result = {
        **measured,
        "recording": recording.name,
        "grammar": spoken,
        "block_tokens": block,
        "debounce_ms": debounce_ms,
        "after_deletions": after_deletions,
        "seed": seed,
        "budgets": msgspec.to_builtins(budgets),
        "tokenizer_digest": tokenizer.digest,
        "left_out": recording.notes,
    }
    tell(result, _print, as_json=as_json)


def _print(result: dict[str, Any]) -> None:
    title = (
        f"{result['recording']}: {result['requests']:,} requests, {result['new_tokens']:,} new tokens "
        f"({result['typed_tokens']:,} typed); blocks of {result['block_tokens']}"
    )
    causes = [cause.value for cause in Cause]
    rows: list[list[str | None]] = []
    for name, row in result["layouts"].items():
        by_cause = [row["by_cause"][cause] for cause in causes]
        cached = row["cached_share_session"]
        rows.append(
            [
                f"{name} *" if name == result["default"] else name,
                f"{row['computed_tokens']:,}",
                *(None if row[key] is None else f"{row[key]:.2f}" for key in ("ratio", "ratio_typed")),
                None if cached is None else f"{cached:.1%}",
                *(f"{one['computed_tokens'] / one['requests']:.0f}" if one["requests"] else None for one in by_cause),
            ]
        )
    counts = next(iter(result["layouts"].values()))["by_cause"]
    rows.append(["requests", "", "", "", "", *(f"{counts[cause]['requests']:,}" for cause in causes)])
    columns = ("layout", "computed", "ratio", "typed", "cached", *(cause.replace("_", " ") for cause in causes))
    print_table(title, columns, rows, caption="computed tokens per request, by what happened before it")
