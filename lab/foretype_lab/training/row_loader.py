"""Rows for training, in order, from worker processes where a GPU is faster than one core can cut and encode text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from foretype_lab.training.data import Sampler


class _Numbered(Dataset[torch.Tensor]):
    """Blocks of rows by number; a row is a function of its number, so any process may make it."""

    def __init__(self, sampler: Sampler, start: int, rows: int) -> None:
        self._sampler, self._start, self._rows = sampler, start, rows

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, block: int) -> torch.Tensor:
        first = self._start + block * self._rows
        return torch.from_numpy(
            np.stack([self._sampler.marked_row(first + at) for at in range(self._rows)]).astype(np.int64)
        )


class RowLoader:
    """Blocks of consecutive rows.

    Args:
        sampler: where rows come from.
        start: number of the first row.
        rows: of a block.
        workers: processes that make blocks ahead; 0 makes each when it is asked for.
    """

    def __init__(self, sampler: Sampler, start: int, rows: int, workers: int) -> None:
        blocks = _Numbered(sampler, start, rows)
        self._blocks: Iterator[Any]
        if workers:
            options: Any = {"num_workers": workers, "prefetch_factor": 4, "pin_memory": torch.cuda.is_available()}
            # batch_size=None: a block is a batch already. range: an order without a list of 2**40 numbers.
            self._blocks = iter(DataLoader(blocks, batch_size=None, sampler=range(len(blocks)), **options))
        else:
            self._blocks = (blocks[number] for number in range(len(blocks)))

    def next(self) -> torch.Tensor:
        """The next block: int64, (rows, length + 1), marked as the sampler marks it."""
        return next(self._blocks)
