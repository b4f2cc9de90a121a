"""What was really asked of a gateway, and the same requests played on a cell: at the same moments, by the same people, with the same prompts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from statistics import fmean
from typing import Any, Final, NamedTuple

import msgspec
from foretype_wire.messages import RequestClass

from foretype_plan.simulation.cell import Cell
from foretype_plan.simulation.cell_options import CellOptions
from foretype_plan.simulation.figures import quantile
from foretype_plan.simulation.people import Arrivals, Developer, Prompt, chain_of

OBJECTIVES_S: Final[Mapping[str, float]] = {"interactive": 0.1, "block": 0.5, "speculative": 0.15}
_DRAIN_S: Final = 5.0


class Answered(NamedTuple):
    """Seconds from when it was due, to the first text or to the end of an answer without any. Tokens as the gateway told them."""

    first_s: float
    total_s: float
    cached_tokens: int
    generated_tokens: int


class Sent(NamedTuple):
    """One request that was sent; `answered` is None where it was refused, or never ended.

    Attributes:
        moment_s: since the first one.
        keys: of its prompt's whole blocks; none where nothing is cached.
    """

    moment_s: float
    person: int
    class_: RequestClass
    prompt_tokens: int
    keys: tuple[bytes, ...]
    answered: Answered | None
    refused: bool


class Trace(NamedTuple):
    """What became of the requests of one window. Seconds; shares of what was asked, of prompt tokens."""

    ttft_s: Mapping[str, Sequence[float]]
    refused: Mapping[str, float]
    goodput_rate: float
    cached_share: float

    def first_s(self, share: float, *classes: str) -> float:
        """Of the classes named, of all without a name: the time to first token that `share` of them do not exceed."""
        found = [value for name in classes or self.ttft_s for value in self.ttft_s.get(name, ())]
        return quantile(sorted(found), share) or 0.0


def of_gateway(sent: Sequence[Sent], begin_s: float, seconds: float) -> Trace:
    """What was measured of those that were due between `begin_s` and `seconds` later."""
    window = [one for one in sent if begin_s <= one.moment_s < begin_s + seconds]
    ttft_s: dict[str, list[float]] = {}
    for one in window:
        if one.answered is not None:
            ttft_s.setdefault(one.class_.value, []).append(one.answered.first_s)
    answered = [one for one in window if one.answered is not None]
    prompts = sum(one.prompt_tokens for one in answered)
    cached = sum(one.answered.cached_tokens for one in answered if one.answered is not None)
    return Trace(ttft_s, _refused(window), _good(ttft_s) / seconds, cached / max(1, prompts))


def predicted(
    options: CellOptions,
    sent: Sequence[Sent],
    begin_s: float,
    seconds: float,
    *,
    generated: Sequence[int],
    ways_s: Sequence[float] = (0.0,),
) -> Trace:
    """The same requests on a cell, all from the first on; what becomes of those that are due in the window.

    Args:
        generated: lengths of answers, of which each request draws one: they are known of another window alone.
        ways_s: what a request takes to admission, drawn in the same way.
    """
    cell, rng = Cell(_over(options, begin_s, seconds)), Random(f"answers {options.seed}")
    people = {number: _person(number, rng) for number in sorted({one.person for one in sent})}
    for one in sent:
        if one.moment_s < begin_s + seconds:
            reaches_s = one.moment_s + rng.choice(ways_s)
            cell.time.at(reaches_s, partial(_asks, cell, people[one.person], one, rng.choice(generated)))
    cell.begin()
    cell.until(begin_s + seconds + _DRAIN_S)
    return of_cell(cell, seconds)


def of_cell(cell: Cell, seconds: float) -> Trace:
    tally = cell.tally
    refused = {name: tally.refused[name] / max(1, tally.asked[name]) for name in OBJECTIVES_S}
    return Trace(
        tally.ttft_s, refused, _good(tally.ttft_s) / seconds, tally.cached_tokens / max(1, tally.prompt_tokens)
    )


def pooled(traces: Sequence[Trace]) -> Trace:
    """Of several runs one: times of all together, for a median of each may lie on either side of a gap; the mean of the rest."""
    names = sorted({name for one in traces for name in one.ttft_s})
    return Trace(
        {name: [value for one in traces for value in one.ttft_s.get(name, ())] for name in names},
        {name: fmean(one.refused[name] for one in traces) for name in OBJECTIVES_S},
        fmean(one.goodput_rate for one in traces),
        fmean(one.cached_share for one in traces),
    )


def pair(name: str, predicted_: float, measured: float) -> dict[str, Any]:
    """Both below a thousandth are as good as equal: a share of refusals that is nothing in both."""
    both_nothing = predicted_ < 1e-3 and measured < 1e-3
    ratio = 1.0 if both_nothing else predicted_ / measured if measured else 99.0
    return {"name": name, "predicted": round(predicted_, 4), "measured": round(measured, 4), "ratio": round(ratio, 3)}


def _over(options: CellOptions, begin_s: float, seconds: float) -> CellOptions:
    return msgspec.structs.replace(options, warm_up_s=begin_s, seconds=seconds)


def _asks(cell: Cell, person: Developer, sent: Sent, tokens: int) -> None:
    if sent.moment_s >= cell.tally.begin_s:
        cell.tally.ask(person.tenant, sent.class_.value, sent.moment_s)
    cell.ask(person, Prompt(sent.class_, sent.prompt_tokens, sent.keys, chain_of(sent.keys)), tokens, sent.moment_s)


def _person(number: int, rng: Random) -> Developer:
    nothing = Arrivals((), 1.0)
    return Developer(f"p{number}", "team", "", nothing, rng, rate=1.0, repository_tokens=0, most_tokens=1)


def _refused(window: Sequence[Sent]) -> dict[str, float]:
    of = {name: [one.refused for one in window if one.class_.value == name] for name in OBJECTIVES_S}
    return {name: sum(found) / max(1, len(found)) for name, found in of.items()}


def _good(ttft_s: Mapping[str, Sequence[float]]) -> int:
    """Requests whose first token came within its objective."""
    return sum(value <= OBJECTIVES_S.get(name, math.inf) for name, values in ttft_s.items() for value in values)
