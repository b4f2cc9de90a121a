"""Input of an experiment: one row per user, day, variant and language, counts only.

Source of the columns: evals research, sections 5.1 and 5.2. A row with an empty variant lies before the experiment and feeds
the variance reduction alone.
"""

from __future__ import annotations

import csv
import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from foretype_eval.errors import ExperimentInputError

__all__ = ["COLUMNS", "UserDay", "load_rows"]


class UserDay(msgspec.Struct, frozen=True, kw_only=True):
    """What one user did on one day.

    Attributes:
        day: calendar day, ISO 8601.
        variant: empty before the experiment.
        opportunities: content changes and caret moves after which policy allowed a suggestion.
        displays: suggestion sessions read for at least T (section 5.2), of which `accepts` were accepted.
        chars_retained: accepted characters still there after five minutes; None while that is not known yet.
    """

    user: str
    day: datetime.date
    variant: str = ""
    language: str = ""
    opportunities: int
    displays: int
    accepts: int
    chars_accepted: int
    chars_retained: int | None = None
    chars_typed: int = 0


COLUMNS: Final = UserDay.__struct_fields__
_COUNTS: Final = ("opportunities", "displays", "accepts", "chars_accepted", "chars_retained", "chars_typed")


def load_rows(path: Path) -> list[UserDay]:
    """Read `.csv` (with a header) or JSON lines; unknown columns are left alone.

    Raises:
        ExperimentInputError: unreadable, empty, a field is missing or impossible, or a user-day is there twice.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentInputError(
            f"{path}: {error}; give CSV or JSON lines with the columns {', '.join(COLUMNS)}"
        ) from error
    rows = [_row(path, number, record) for number, record in _records(path, text)]
    if not rows:
        raise ExperimentInputError(f"{path}: no rows; give user-days of the experiment, or --store URL")
    _check_unique(path, rows)
    return rows


def _records(path: Path, text: str) -> Iterable[tuple[int, dict[str, Any]]]:
    if path.suffix == ".csv":
        reader = csv.DictReader(text.splitlines())
        for record in reader:
            yield reader.line_num, {key: value for key, value in record.items() if key and value not in ("", None)}
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError as error:
                raise ExperimentInputError(f"{path}:{number}: {error}") from error


def _row(path: Path, number: int, record: dict[str, Any]) -> UserDay:
    try:
        row = msgspec.convert(record, UserDay, strict=False)
    except msgspec.ValidationError as error:
        raise ExperimentInputError(f"{path}:{number}: {error}") from error
    for name in _COUNTS:
        value = getattr(row, name)
        if value is not None and value < 0:
            raise ExperimentInputError(f"{path}:{number}: {name}: {value} is negative")
    if row.accepts > row.displays:
        raise ExperimentInputError(
            f"{path}:{number}: accepts: {row.accepts} of {row.displays} displays; count sessions in both"
        )
    if row.chars_retained is not None and row.chars_retained > row.chars_accepted:
        raise ExperimentInputError(
            f"{path}:{number}: chars_retained: {row.chars_retained} of {row.chars_accepted} accepted characters"
        )
    return row


def _check_unique(path: Path, rows: Sequence[UserDay]) -> None:
    seen: set[tuple[str, datetime.date, str, str]] = set()
    for row in rows:
        key = (row.user, row.day, row.variant, row.language)
        if key in seen:
            raise ExperimentInputError(
                f"{path}: user {row.user!r} on {row.day} ({row.variant or 'no variant'}, {row.language or 'all'}) "
                "is there twice; sum such rows in the export"
            )
        seen.add(key)
