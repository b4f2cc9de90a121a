"""The HTML page: no script, no style sheet, no font and no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from foretype_eval.report.plots import bars, curves

_STYLE = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#111;background:#fff}
table{border-collapse:collapse;margin:1rem 0;width:100%}th,td{border-bottom:1px solid #bbb;padding:.25rem .5rem;text-align:right}
th:first-child,td:first-child{text-align:left}caption{text-align:left;font-weight:600}svg{max-width:100%;height:auto}
.note{color:#444}figure{margin:1rem 0}"""


def html_page(title: str, reports: Sequence[dict[str, Any]]) -> str:
    """The page of several runs, most important figures first."""
    body = [f"<h1>{escape(title)}</h1>"]
    for report in reports:
        body += _replay(report)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head><body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _replay(report: dict[str, Any]) -> list[str]:
    systems: dict[str, Any] = report["systems"]
    found = [f"<h2>Run {escape(report['run'])}</h2>"]
    saved = [(name, row["ksr"], _pair(row["ci"]["ksr"])) for name, row in systems.items() if row["ksr"] is not None]
    found.append(_figure(bars("Keystrokes saved", saved), "Keystrokes saved with 95 % intervals, commits resampled."))
    per = [(name, row["cpo"], _pair(row["ci"]["cpo"])) for name, row in systems.items() if row["cpo"] is not None]
    if per:
        found.append(
            _figure(
                bars("Accepted characters per opportunity", per, percent=False),
                next(iter(systems.values()))["retention_note"],
            )
        )
    rows = [
        (
            name,
            _percent(row["ksr"]),
            _range(row["ci"]["ksr"]),
            _number(row["cpo"]),
            f"{_percent(row['acceptance']['rate'])} of {row['acceptance']['denominator']:,}",
            _percent(row["show_rate"]),
            _percent(row["late_rate"]),
            _percent(row["cached_share"]),
            f"{row['requests']:,}",
        )
        for name, row in systems.items()
    ]
    heads = (
        "system",
        "saved",
        "95 %",
        "characters per opportunity",
        "right, of sessions",
        "shown",
        "late",
        "cached",
        "requests",
    )
    found.append(_table("Systems", heads, rows))
    for name, row in systems.items():
        found += _details(name, row)
    return found


def _details(name: str, row: dict[str, Any]) -> list[str]:
    found: list[str] = []
    stages = [(stage, entry["values"]) for stage, entry in row["stages_ms"].items()]
    if stages:
        found.append(
            _figure(curves(f"{name}: latency by stage", stages, "ms"), "Cumulative; a sample of the requests.")
        )
        cells = [
            (stage, entry["n"], entry["p50"], entry["p95"], entry["p99"]) for stage, entry in row["stages_ms"].items()
        ]
        found.append(_table(f"{name}: milliseconds by stage", ("stage", "n", "p50", "p95", "p99"), cells))
    for kind, slices in row["slices"].items():
        cells = [
            (
                value,
                f"{entry['sessions']:,}",
                _percent(entry.get("rate")),
                _range(entry.get("ci")),
                f"{entry['accepted_chars']:,}",
            )
            for value, entry in slices.items()
        ]
        heads = (kind, "sessions", "right", "95 % (Wilson)", "accepted characters")
        found.append(_table(f"{name}: by {kind}", heads, cells))
    if row["requests"]:
        cost = [(key.replace("_", " "), value) for key, value in row["cost"].items() if value is not None]
        found.append(_table(f"{name}: cost", ("", "value"), cost))
    return found


def _figure(svg: str, note: str) -> str:
    return f'<figure role="img">{svg}<figcaption class="note">{escape(note)}</figcaption></figure>'


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f"<th scope=col>{escape(head)}</th>" for head in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _pair(interval: Sequence[float] | None) -> tuple[float, float] | None:
    return None if interval is None else (interval[0], interval[1])


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _range(interval: Sequence[float] | None) -> str:
    return "–" if interval is None else f"{interval[0]:.1%} to {interval[1]:.1%}"
