"""Quality over tokens: checkpoints of a training and the file that ships, each measured alike, for a table of the card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from foretype_lab.errors import ExportError
from foretype_lab.quality.evaluate import write

__all__ = ["AIMS", "Measured", "add", "lines", "read"]

AIMS: Final = {
    "fim": "≥ 18 %",
    "line_fill exact": "≥ 14 %",
    "next_line exact": "≥ 5 %",
    "first word": "≥ 40 %",
    "loops": "≤ 5 %",
    "harm": "≤ 4 %",
    "ends in line": "≥ 80 %",
    "ratio": "≤ 4.2",
    "ratio typed": "≤ 13",
}
"""What the weights at the end of the training are to reach."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One row.

    Attributes:
        tokens: seen in all, runs before this one included.
        run_tokens: seen in the run that the checkpoint is of; None for a file that ships.
        rate_share: of the peak rate at which the run was there. Far from zero a model can do less than it knows: what it saw
            last weighs too much.
        layout: of the prompts.
        fill: as ``models evaluate`` measures it.
        fim: summary of ``eval fim``, the figures of the card alone; None where it was not measured.
        prefill: computed tokens per new token by what was typed, as ``bench prefill`` counts; of the layout, not the weights.
    """

    sha256: str
    tokens: int
    run_tokens: int | None
    rate_share: float | None
    layout: str
    fill: dict[str, Any]
    fim: dict[str, Any] | None = None
    prefill: dict[str, float] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.sha256, self.layout


def read(path: Path) -> list[Measured]:
    """Rows that were measured before, by tokens; none where the file is missing.

    Raises:
        ExportError: the file is there and cannot be read.
    """
    if not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Measured])
    except (OSError, msgspec.MsgspecError) as error:
        raise ExportError(f"{path} cannot be read ({error}); restore it with `git checkout`, or delete it") from error


def add(path: Path, row: Measured) -> list[Measured]:
    """Puts a row into the file, in the place of one of the same file and layout.

    Raises:
        ExportError: see :func:`read`.
    """
    rows = sorted([one for one in read(path) if one.key != row.key] + [row], key=lambda one: (one.tokens, one.layout))
    write(path, msgspec.to_builtins(rows))
    return rows


def lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The section of the card."""
    rows = msgspec.convert(list(found), list[Measured])
    head = ("tokens, layout", *AIMS)
    made = [
        "## Quality over tokens",
        "",
        (
            "Checkpoints of a running training and shipped weights, measured alike with `foretype models progress`. *fim*: "
            "HumanEval-Infilling, single lines, pass@1. *Exact*, *first word* (of a next line), *loops*, *harm* and *ends in line* (the range of "
            "both kinds of cases) as above, on one set of held-out projects. *Ratio*: computed prompt tokens per new token on a recorded session, "
            "and on typed commits. *Rate*: the learning rate as a share of its peak; a checkpoint taken far from zero can do less than it knows."
        ),
        "",
        "| " + " | ".join(head) + " |",
        "|---" + "|--:" * len(AIMS) + "|",
        *("| " + " | ".join((_name(row), *_cells(row))) + " |" for row in rows),
        "| aim | " + " | ".join(AIMS.values()) + " |",
        "",
    ]
    return made


def _name(row: Measured) -> str:
    told = [f"{row.tokens / 1e6:.1f} M", f"`{row.layout}`"]
    if row.run_tokens is not None:
        told.append(f"{row.run_tokens / 1e6:.1f} M in its run")
    if row.rate_share is not None:
        told.append(f"rate {row.rate_share:.0%}")
    return ", ".join(told)


def _cells(row: Measured) -> list[str]:
    next_line, line_fill = row.fill["rows"]["next_line"], row.fill["rows"]["line_fill"]

    def both(key: str, *, rest: bool = False) -> str:
        shares = sorted((1 - one[key]) if rest else one[key] for one in (next_line, line_fill))
        return " to ".join(f"{100 * share:.1f}" for share in shares) + " %"

    fim, prefill = row.fim, row.prefill or {}
    return [
        "" if fim is None else f"{100 * fim['pass_at_1']:.1f} % of {fim['n']:,}",
        f"{100 * line_fill['exact_match']:.1f} %",
        f"{100 * next_line['exact_match']:.1f} %",
        f"{100 * next_line['first_word_match']:.1f} %",
        both("loop_rate"),
        both("no_harm_rate", rest=True),
        both("end_in_line_rate"),
        *("" if key not in prefill else f"{prefill[key]:.2f}" for key in ("recording", "commits")),
    ]
