"""`python -m foretype_lab.adaptive.fit --repo A --repo B … --out weights.json`: fits the weights of the adaptive model.

What is counted: at places inside the text that commits wrote, with the files as they stood then, what each level gives to the
lexeme that was really written. Weights of levels follow by expectation maximisation, the textbook way for interpolated n-grams; those
of templates, then the network on older commits, by what they leave unsaid.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import typer
from foretype_client.adaptive.lexemes import lex
from foretype_client.adaptive.mixture import (
    CELLS,
    TEMPLATE_WEIGHTS,
    Weights,
    beside,
    cells_in_order,
    chances,
    read_weights,
)
from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.scoring import FEATURES
from foretype_client.adaptive.surroundings import Spot
from foretype_client.adaptive.table import CorpusTable, shipped_table
from foretype_context.syntax.document import Document
from foretype_context.syntax.languages import language_of
from foretype_eval.console import fail
from foretype_eval.errors import RepositoryError
from foretype_eval.replay.commits import Commit, commits_of, files_before, load_commit

from foretype_lab.adaptive.fit_network import Viewed, fit_network

_ROUNDS: Final = 20
_PRIOR_PLACES: Final = 2.0
_PRIOR_WEIGHT: Final = 0.4
_BEGUN_PLACES: Final = 20.0
"""A weight of another language stands for so many places of it."""
_RIDGE: Final = 10.0
_NEWTON_STEPS: Final = 12
_UNSEEN: Final = 1e-6
_BLANKS: Final = " \t\r\f\v"

WithFiles = tuple[Commit, Mapping[str, str]]
"""A commit and the files before it."""


class FitRow(NamedTuple):
    """One place: weights that take part, longest context last, and what each level gave to the true lexeme."""

    cells: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]


class Told(NamedTuple):
    """What templates said at one place: features, what levels said to it, and whether it was right."""

    features: tuple[int, ...]
    beside: tuple[float, ...]
    right: bool


def known_before(model: AdaptiveModel, files: Mapping[str, str]) -> None:
    """Let a model know these files by path, and no others."""
    for path in model.known():
        if path not in files:
            model.forget(path)
    for path, text in files.items():
        model.learn(path, text)
    # Commits come newest first: what one of them wrote and took away would be told of another's future.
    model.forget_written()


class EditsSoFar:
    """Lets a model know what a developer has typed by now: files that come before the one in hand are as the commit left them."""

    def __init__(self, model: AdaptiveModel, commit: Commit, files: Mapping[str, str]) -> None:
        known_before(model, files)
        self._model = model
        self._left = {stretch.path: stretch.before + stretch.target + stretch.after for stretch in commit.stretches}

    def reached(self, path: str) -> None:
        """The developer opens this file; files come in the commit's order."""
        for earlier in list(self._left):
            if earlier == path:
                return
            self._model.learn(earlier, self._left.pop(earlier))


def rows_of(commits: Iterable[WithFiles], table: CorpusTable | None, *, places: int, seed: int) -> Iterator[FitRow]:
    """Up to `places` places in what each commit wrote, at a lexeme's start or inside it."""
    model = AdaptiveModel(table, weights=Weights(np.full(CELLS, _PRIOR_WEIGHT), guess()))
    for _, spot, right in _spots(commits, model, places, random.Random(seed)):
        if (levels := model.evidence(spot, [])) is not None:
            found = np.flatnonzero(levels.ids == right)
            shares = levels.shares[:, found[0]] if len(found) else np.zeros(len(levels.cells))
            yield FitRow(cells_in_order(levels.cells), shares)


def told_of(
    commits: Iterable[WithFiles], table: CorpusTable | None, weights: Weights, *, places: int, seed: int
) -> Iterator[Told]:
    """What templates say at such places, with those weights of levels. After a right one nobody looks at the next."""
    for model, spot, right in _spots(commits, AdaptiveModel(table, weights=weights), places, random.Random(seed)):
        levels = model.evidence(spot, [])
        told = None if levels is None else (levels.ids, chances(levels, weights.levels))
        for rank, proposal in enumerate(model.proposals(spot, [])):
            yield Told(proposal.features, beside(told, proposal, rank), proposal.id == right)
            if proposal.id == right:
                break


