"""What runs of `foretype simulate` printed, as one HTML file that needs nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from foretype_plan.errors import PlanError
from foretype_plan.page import static

_MOST_BYTES: Final = 64 << 20


def read_result(path: Path) -> dict[str, Any]:
    """What `foretype simulate --json` printed.

    Raises:
        PlanError: the file is something else.
    """
    try:
        with path.open("rb") as file:
            made = json.loads(file.read(_MOST_BYTES), parse_constant=_no_number, parse_float=_number)
    except (OSError, UnicodeError, ValueError) as error:
        raise PlanError("from", f"{path} cannot be read: {error}") from error
    if not isinstance(made, dict) or not {"variants", "hours", "pairs"} & set(made):  # pyright: ignore[reportUnknownArgumentType]
        raise PlanError("from", f"{path} is nothing that `foretype simulate --json` printed")
    return made  # pyright: ignore[reportUnknownVariableType]


def page(results: Sequence[dict[str, Any]]) -> str:
    """Of scenarios, at most one day and one validation; of several the last.

    Raises:
        PlanError: there is nothing to show.
    """
    facts: dict[str, Any] = {"scenarios": [], "day": None, "pairs": None, "missed": [], "left_out": {}}
    for made in results:
        if "variants" in made:
            brief = made | {"variants": [{"name": one["name"], "figures": one["figures"]} for one in made["variants"]]}
            facts["scenarios"].append(brief)
        elif "hours" in made:
            facts["day"] = made
        elif "pairs" in made:
            facts |= {name: made[name] for name in ("pairs", "missed", "left_out") if name in made}
    if not facts["scenarios"] and facts["day"] is None and facts["pairs"] is None:
        raise PlanError("page", "nothing to show: give --scenario, --day, --validate, or --from FILE")
    whole = static("simulated.html")
    parts = {
        "/*UPLOT_CSS*/": static("uPlot.min.css"),
        "/*UPLOT*/": static("uPlot.iife.min.js").replace("</", "<\\/"),
        "/*GIVEN*/": json.dumps(facts, ensure_ascii=False, allow_nan=False).replace("</", "<\\/"),
        "/*APP*/": static("simulated.js").replace("</", "<\\/"),
    }
    for mark, part in parts.items():
        whole = whole.replace(mark, part, 1)
    return whole


def _number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")
