"""The figures of one group, each with its part, its whole and its interval. Pure. Definitions: :data:`DEFINITIONS`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from foretype_backend.config.settings import PricesConfig
from foretype_backend.experiments.sequential import student_quantile
from foretype_backend.reports.sums import AGES_S, FeelingAnswer, Sums

METHOD: Final = "95 %: Wilson's, of the trials divided by the design effect of users, with Student's t"
_LEVEL: Final = 0.975
_FEWEST: Final = 5
"""Users below whom a variance between them says too little to be told."""


class Share(NamedTuple):
    """`part` of `whole`; without `low` and `high` where there are too few users, or no trial."""

    part: float
    whole: float
    value: float | None
    low: float | None
    high: float | None


def clustered(users: Iterable[tuple[float, float]]) -> Share:
    """The share of all (part, whole) of users together, with its interval.

    A developer's events resemble each other, so that a thousand of ten people's say less than a thousand people's would. Wilson's
    interval is taken of so many independent trials as say as much: their number divided by the design effect (Kish), which is the
    variance between users (of a ratio, by linearisation) over what it would be without them; and Student's t stands for the normal's
    quantile (Korn and Graubard 1998). A part may be negative: a share of keys saved can be.
    """
    n, part, whole, parts2, both, wholes2 = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for x, y in users:
        if x or y:  # who has a part of no whole counts: what they cost was paid
            n, part, whole = n + 1, part + x, whole + y
            parts2, both, wholes2 = parts2 + x * x, both + x * y, wholes2 + y * y
    if not whole:
        return Share(part, whole, None, None, None)
    share = part / whole
    if n < _FEWEST:
        return Share(part, whole, share, None, None)
    # Sum over users of (x - share y)², without keeping them.
    spread = max(0.0, parts2 - 2 * share * both + share * share * wholes2)
    variance = n / (n - 1) * spread / whole**2
    t = student_quantile(_LEVEL, n - 1)
    if not 0 <= share <= 1:
        half = t * math.sqrt(variance)
        return Share(part, whole, share, share - half, share + half)
    alone = share * (1 - share) / whole
    trials = whole / max(1.0, variance / alone) if alone else min(whole, float(n))
    return Share(part, whole, share, *_wilson(share, trials, t))


def _wilson(share: float, trials: float, z: float) -> tuple[float, float]:
    middle = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


READ_MS: Final = 750
FEELINGS: Final = ("yes", "mostly", "no")

DEFINITIONS: Final = {
    "acceptance": f"suggestions that were accepted / suggestions that were visible for {READ_MS} ms in all, or accepted",
    "accepted_per_opportunity": "characters accepted / keystrokes and caret moves after which a suggestion was allowed",
    "retained_per_opportunity": "characters accepted and not touched in five minutes / the same",
    "retained_characters": "characters that no edit has touched at that age / characters accepted, where both were seen",
    "persistence": "accepts that are mostly unchanged at that age (Levenshtein / longer length < 0.33) / accepts seen then",
    "keystrokes_saved": "(characters accepted and kept for 30 s - accepts) / (keys and deletions typed by hand + those characters)",
    "cancel_rate": "requests somebody waited for, and then typed on or went away / requests somebody waited for",
    "parses": "texts found that add no error of syntax in place / texts found that a grammar could judge",
    "next_edit_acceptance": "next edits that were accepted / next edits that were shown",
    "next_edit_jumps": "next edits that were jumped to / next edits that were too far to be shown in place",
    "next_edit_kept": "characters that accepted next edits inserted or deleted, and that still are so after five minutes / all of them",
    "next_edit_reversed": "accepted next edits whose lines are as before after five minutes / accepted next edits seen then",
    "cost_per_accepted_token": "price of all tokens computed / accepted tokens (accepted characters times tokens per character)",
    "interval": f"{METHOD}; of a ratio that is no share: linearised, by user",
}


class Costs(NamedTuple):
    """What a token costs.

    Attributes:
        engine_per_token: of the time of engines, shared among all tokens of the tenant that were computed.
        tokens_per_character: of text that was generated.
    """

    prices: PricesConfig
    engine_per_token: float
    tokens_per_character: float

    def of(self, counts: dict[str, int]) -> float:
        computed = max(0, counts["prompt_tokens"] - counts["cached_tokens"])
        generated, prices = counts["generated_tokens"], self.prices
        tokens = (
            computed * prices.prompt_per_million
            + counts["cached_tokens"] * prices.cached_per_million
            + generated * prices.generated_per_million
        )
        return tokens / 1e6 + (computed + generated) * self.engine_per_token


def figures_of(group: Sequence[Sums], costs: Costs | None) -> dict[str, Any]:
    """Everything of a group; a figure whose whole is 0 has the value None.

    Args:
        costs: None where nobody has said what anything costs.
    """
    everybody = _by_user(group)

    def ratio(part: Callable[[Sums], float], whole: Callable[[Sums], float]) -> dict[str, Any]:
        return _plain(clustered((part(one), whole(one)) for one in everybody))

    def counts(part: str, whole: str) -> dict[str, Any]:
        return ratio(lambda one: one.counts[part], lambda one: one.counts[whole])

    def at(age: int, part: int, whole: int) -> dict[str, Any]:
        none = (0, 0, 0, 0)
        return ratio(lambda one: one.lasting.get(age, none)[part], lambda one: one.lasting.get(age, none)[whole])

    made: dict[str, Any] = {
        "acceptance": counts("accepted_sessions", f"read_{READ_MS}"),
        "accepted_per_opportunity": counts("accepted_characters", "opportunities"),
        "retained_per_opportunity": ratio(
            lambda one: one.lasting.get(300, (0, 0, 0, 0))[2], lambda one: one.counts["opportunities"]
        ),
        "retained_characters": {str(age): at(age, 2, 1) for age in AGES_S},
        "persistence": {str(age): at(age, 3, 0) for age in AGES_S},
        "keystrokes_saved": _plain(clustered(_keys(everybody))),
        "cancel_rate": counts("cancelled", "awaited"),
        "parses": counts("parsed", "judged"),
        "next_edit_acceptance": counts("next_accepted", "next_shown"),
        "next_edit_jumps": counts("next_jumped", "next_jumps"),
        "next_edit_kept": counts("next_kept", "next_measured"),
        "next_edit_reversed": counts("next_reversed", "next_looked_at"),
        "cost_per_accepted_token": None,
    }
    if costs is not None:
        per = costs.tokens_per_character
        made["cost_per_accepted_token"] = ratio(
            lambda one: costs.of(one.counts), lambda one: one.counts["accepted_characters"] * per
        )
    return made


def feelings(answers: Sequence[FeelingAnswer]) -> dict[str, Any]:
    """How many users find suggestions instant, with what these users measured themselves (means of their p50 and p95)."""
    rows: list[dict[str, Any]] = []
    for answer in FEELINGS:
        own = [one for one in answers if one.answer == answer]
        share = clustered((float(one.answer == answer), 1.0) for one in answers)
        row: dict[str, Any] = {"answer": answer, **_plain(share)}
        for name in ("p50_ms", "p95_ms"):
            row[name] = round(sum(getattr(one, name) for one in own) / len(own), 1) if own else None
        rows.append(row)
    return {"answers": len(answers), "rows": rows}


def _by_user(group: Sequence[Sums]) -> list[Sums]:
    """One row for each user: what somebody did in two teams is one person's."""
    found: dict[str, Sums] = {}
    for one in group:
        known = found.get(one.user)
        if known is None:
            found[one.user] = one
            continue
        counts = {name: value + one.counts[name] for name, value in known.counts.items()}
        lasting = dict(known.lasting)
        for age, values in one.lasting.items():
            a, b = lasting.get(age, (0, 0, 0, 0)), values
            lasting[age] = (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3])
        found[one.user] = Sums(known.team, known.group, known.user, counts, lasting)
    return list(found.values())


def _keys(everybody: Sequence[Sums]) -> Iterable[tuple[float, float]]:
    """Of users whose editor counts keys. An accept is a key; what did not stay for 30 s saved none."""
    seen = [one.lasting.get(30, (0, 0, 0, 0)) for one in everybody]
    characters, kept = sum(one[1] for one in seen), sum(one[2] for one in seen)
    usual = kept / characters if characters else 0.0
    for one, (_, own, own_kept, _) in zip(everybody, seen, strict=True):
        typed = one.counts["keys"] + one.counts["deletions"]
        if typed:
            stayed = one.counts["accepted_characters"] * (own_kept / own if own else usual)
            yield stayed - one.counts["accepts"], typed + stayed


def _plain(share: Share) -> dict[str, Any]:
    def rounded(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.6g}")

    value, low, high = rounded(share.value), rounded(share.low), rounded(share.high)
    return {
        "value": value,
        "low": low,
        "high": high,
        "numerator": round(share.part, 9),
        "denominator": round(share.whole, 9),
    }