def views_of(
    commits: Iterable[WithFiles], table: CorpusTable | None, weights: Weights, *, places: int, seed: int
) -> Iterator[Viewed]:
    """What is known of the candidates at such places, with those weights of levels and templates, and which one was written."""
    for model, spot, right in _spots(commits, AdaptiveModel(table, weights=weights), places, random.Random(seed)):
        if (view := model.view(spot, [])) is not None:
            found = np.flatnonzero(view.ids[view.at] == right)
            yield Viewed(view, int(found[0]) if len(found) else len(view.at))


def _spots(
    commits: Iterable[WithFiles], model: AdaptiveModel, places: int, rng: random.Random
) -> Iterator[tuple[AdaptiveModel, Spot, int]]:
    """Places in what commits wrote, with the files as they stood then, and the lexeme that was written there."""
    for commit, files in commits:
        edits = EditsSoFar(model, commit, files)
        cuts = [(stretch, at, true) for stretch in commit.stretches for at, true in _places(stretch.target, rng)]
        for number in sorted(rng.sample(range(len(cuts)), min(places, len(cuts)))):
            stretch, at, true = cuts[number]
            edits.reached(stretch.path)
            typed = stretch.before + stretch.target[:at]
            document = Document(stretch.path, typed + stretch.after, language=language_of(stretch.path))
            yield model, model.spot(document.snapshot(), len(typed)), model.id_of(true)


def _places(target: str, rng: random.Random) -> Iterator[tuple[int, str]]:
    """Offsets in a text, and the lexeme that is open or comes next there."""
    at = 0
    for line in target.split("\n"):
        body = line.strip(_BLANKS)
        begin = at + len(line) - len(line.lstrip(_BLANKS))
        at += len(line) + 1
        for cut, true in _cuts(body, rng) if body else ():
            yield begin + cut, true


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


def fit(rows: list[FitRow], begin: npt.NDArray[np.float64] | None = None) -> tuple[npt.NDArray[np.float64], float]:
    """Weights of levels, and the mean log-likelihood of the true lexemes in nats.

    Args:
        begin: what is believed of them before; as firmly as `_BEGUN_PLACES` places would make it.
    """
    prior = np.full(CELLS, _PRIOR_WEIGHT) if begin is None else begin
    firmness = _PRIOR_PLACES if begin is None else _BEGUN_PLACES
    width = max(len(row.cells) for row in rows)
    cells = np.zeros((len(rows), width), np.int64)
    shares = np.zeros((len(rows), width))
    used = np.zeros((len(rows), width), np.bool_)
    for number, row in enumerate(rows):
        if count := len(row.cells):
            cells[number, -count:], shares[number, -count:], used[number, -count:] = row.cells, row.shares, True
    weights = prior.copy()
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
        weights = (hits + firmness * prior) / (tries + firmness)
    return weights, mean


def fit_templates(told: Sequence[Told], begin: npt.NDArray[np.float64] | None = None) -> npt.NDArray[np.float64]:
    """Weights of templates: logistic regression of whether a proposal is right, by Newton's method with a ridge to `begin`."""
    table = np.zeros((len(told), TEMPLATE_WEIGHTS))
    for number, one in enumerate(told):
        table[number, list(one.features)] = 1
        table[number, FEATURES:] = one.beside
    right = np.array([one.right for one in told], np.float64)
    prior = guess() if begin is None else begin
    ridge = np.full(TEMPLATE_WEIGHTS, _RIDGE)

    def loss(weights: npt.NDArray[np.float64]) -> float:
        score = table @ weights
        return float(np.logaddexp(0, score).sum() - right @ score + ridge @ (weights - prior) ** 2 / 2)

    weights = prior
    for _ in range(_NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(table @ weights, -30, 30)))
        slope = table.T @ (chance - right) + ridge * (weights - prior)
        curve = (table * (chance * (1 - chance))[:, None]).T @ table + np.diag(ridge)
        step = np.linalg.solve(curve, slope)
        while loss(weights - step) > loss(weights) and np.abs(step).max() > 1e-6:
            step = step / 2
        weights = weights - step
    return weights


