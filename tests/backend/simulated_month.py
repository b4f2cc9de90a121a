"""A month of a simulated company's events, as clients send them.

Developers differ in how often they accept (a normal deviate of the logit), type and accept in one or two languages, and sit in teams
of which one is too small to be shown. Events are read and written as a gateway's intake does.
"""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
from backend.world import closing
from foretype_backend.reports.period import Period
from foretype_backend.telemetry.aggregate import refresh
from foretype_backend.telemetry.intake import Sender, read
from foretype_backend.telemetry.store import Store
from numpy.random import Generator as Random

__all__ = ["write_month"]

_TEAMS: Final = {"search": 0.4, "payments": 0.3, "mobile": 0.285, "legal": 0.015}
_ACCEPTANCE: Final = {"python": 0.35, "typescript": 0.3, "go": 0.25, "cobol": 0.1}
_LANGUAGES: Final = {"python": 0.6, "typescript": 0.25, "go": 0.14, "cobol": 0.01}
_EDITORS: Final = {"visual-studio-code": 0.6, "neovim": 0.3, "emacs": 0.1}
_ANSWERS: Final = ("yes", "mostly", "no")
_KEPT: Final = {15: 0.97, 30: 0.95, 120: 0.9, 300: 0.85, 600: 0.82, 1800: 0.78}
_SPREAD: Final = 0.5


async def write_month(url: str, period: Period, *, developers: int, suggestions: int, seed: int) -> int:
    """Write it, and add it up. Returns the number of events."""
    rng, many = np.random.default_rng(seed), 0
    people = [_person(number, developers, rng) for number in range(developers)]
    store = await Store.open(url)
    async with closing(store):
        days = [period.first + timedelta(days=at) for at in range((period.last - period.first).days + 1)]
        for day in days:
            if day.weekday() >= 5:
                continue
            noon_ms = int(datetime(day.year, day.month, day.day, 9, tzinfo=UTC).timestamp() * 1000)
            rows: list[tuple[Any, ...]] = []
            for person in people:
                events = list(_day(person, f"{person['user']}-{day:%m%d}", noon_ms, suggestions, rng, day == days[-3]))
                sender = Sender("simulated", team=person["team"], user=person["user"])
                received = read(sender, events, received_ms=noon_ms + 36_000_000)
                assert not received.refused, received.refused[0]
                rows += received.rows
            await store.write(rows)
            many += len(rows)
        await refresh(store, {("default", day.isoformat()) for day in days})
    return many


def _person(number: int, developers: int, rng: Random) -> dict[str, Any]:
    """Teams and languages by quota, so that small ones are as small as they are meant to be."""

    def quota(shares: dict[str, float], at: float) -> str:
        reached = np.cumsum(list(shares.values()))
        return list(shares)[min(int(np.searchsorted(reached, at, side="right")), len(shares) - 1)]

    at = (number + 0.5) / developers
    spread = (number * 0.618033988749895) % 1.0  # another order, so that a team is not a language
    return {
        "user": f"dev{number:04}",
        "team": quota(_TEAMS, at),
        "language": quota(_LANGUAGES, spread),
        "editor": quota(_EDITORS, (number * 0.414213562) % 1.0),
        "lift": float(rng.normal(0, _SPREAD)),
        "ms": float(rng.lognormal(4.4, 0.4)),
    }


def _day(
    person: dict[str, Any], session: str, began_ms: int, suggestions: int, rng: Random, asked: bool
) -> Generator[dict[str, Any]]:
    seq, at_ms = 0, 0.0
    here = {"language": person["language"], "editor": person["editor"], "model": "foretype-1", "variant": "control"}
    base = _ACCEPTANCE[person["language"]]
    rate = 1 / (1 + np.exp(-(np.log(base / (1 - base)) + person["lift"])))

    def event(name: str, /, **fields: Any) -> dict[str, Any]:
        nonlocal seq, at_ms
        seq, at_ms = seq + 1, at_ms + 900.0
        told = {"session": session, "seq": seq, "t_ms": began_ms + int(at_ms), "at_ms": at_ms}
        return {"event": name, **told, **here, **fields}

    for number in range(int(rng.poisson(suggestions))):
        for more in range(1 + int(rng.poisson(3))):
            last = more == 0
            opened = {
                "document": "d",
                "trigger": "automatic",
                "caret": "line_end",
                "outcome": "network" if last else "shed",
            }
            parses = {"parses": bool(rng.random() < 0.97)} if last else {}
            yield event("opportunity", id=f"o{number}.{more}", **opened, **parses)
        characters = 4 + int(rng.lognormal(3.0, 0.7))
        gone = bool(rng.random() < 0.2)
        yield event("request", id=f"r{number}", request_class="interactive", prompt_tokens=1500, cached_tokens=1400)
        result = {"last_ms": 80.0, "generated_tokens": characters // 3 + 1, "characters": characters}
        finish = "cancelled" if gone else "stop"
        yield event("result", id=f"r{number}", finish=finish, request_class="interactive", **result)
        if gone:
            continue
        shown = {"id": f"i{number}", "shown": f"i{number}"}
        told = {"served_from": "network", "display_source": "editor", "visible_ms": 1200.0, "lines": 1}
        accepted = bool(rng.random() < rate)
        yield event("display", **shown, **told, characters=characters, end="accepted" if accepted else "diverged")
        if not accepted:
            continue
        yield event("accept", **shown, kind="full", how="reported", characters=characters, lines=1)
        for age_s, kept in _KEPT.items():
            untouched = bool(rng.random() < kept)
            now = characters if untouched else characters // 3
            left = {"length_now": now, "arc": now, "levenshtein": characters - now, "fourgram": now / characters}
            yield event("survive", **shown, age_s=age_s, characters=characters, **left)
    yield event("typing", keys=int(rng.poisson(40 * suggestions)), deletions=int(rng.poisson(5 * suggestions)))
    if asked and rng.random() < 0.4:
        answer = _ANSWERS[min(2, int(person["ms"] / 90))]
        yield event("feel", answer=answer, p50_ms=person["ms"], p95_ms=person["ms"] * 2.5, suggestions=300)
