"""What was used, by whom, since the last batch. Pure. A batch is numbered: the store counts one that comes twice once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from foretype_wire.messages import Usage


class UsageKey(NamedTuple):
    """What usage is added up by; `day` is UTC, YYYY-MM-DD."""

    tenant: str
    team: str
    user: str
    class_: str
    day: str


class UsageRow(NamedTuple):
    """Counters of one key; see `schema.COUNTERS`."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    wasted_tokens: int = 0
    engine_us: int = 0

    def plus(self, other: UsageRow) -> UsageRow:
        return UsageRow(*(a + b for a, b in zip(self, other, strict=True)))


class Batch(NamedTuple):
    seq: int
    rows: Mapping[UsageKey, UsageRow]


class Journal(Protocol):
    """Where rows are kept until their batch is stored, for when the process ends before."""

    def note(self, seq: int, key: UsageKey, row: UsageRow, rows: Mapping[UsageKey, UsageRow]) -> None: ...

    def drop(self, seq: int) -> None: ...


class Meter:
    """Adds up, and hands over one batch at a time until it is known to be stored."""

    def __init__(self) -> None:
        self.journal: Journal | None = None
        self._open: dict[UsageKey, UsageRow] = {}
        self._batch: Batch | None = None
        self._seq = 0

    def add(self, key: UsageKey, usage: Usage, engine_s: float) -> None:
        row = UsageRow(
            1,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.generated_tokens,
            usage.tokens_after_cancel,
            round(engine_s * 1e6),
        )
        former = self._open.get(key)
        self._open[key] = row if former is None else former.plus(row)
        if self.journal is not None:
            self.journal.note(self._seq + 1, key, row, self._open)

    @property
    def unstored_rows(self) -> int:
        return len(self._open) + (0 if self._batch is None else len(self._batch.rows))

    def batch(self) -> Batch | None:
        """What is to be stored next: the same again until :meth:`stored`; None where nothing is."""
        if self._batch is None and self._open:
            self._seq += 1
            self._batch, self._open = Batch(self._seq, self._open), {}
        return self._batch

    def stored(self, seq: int) -> None:
        if self._batch is not None and self._batch.seq == seq:
            self._batch = None
            if self.journal is not None:
                self.journal.drop(seq)
