"""`python -m foretype_eval.adaptive.fit --repo A --repo B … --out weights.json`: fits the weights of the levels of evidence.

What is counted: at places inside the text that commits wrote, with the files as they stood then, what each level gives to the
lexeme that was really written. Weights follow by expectation maximisation, the textbook way for interpolated n-grams.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import typer
from foretype_client.adaptive.lexemes import lex
from foretype_client.adaptive.mixture import CELLS, Weights, cells_in_order
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.table import CorpusTable, shipped_table
from foretype_context.document import Document
from foretype_context.languages import language_of

from foretype_eval.console import fail
from foretype_eval.replay.commits import Commit, RepositoryError, commits_of, files_before, load_commit

__all__ = ["Row", "fit", "known_before", "main", "rows_of"]

_ROUNDS: Final = 20
_PRIOR_PLACES: Final = 2.0
_PRIOR_WEIGHT: Final = 0.4
_UNSEEN: Final = 1e-6
_BLANKS: Final = " \t\r\f\v"


class Row(NamedTuple):
    """One place: weights that take part, longest context last, and what each level gave to the true lexeme."""

    cells: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]


def known_before(model: AdaptiveModel, files: Mapping[str, str]) -> None:
    """Let a model know these files by path, and no others."""
    for path in model.known():
        if path not in files:
            model.forget(path)
    for path, text in files.items():
        model.learn(path, text)


def rows_of(
    commits: Iterable[tuple[Commit, Mapping[str, str]]], table: CorpusTable | None, *, share: float, rng: random.Random
) -> Iterator[Row]:
    """Places in what commits wrote, at a lexeme's start or inside it, each with probability `share`."""
    model = AdaptiveModel(table, weights=np.full(CELLS, _PRIOR_WEIGHT))
    for commit, files in commits:
        known_before(model, files)
        for stretch in commit.stretches:
            at = 0
            for line in stretch.target.split("\n"):
                body = line.strip(_BLANKS)
                begin = at + len(line) - len(line.lstrip(_BLANKS))
                at += len(line) + 1
                if not body:
                    continue
                for cut, true in _cuts(body, rng):
                    if rng.random() >= share:
                        continue
                    typed = stretch.before + stretch.target[: begin + cut]
                    text = typed + stretch.after
                    document = Document(stretch.path, text, language=language_of(stretch.path))
                    spot = model.spot(document.snapshot(), len(typed))
                    levels = model.evidence(spot, [])
                    if levels is None:
                        continue
                    found = np.flatnonzero(levels.ids == model.id_of(true))
                    shares = levels.shares[:, found[0]] if len(found) else np.zeros(len(levels.cells))
                    yield Row(cells_in_order(levels.cells), shares)


def _cuts(body: str, rng: random.Random) -> Iterator[tuple[int, str]]:
    """Where to cut a line, and the lexeme that is open or comes next there."""
    at = 0
    before = ""
    for lexeme in [*lex(body), "\n"]:
        word = len(lexeme.strip()) >= 3
        # Right after a word the word itself is still open, and is asked about from inside it.
        if not before[-1:].isalnum() and not before.endswith("_"):
            yield at, lexeme
        if word and rng.random() < 0.5:
            yield at + rng.randint(1, len(lexeme)), lexeme
        at += len(lexeme)
        before = lexeme


def fit(rows: list[Row]) -> tuple[Weights, float]:
    """Weights, and the mean log-likelihood of the true lexemes in nats."""
    width = max(len(row.cells) for row in rows)
    cells = np.zeros((len(rows), width), np.int64)
    shares = np.zeros((len(rows), width))
    used = np.zeros((len(rows), width), np.bool_)
    for number, row in enumerate(rows):
        if count := len(row.cells):
            cells[number, -count:], shares[number, -count:], used[number, -count:] = row.cells, row.shares, True
    weights = np.full(CELLS, _PRIOR_WEIGHT)
    mean = 0.0
    for _ in range(_ROUNDS):
        own = np.where(used, weights[cells], 0.0)
        left = np.ones((len(rows), width + 1))
        left[:, :width] = np.cumprod((1 - own)[:, ::-1], axis=1)[:, ::-1]
        given = own * left[:, 1:] * shares
        unseen = left[:, 0] * _UNSEEN
        total = given.sum(axis=1) + unseen
        mean = float(np.log(total).mean())
        taken = given / total[:, None]
        below = np.concatenate(((unseen / total)[:, None], taken[:, :-1]), axis=1).cumsum(axis=1)
        hits = np.bincount(cells[used], taken[used], minlength=CELLS)
        tries = np.bincount(cells[used], (taken + below)[used], minlength=CELLS)
        weights = (hits + _PRIOR_PLACES * _PRIOR_WEIGHT) / (tries + _PRIOR_PLACES)
    return weights, mean


def _commits(repo: Path, count: int) -> Iterator[tuple[Commit, Mapping[str, str]]]:
    for id in commits_of(repo, count, suffixes=(".py",)):
        yield load_commit(repo, id, suffixes=(".py",)), files_before(repo, id, suffixes=(".py",))


def main(
    repo: Annotated[list[Path], typer.Option(help="Git repository that the table was not counted over.")],
    out: Annotated[Path, typer.Option(help="Where to write the weights.")],
    commits: Annotated[int, typer.Option(min=1)] = 25,
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the places that are used.")] = 0.5,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Fit the weights of the adaptive model on what commits wrote."""
    table = shipped_table()
    rows: list[Row] = []
    try:
        for path in repo:
            rows += rows_of(_commits(path, commits), table, share=share, rng=random.Random(seed))
    except RepositoryError as error:
        fail(str(error))
    if not rows:
        fail("these commits wrote no Python; name other repositories with --repo")
    weights, mean = fit(rows)
    out.write_bytes(dump(weights, [path.name for path in repo], len(rows), mean))


def dump(weights: Weights, repositories: list[str], places: int, mean: float) -> bytes:
    """The file of weights: whole thousandths, so that it is small and equal everywhere."""
    data = {
        "fitted_on": repositories,
        "places": places,
        "mean_logprob": round(mean, 4),
        "weights": np.clip(np.rint(weights * 1000), 1, 999).astype(int).tolist(),
    }
    return json.dumps(data).encode() + b"\n"


if __name__ == "__main__":
    typer.run(main)
