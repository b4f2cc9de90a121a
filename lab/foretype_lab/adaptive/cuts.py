"""Rest-of-line and next-line cuts of held-out repositories, and what predictors say there."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from foretype_client.adaptive.candidates import CopyLine, LocalCandidate
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.neighbours import BYTES_MAX, FILES_MAX
from foretype_client.adaptive.table import CorpusTable
from foretype_context.syntax.languages import language_of
from foretype_context.text.document import Document

__all__ = ["KINDS", "CutAnswer", "SourceFile", "answers"]

KINDS: Final = ("rest_of_line", "next_line")
_CHARS_MIN: Final = 3
_LEAST: Final = 0.02


class SourceFile(NamedTuple):
    repository: str
    path: str
    text: str


class CutAnswer(NamedTuple):
    """What was said at one cut.

    Attributes:
        shown: by system: the confidence of its candidate (0 without one).
        right: by system: whether the candidate is exactly the rest of the line.
        micros: time the adaptive model took.
    """

    repository: str
    kind: str
    shown: dict[str, float]
    right: dict[str, bool]
    micros: float


def answers(files: Sequence[SourceFile], table: CorpusTable | None, *, cuts: int, seed: int) -> Iterator[CutAnswer]:
    """Ask at `cuts` places of one repository, half of each kind; the file ends at the cut, its neighbours are known.

    A rest-of-line cut falls anywhere inside a line's text, a next-line cut on its first character. Rests of fewer than three
    characters are not asked about: nothing is ever shown for them.
    """
    rng = random.Random(seed)
    models = {"adaptive": AdaptiveModel(table), "adaptive_without_table": AdaptiveModel()}
    room = BYTES_MAX
    for file in files[:FILES_MAX]:
        room -= len(file.text)
        if room < 0:
            break
        for model in models.values():
            model.learn(file.path, file.text)
    copy_line = CopyLine(typed_chars_min=1)
    eligible = [file for file in files if 400 <= len(file.text) <= 50_000]
    done = tries = 0
    while eligible and done < cuts and tries < 20 * cuts:
        tries += 1
        file = rng.choice(eligible)
        kind = KINDS[tries % 2]
        place = _place(file.text, kind, rng)
        if place is None:
            continue
        done += 1
        offset, truth = place
        # What follows the cursor's line stays, as in an editor; the rest of the line itself is gone.
        end = file.text.find("\n", offset)
        text = file.text[:offset] + (file.text[end:] if end >= 0 else "")
        snapshot = Document(file.path, text, language=language_of(file.path)).snapshot()
        shown: dict[str, float] = {"empty": 0.0}
        right: dict[str, bool] = {"empty": False}
        micros = 0.0
        for name, model in models.items():
            began = time.perf_counter()
            found = model.candidate(snapshot, offset, least=_LEAST)
            if name == "adaptive":
                micros = (time.perf_counter() - began) * 1e6
            shown[name], right[name] = _judged(found, truth)
        shown["copy_line"], right["copy_line"] = _judged(copy_line.suggest(snapshot, offset), truth)
        yield CutAnswer(file.repository, kind, shown, right, micros)
        for model in models.values():
            model.learn(file.path, file.text)
            model.forget_written()  # a line that a cut gave back was not written


def _judged(found: LocalCandidate | None, truth: str) -> tuple[float, bool]:
    return (0.0, False) if found is None else (found.confidence, found.text.rstrip() == truth)


def _place(text: str, kind: str, rng: random.Random) -> tuple[int, str] | None:
    at = rng.randrange(len(text))
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[begin : end if end >= 0 else len(text)].rstrip()
    indent = len(line) - len(line.lstrip())
    if len(line) - indent < _CHARS_MIN + 1:
        return None
    cut = begin + (indent if kind == "next_line" else rng.randrange(indent + 1, len(line) - _CHARS_MIN + 1))
    return cut, text[cut : begin + len(line)]
