"""How long one suggestion takes in a large file with many neighbours."""

from __future__ import annotations

import random
import time
from typing import Final

from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.table import CorpusTable
from foretype_context.text.document import Document
from foretype_eval.statistics import Percentiles, percentiles

from foretype_lab.adaptive.cuts import SourceFile

__all__ = ["suggest_ms"]

_LINES: Final = 10_000
_NEIGHBOURS: Final = 150


def suggest_ms(files: list[SourceFile], table: CorpusTable | None, *, keys: int, seed: int) -> Percentiles:
    """Milliseconds of `suggest` after each key typed in the middle of 10,000 lines, 150 other files known.

    The document is followed before the clock starts where the editor would have sent a change: what is timed is the question
    with its share of following the last key.
    """
    rng = random.Random(seed)
    lines: list[str] = []
    while len(lines) < _LINES:
        for file in files:
            lines += file.text.splitlines()
    lines = lines[:_LINES]
    model = AdaptiveModel(table)
    for number in range(_NEIGHBOURS):
        file = files[number % len(files)]
        model.learn(f"{number}/{file.path}", file.text[:50_000])
    taken: list[float] = []
    head, tail = "\n".join(lines[: _LINES // 2]) + "\n", "\n" + "\n".join(lines[_LINES // 2 :])
    typed = "\n".join(rng.sample(lines, keys // 10 + 10))[:keys]
    for count in range(1, len(typed) + 1):
        text = head + typed[:count] + tail
        snapshot = Document("file:///large.py", text, language="python").snapshot()
        began = time.perf_counter()
        model.suggest(snapshot, len(head) + count)
        taken.append((time.perf_counter() - began) * 1000)
    return percentiles(taken[1:])
