"""The command `foretype eval compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from foretype_eval.compare.paired import compare_runs
from foretype_eval.compare.runs import load_run
from foretype_eval.console import print_json, print_table


def compare(
    first: Annotated[Path, typer.Argument(help="Folder or items.jsonl of the run before.")],
    second: Annotated[Path, typer.Argument(help="Folder or items.jsonl of the run after.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Join two runs of `eval replay` or `eval fim` and print the paired differences, second less first."""
    result = compare_runs(load_run(first), load_run(second), seed=seed)
    if as_json:
        print_json(result)
        return
    tables: dict[str, Any] = result["systems"] if result["kind"] == "replay" else {"benchmark": result}
    for name, found in tables.items():
        joined = found.get("commits", found.get("items"))
        rows: list[tuple[str, ...]] = []
        for measure, row in found["measures"].items():
            p_value = row.get("mcnemar_p_holm")
            shown = "" if p_value is None else f"{row['only_first']}:{row['only_second']}, p {p_value:.3g}"
            interval = "–" if row["ci"] is None else "{:+.4f} to {:+.4f}".format(*row["ci"])
            rows.append((measure, f"{row['difference']:+.4f}", interval, shown))
        title = f"{name}: {result['second']} less {result['first']}, {joined} joined"
        print_table(title, ("measure", "difference", "95 % interval", "McNemar (Holm)"), rows)
