"""`make coverage` writes tests/coverage.md with it: statements and branches that `make test` reaches, by package, processes it starts among them."""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def rows(files: dict[str, dict[str, Any]]) -> list[str]:
    """A line of Markdown for each folder below a package, in the order of their paths."""
    sums: dict[str, Counter[str]] = {}
    for name, file in files.items():
        parts = Path(name).resolve().relative_to(ROOT).parts
        sums.setdefault("/".join(parts[1 : min(3, len(parts) - 1)]), Counter()).update(file["summary"])
    return [line(f"`{package}`", of) for package, of in sorted(sums.items())]


def line(named: str, of: Mapping[str, Any]) -> str:
    statements, branches = share(of, "lines", "statements"), share(of, "branches", "branches")
    return f"| {named} | {of['num_statements']} | {statements} | {of['num_branches']} | {branches} |"


def share(of: Mapping[str, Any], covered: str, all_: str) -> str:
    return f"{of[f'covered_{covered}'] / of[f'num_{all_}']:.1%}" if of[f"num_{all_}"] else "–"


if __name__ == "__main__":
    report = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    head = [
        "# What `make test` reaches\n",
        "| package | statements | reached | branches | taken |",
        "|---|--:|--:|--:|--:|",
    ]
    last = line("together", report["totals"])
    Path(sys.argv[2]).write_text("\n".join([*head, *rows(report["files"]), last]) + "\n", "utf-8")
