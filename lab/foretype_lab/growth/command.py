"""`foretype bench growth`: what ten times as much of something costs, as an exponent.

An exponent of 1 is ten times as much for ten times as many, 0 is no more. What does not depend on the number, such as what a process
takes at its start, is in both figures, so an exponent below 1 promises nothing of larger numbers.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import typer
from foretype_eval.console import print_table, progress_bars, tell

from foretype_lab.all_rows.table import picked
from foretype_lab.processes import measured_apart

TIMES: Final = 10


class Grown(NamedTuple):
    """What there is ten times as much of, how many at first, and by name where its figures stand in the report of :mod:`.parts`."""

    of: str
    few: int
    figures: dict[str, str]


GROWN: Final = {
    "files": Grown(
        "files of a repository",
        2_000,
        {
            "first index, processor s": "first_index.cpu_s",
            "first index, most memory, MiB": "first_index.peak_mib",
            "index in use, memory, MiB": "kept.of_it_index_mib",
            "a save until it is found, processor ms": "kept.save_cpu_ms.p50",
        },
    ),
    "sessions": Grown(
        "silent sessions of a gateway",
        200,
        {
            "memory of one, bytes": "bytes_per_idle_session",
            "a request of others beside them, processor ms": "gateway_cpu_ms_per_request",
        },
    ),
    "lines": Grown(
        "lines of a file",
        1_000,
        {
            "a key, processor ms": "didchange_cpu_ms.p50",
            "the prompt behind it, processor ms": "assembly_cpu_ms.p50",
            "opening it, ms": "open_ms",
        },
    ),
    "tokens": Grown(
        "tokens of a prompt",
        200,
        {"text into ids, processor ms": "encode_ms", "first token, nothing cached, processor ms": "first_ms"},
    ),
    "tenants": Grown(
        "tenants",
        100,
        {
            "reading all of them, processor ms": "snapshot_ms",
            "memory of them, MiB": "mib",
            "whose a key is, microseconds": "of_key_us",
        },
    ),
}


def growth(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    only: Annotated[str, typer.Option(help=f"Of {', '.join(GROWN)}.")] = ",".join(GROWN),
) -> None:
    """Exponents of time and memory at ten times the files, sessions, lines, tokens of a prompt, tenants."""
    names = only.split(",")
    if unknown := [name for name in names if name not in GROWN]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(GROWN)}", param_hint="--only")
    rows: list[dict[str, Any]] = []
    with progress_bars() as progress:
        for done, name in enumerate(names):
            progress("growth", done, len(names))
            rows += measure(name)
    tell({"times": TIMES, "rows": rows}, _print, as_json=as_json)


def measure(name: str) -> list[dict[str, Any]]:
    """A row for each figure. Raises LabError: a part failed."""
    grown = GROWN[name]
    few, many = (measured_apart("foretype_lab.growth.parts", name, number) for number in (grown.few, grown.few * TIMES))
    return [
        row_of(f"{grown.of}: {figure}", (grown.few, grown.few * TIMES), (picked(few, pick), picked(many, pick)))
        for figure, pick in grown.figures.items()
    ]


def row_of(name: str, numbers: tuple[int, int], values: tuple[float, float]) -> dict[str, Any]:
    """`exponent` is None where a value is too small to be one."""
    few, many = values
    exponent = round(math.log(many / few, TIMES), 2) if min(values) > 0 else None
    return {"name": name, "numbers": list(numbers), "with_few": few, "with_many": many, "exponent": exponent}


def _print(report: dict[str, Any]) -> None:
    rows = [
        (row["name"], "{:,} and {:,}".format(*row["numbers"]), row["with_few"], row["with_many"], row["exponent"])
        for row in report["rows"]
    ]
    print_table(
        f"{report['times']} times as many", ("what", "of", "with few", "with many", "exponent"), rows, words=("of",)
    )
