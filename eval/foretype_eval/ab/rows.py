"""Rows of an experiment from a file: CSV or JSON lines (:class:`foretype_backend.experiments.rows.UserDay`)."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_backend.errors import ExperimentInputError
from foretype_backend.experiments.rows import UserDay

__all__ = ["COLUMNS", "UserDay", "load_rows"]

COLUMNS: Final = UserDay.__struct_fields__
_COUNTS: Final = tuple(name for name in COLUMNS if name not in ("user", "day", "variant", "language"))


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
    seen: set[tuple[str, datetime.date, int, str, str]] = set()
    for row in rows:
        key = (row.user, row.day, row.at, row.variant, row.language)
        if key in seen:
            raise ExperimentInputError(
                f"{path}: user {row.user!r} on {row.day} ({row.variant or 'no variant'}, {row.language or 'all'}) "
                "is there twice; sum such rows in the export"
            )
        seen.add(key)
