"""A report as HTML: the part that a page of the gateway shows, and a document that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any, cast

from foretype_backend.reports.words import SUPPRESSED, told

_HEADS = (
    ("acceptance", "accepted"),
    ("retained_per_opportunity", "kept 5 min, characters per opportunity"),
    ("persistence 1800 s", "mostly unchanged after 30 min"),
    ("keystrokes_saved", "keystrokes saved"),
    ("cancel_rate", "cancelled"),
    ("parses", "parse"),
    ("cost_per_accepted_token", "cost per accepted token"),
)


def style() -> str:
    """Of every page here, light and dark."""
    return (files("foretype_backend.reports") / "page.css").read_text("utf-8")


def document(report: dict[str, Any]) -> str:
    """One page without a script, and with nothing from elsewhere."""
    title = f"Foretype {report['period']['name']}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style()}</style></head><body><main>\n{part(report)}\n</main></body></html>\n"
    )


def part(report: dict[str, Any]) -> str:
    """The report's headings and tables."""
    period = report["period"]
    of = f"team {report['team']}" if report["team"] is not None else f"tenant {report['tenant']}"
    made = [f"<h1>{escape(period['name'])}, {escape(of)}</h1>", f"<p>{period['first']} to {period['last']}, UTC.</p>"]
    total = report["total"]
    if SUPPRESSED in total:
        made.append(f"<p>Not shown: {escape(str(total[SUPPRESSED]))}.</p>")
    else:
        rows = [(line.name.replace("_", " "), line.value, line.interval, line.of) for line in told(total)]
        made.append(table(f"{report['users']} users", ("figure", "value", "95 %", "of"), rows))
    if report["feels"] is not None:
        made.append(_feels(report["feels"]))
    for split, rows in report["by"].items():
        if isinstance(rows, dict):
            made.append(f"<p>By {escape(str(split))}: {escape(str(cast('dict[str, str]', rows)[SUPPRESSED]))}.</p>")
        elif rows:
            made.append(_split(str(split), rows))
    meanings = [(name.replace("_", " "), meaning) for name, meaning in report["definitions"].items()]
    made.append(table("What each figure is", ("figure", "is"), meanings, text=True))
    return "\n".join(made)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], *, text: bool = False) -> str:
    """A table whose first column names its rows; the others are numbers, unless they are `text`."""
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(str(row[0]))}</th>'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    kind = ' class="text"' if text else ""
    # What is wider than the window is scrolled by itself, with the arrow keys too.
    return (
        f'<div class="scrolls" tabindex="0" role="region" aria-label="{escape(caption)}"><table{kind}>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _split(split: str, rows: Sequence[dict[str, Any]]) -> str:
    made: list[list[str]] = []
    for row in rows:
        name = row["name"] or "(not told)"
        if SUPPRESSED in row:
            made.append([name, "not shown: too few users", *[""] * len(_HEADS)])
            continue
        lines = {line.name: line for line in told(row)}
        shown = [lines[name] for name, _ in _HEADS]
        made.append([name, str(row["users"]), *(f"{one.value} of {one.of.partition(' ')[0]}" for one in shown)])
    return table(f"By {split}", (split, "users", *(head for _, head in _HEADS)), made)


def _feels(feels: dict[str, Any]) -> str:
    rows = [
        (
            row["answer"],
            f"{row['value']:.0%}",
            "" if row["low"] is None else f"{row['low']:.0%} to {row['high']:.0%}",
            *("–" if row[name] is None else f"{row[name]:,.0f}" for name in ("p50_ms", "p95_ms")),
        )
        for row in feels["rows"]
    ]
    heads = ("answer", "share", "95 %", "own p50, ms", "own p95, ms")
    return table(f"Completions feel instant: {feels['answers']} answers", heads, rows)
