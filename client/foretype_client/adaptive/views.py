"""What is known of the likeliest candidates, as numbers: what every source says at its longest context, and how they fit the line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretype_client.adaptive.evidence import LENGTHS, SOURCES, Ints
from foretype_client.adaptive.levels import SPREADS, TIMES, Levels
from foretype_client.adaptive.lexemes import CLASSES, LINE_END, Vocabulary
from foretype_client.adaptive.stream import Ids

CANDIDATES: Final = 8
"""Only so many are looked at."""
_CHANCE: Final = 7
_CONTEXT: Final = 17
_FIT: Final = 15
_AROUND: Final = 4
_AT_CONTEXT: Final = _CHANCE + 3 * SOURCES
_AT_FIT: Final = _AT_CONTEXT + _CONTEXT
_AT_AROUND: Final = _AT_FIT + _FIT
VIEW_FEATURES: Final = _AT_AROUND + _AROUND

_LEAST: Final = 1e-4
_REST_LEAST: Final = 1e-3
_ALONE: Final = 4.0
_SCORE_MAX: Final = 4.0
_STEPS: Final = len(LENGTHS)
_ROWS: Final = np.arange(SOURCES)[:, None]
_ABOVE_LEXEMES: Final = 1_500
_BELOW_LEXEMES: Final = 500
_TRUSTED_LEXEMES: Final = 32
_OPENERS: Final = frozenset("([{")
_CLOSERS: Final = frozenset(")]}")
_QUOTES: Final = ("'", '"')
_NAMING: Final = frozenset(("def", "class", "import", "as", "for", "from"))

Floats = npt.NDArray[np.float64]


class BesideLine(NamedTuple):
    """What stands beside a line while it is written.

    Attributes:
        ids: lexemes of the file; at `begin` stands the line.
        before: the last lexemes above it.
        above: the line above, without its end.
        below: the line below, without its end.
        common: lexemes with smaller numbers are those of the corpus table.
    """

    ids: Ids
    begin: int
    before: Sequence[int]
    above: Sequence[int]
    below: Sequence[int]
    common: int


class WrittenLine(NamedTuple):
    """The line that is written: its lexemes, of which candidates are the next; `half` characters of it are typed already."""

    typed: Sequence[int]
    half: int
    beside: BesideLine


class CandidateView(NamedTuple):
    """C candidates, of which the K likeliest are looked at.

    Attributes:
        ids: (C,) lexemes.
        chance: (C,) what levels and templates give them.
        at: (K,) which are looked at, likeliest first.
        rest: what is left for all others and the unseen.
        log_chances: (K + 1,) of those at `at`, and of the rest.
        features: (K, VIEW_FEATURES).
        trust: how much a correction counts here, at most 1: places in files that have just begun were hardly among those fitted on.
    """

    ids: Ids
    chance: Floats
    at: Ints
    rest: float
    log_chances: Floats
    features: Floats
    trust: float


def view_of(
    answer: tuple[Ids, Floats],
    levels: Levels | None,
    told: Floats | None,
    proposals: Sequence[tuple[int, float]],
    line: WrittenLine,
    vocabulary: Vocabulary,
) -> CandidateView:
    """What is known of the candidates of `answer`.

    Args:
        levels: of evidence; `told` is the chance they give each of their candidates.
        proposals: of templates, surest first: lexeme and log-odds.
    """
    ids, chance = answer
    at = _likeliest(chance)
    chosen, own = ids[at], chance[at]
    logs = np.log(np.maximum(own, _LEAST))
    rest = max(1.0 - float(own.sum()), _REST_LEAST)
    features = np.zeros((len(at), VIEW_FEATURES))
    features[:, 0] = logs
    features[:, 1] = logs - logs[0]
    features[0, 1] = logs[0] - logs[1] if len(at) > 1 else _ALONE
    features[:, 2] = math.log(rest)
    if levels is not None and told is not None:
        _sources(features, chosen, levels, told)
    else:
        features[:, 3] = math.log(_LEAST)
    lexemes = chosen.tolist()
    _proposed(features, lexemes, proposals)
    depth = _depth(line, vocabulary)
    features[:, _AT_CONTEXT:_AT_FIT] = _context(line, depth, vocabulary)
    features[:, _AT_FIT:_AT_AROUND] = _fit(lexemes, line, depth, vocabulary)
    _around(features, chosen, line.beside)
    trust = min(1.0, (len(line.beside.ids) - 1) / _TRUSTED_LEXEMES)
    return CandidateView(ids, chance, at, rest, np.append(logs, math.log(rest)), features, trust)


def _likeliest(chance: Floats) -> Ints:
    count = min(CANDIDATES, len(chance))
    at = np.argpartition(-chance, count - 1)[:count] if len(chance) > count else np.arange(count)
    return at[np.argsort(-chance[at], kind="stable")]


def _sources(features: Floats, chosen: Ids, levels: Levels, told: Floats) -> None:
    """What levels give, and per source: the longest context that was followed so, its share there, and how many longer ones were not."""
    place = np.minimum(np.searchsorted(levels.ids, chosen), len(levels.ids) - 1)
    there = levels.ids[place] == chosen
    features[:, 3] = np.log(np.maximum(told[place] * there, _LEAST))
    source, step = np.divmod(levels.cells // (TIMES * SPREADS), _STEPS)
    shares = np.zeros((_STEPS, SOURCES, len(chosen)))
    shares[step, source] = levels.shares[:, place] * there
    deepest = np.zeros(SOURCES)
    deepest[source] = step + 1.0  # levels come in ascending order: the longest is what stays
    said = shares > 0
    longest = (_STEPS - said[::-1].argmax(axis=0)) * said.any(axis=0)
    share = shares[np.maximum(longest - 1, 0), _ROWS, np.arange(len(chosen))]
    at = _CHANCE
    for values in (longest / _STEPS, share, (deepest[:, None] - longest) / _STEPS):
        features[:, at : at + SOURCES] = values.T
        at += SOURCES


def _proposed(features: Floats, chosen: Sequence[int], proposals: Sequence[tuple[int, float]]) -> None:
    """How sure templates are of it, how sure of others, and whether another is their first choice."""
    if not proposals:
        return
    own = [0.0] * len(chosen)
    others = [0.0] * len(chosen)
    for id, score in proposals:
        sure = max(-_SCORE_MAX, min(score, _SCORE_MAX)) + _SCORE_MAX + 0.5
        for row, one in enumerate(chosen):
            if one == id:
                own[row] = max(own[row], sure)
            else:
                others[row] = max(others[row], sure)
    surest = proposals[0][0]
    features[:, 4], features[:, 5], features[:, 6] = own, others, [one != surest for one in chosen]


def _context(line: WrittenLine, depth: int, vocabulary: Vocabulary) -> list[float]:
    before = vocabulary.lexeme(line.typed[-1]).strip() if line.typed else ""
    found: tuple[float, ...] = (
        line.half > 0,
        min(line.half, 6) / 6,
        not line.typed,
        math.log1p(len(line.typed)),
        before == ".",
        before == "(",
        before == ",",
        before == "=",
        before in _NAMING,
        before[:1] in _QUOTES,
        before[:1].isalpha(),
        before in ("[", "{"),
        before in _CLOSERS,
        before == ":",
        not before,
        min(depth, 3) / 3,
        depth > 0,
    )
    return list(found)


def _fit(chosen: Sequence[int], line: WrittenLine, depth: int, vocabulary: Vocabulary) -> list[tuple[float, ...]]:
    """(K, _FIT): what kind of lexeme it is, and where else it stands."""
    typed, (_, _, before, above, below, _) = line.typed, line.beside
    upto = len(typed)
    same = list(above) == list(typed)
    here = above[upto] if upto < len(above) else None
    under = below[upto] if upto < len(below) else None
    rows: list[tuple[float, ...]] = []
    for id, kind in zip(chosen, vocabulary.classes(chosen), strict=True):
        lexeme = vocabulary.lexeme(id)
        bare = lexeme.strip()
        rows.append(
            (
                id == LINE_END,
                kind < 2,
                2 <= kind < CLASSES,
                lexeme[:1] == " ",
                bare in _CLOSERS and depth <= 0,
                bare in _CLOSERS and depth > 0,
                id == LINE_END and depth > 0,
                bare[:1] in _QUOTES,
                id in typed,
                id in above,
                id == here,
                id in before,
                id in below,
                id == under,
                same and id == LINE_END,
            )
        )
    return rows


def _depth(line: WrittenLine, vocabulary: Vocabulary) -> int:
    """Brackets that the line opened and did not close."""
    bare = [vocabulary.lexeme(id).strip() for id in line.typed]
    return sum(one in _OPENERS for one in bare) - sum(one in _CLOSERS for one in bare)


def _around(features: Floats, chosen: Ids, beside: BesideLine) -> None:
    """How often it stands above and how near, how often below, and whether everybody uses it."""
    above = beside.ids[max(0, beside.begin - _ABOVE_LEXEMES) : beside.begin]
    below = beside.ids[beside.begin + 1 : beside.begin + 1 + _BELOW_LEXEMES]
    hits = above == chosen[:, None]
    times = np.count_nonzero(hits, axis=1)
    away: Ints = np.full(len(chosen), _ABOVE_LEXEMES)
    if len(above):
        away = np.where(times > 0, hits[:, ::-1].argmax(axis=1), away)
    features[:, _AT_AROUND] = np.log1p(times)
    features[:, _AT_AROUND + 1] = np.log1p(away) / 4
    features[:, _AT_AROUND + 2] = np.log1p(np.count_nonzero(below == chosen[:, None], axis=1))
    features[:, _AT_AROUND + 3] = chosen < beside.common
