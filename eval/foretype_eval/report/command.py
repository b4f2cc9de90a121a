"""The command `foretype eval report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from foretype_context.terminal import say

from foretype_eval.compare.runs import load_run
from foretype_eval.console import fail, tell
from foretype_eval.report.figures import Prices, run_figures
from foretype_eval.report.page import html_page


def report(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders or items.jsonl of `eval replay --out`.")] = None,
    out: Annotated[Path, typer.Option(help="The page; the JSON is written beside it.")] = Path("report.html"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    title: Annotated[str, typer.Option()] = "Foretype report",
    price_hour: Annotated[float | None, typer.Option(min=0, help="Price of the machine for an hour.")] = None,
    prefill_rate: Annotated[float, typer.Option(min=1, help="Prompt tokens it computes in a second.")] = 10_000.0,
    decode_rate: Annotated[float, typer.Option(min=1, help="Tokens it generates in a second.")] = 300.0,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """One HTML page with plots that needs nothing else, and JSON beside it."""
    prices = None
    if price_hour is not None:
        prices = Prices(hour=price_hour, prefill_tokens_per_s=prefill_rate, decode_tokens_per_s=decode_rate)
    reports: list[dict[str, Any]] = []
    for path in runs or []:
        run = load_run(path)
        if not run.replay:
            fail(f"{path}: rows of a benchmark; `eval fim` prints its own summary, and `eval compare` joins two")
        reports.append(run_figures(run, prices=prices, seed=seed))
    if not reports:
        fail("name a run; what a team's suggestions were worth is `foretype report`")
    out.write_text(html_page(title, reports), "utf-8")
    slim = {"title": title, "reports": [_without_samples(each) for each in reports]}
    out.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(slim), indent=2) + b"\n")
    tell(slim, lambda _: say(f"{out} and {out.with_suffix('.json')}"), as_json=as_json)


def _without_samples(figures: dict[str, Any]) -> dict[str, Any]:
    for row in figures.get("systems", {}).values():
        for stage in row["stages_ms"].values():
            stage.pop("values", None)
    return figures