def guess() -> npt.NDArray[np.float64]:
    """Weights of templates before any are fitted: a proposal is as probable as levels say."""
    weights = np.zeros(TEMPLATE_WEIGHTS)
    weights[FEATURES] = 1.0
    return weights


def commits_with_files(repo: Path, count: int, *, suffixes: Sequence[str] = (".py",)) -> Iterator[WithFiles]:
    """The `count` newest commits that wrote files with such endings, newest first."""
    for id in commits_of(repo, count, suffixes=suffixes):
        yield load_commit(repo, id, suffixes=suffixes), files_before(repo, id, suffixes=suffixes)


def main(
    repo: Annotated[list[Path], typer.Option(help="Git repository that the table was not counted over.")],
    out: Annotated[Path, typer.Option(help="Where to write the weights.")],
    commits: Annotated[int, typer.Option(min=1)] = 25,
    places: Annotated[int, typer.Option(min=1, help="Places looked at in a commit.")] = 250,
    older: Annotated[int, typer.Option(min=1, help="Commits before those, on which the network is fitted.")] = 20,
    older_places: Annotated[int, typer.Option(min=1, help="Places looked at in each of them.")] = 60,
    suffix: Annotated[list[str] | None, typer.Option(help="File endings of the language; default .py.")] = None,
    begin: Annotated[
        Path | None, typer.Option(help="Weights of another language, that few places are to correct.")
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Fit the weights of the adaptive model for a language on what commits wrote."""
    table = shipped_table()
    suffixes = tuple(suffix or (".py",))
    known: Weights | None = None
    if begin is not None:
        try:
            known = read_weights(begin.read_text("utf-8"), begin.name)
        except (OSError, ValueError, KeyError) as error:
            fail(f"--begin {begin}: {error}; name a file that this command wrote")
    newest: list[list[WithFiles]] = []
    before: list[list[WithFiles]] = []
    try:
        for path in repo:
            found = list(commits_with_files(path, commits + older, suffixes=suffixes))
            newest.append(found[:commits])
            before.append(found[commits:])
    except RepositoryError as error:
        fail(str(error))
    rows = [row for found in newest for row in rows_of(found, table, places=places, seed=seed)]
    if not rows:
        fail(f"these commits wrote no {', '.join(suffixes)}; name other repositories with --repo")
    levels, mean = fit(rows, None if known is None else known.levels)
    weights = Weights(levels, guess())
    told = [one for found in newest for one in told_of(found, table, weights, places=places, seed=seed)]
    first = guess() if known is None else known.templates
    weights = Weights(levels, fit_templates(told, first) if told else first)
    views = [one for found in before for one in views_of(found, table, weights, places=older_places, seed=seed)]
    if not views:
        fail("no commit is left for the network; ask for fewer with --commits, or name longer histories with --repo")
    weights = weights._replace(network=fit_network(views, None if known is None else known.network))
    out.write_bytes(dump(weights, [path.name for path in repo], len(rows), mean))


def dump(weights: Weights, repositories: list[str], places: int, mean: float) -> bytes:
    """The file of weights: whole thousandths, so that it is small and equal everywhere."""
    data: dict[str, Any] = {
        "fitted_on": repositories,
        "places": places,
        "mean_logprob": round(mean, 4),
        "weights": np.clip(np.rint(weights.levels * 1000), 1, 999).astype(int).tolist(),
        "template_weights": [round(float(weight), 3) for weight in weights.templates],
    }
    if weights.network is not None:
        network = weights.network
        data["network"] = {"inner": network.inner.round(4).tolist(), "outer": network.outer.round(4).tolist()}
    return json.dumps(data).encode() + b"\n"


if __name__ == "__main__":
    typer.run(main)
