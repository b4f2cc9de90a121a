"""Which days a report is about: whole weeks, and months of whole weeks. Pure.

A month is the weeks whose Thursday lies in it (ISO 8601), so that a month less its weeks leaves nothing: days that stood in no other
report would tell of the few who worked on them. For the same reason there is no report of a week that is not over.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final, NamedTuple

_WEEK: Final = timedelta(days=7)


class Period(NamedTuple):
    """`weeks` by their Mondays; `name` is `2026-W47` or `2026-11`."""

    name: str
    weeks: tuple[date, ...]

    @property
    def first(self) -> date:
        return self.weeks[0]

    @property
    def last(self) -> date:
        return self.weeks[-1] + timedelta(days=6)

    def each(self) -> list[Period]:
        """Its weeks, as periods of their own."""
        return [week(monday) for monday in self.weeks]


def week(given: date | str, *, today: date | None = None) -> Period:
    """The week of a day, or the one that `2026-W47` names; the last that is over where nothing is named.

    Raises:
        ValueError: it is no week, or not over at `today`.
    """
    if isinstance(given, str):
        found = re.fullmatch(r"(\d{4})-W(\d{2})", given)
        try:
            if given and found is None:
                raise ValueError
            given = date.fromisocalendar(int(found[1]), int(found[2]), 1) if found else (today or date.min) - _WEEK
        except ValueError:
            raise ValueError(f"{given!r} is no week; write it as 2026-W47, or leave it out for the last one") from None
    monday = given - timedelta(days=given.weekday())
    year, number, _ = monday.isocalendar()
    return _over(Period(f"{year}-W{number:02}", (monday,)), today)


def month(given: str, *, today: date | None = None) -> Period:
    """The weeks of a month, `2026-11`; of the last that is over where nothing is named. Raises as `week`."""
    if not given:
        former = (today or date.min).replace(day=1) - timedelta(days=1)
        period = _weeks_of(former.year, former.month)
        if today is not None and period.last >= today:
            former = former.replace(day=1) - timedelta(days=1)
            period = _weeks_of(former.year, former.month)
        return period
    found = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", given)
    if found is None or not 1 < int(found[1]) < 9999:
        raise ValueError(f"{given!r} is no month; write it as 2026-11, or leave it out for the last one")
    return _over(_weeks_of(int(found[1]), int(found[2])), today)


def named(given: str, *, today: date, months: bool = False) -> Period:
    """The period that a name stands for; without one the last week that is over, or with `months` the last month. Raises as `week`."""
    by_month = months or re.fullmatch(r"\d{4}-\d{2}", given) is not None
    return month(given, today=today) if by_month else week(given, today=today)


def _weeks_of(year: int, number: int) -> Period:
    thursday = date(year, number, 1)
    thursday += timedelta(days=(3 - thursday.weekday()) % 7)
    weeks: list[date] = []
    while thursday.month == number:
        weeks.append(thursday - timedelta(days=3))
        thursday += _WEEK
    return Period(f"{year}-{number:02}", tuple(weeks))


def _over(period: Period, today: date | None) -> Period:
    if today is not None and period.last >= today:
        raise ValueError(f"{period.name} ends on {period.last}, and is reported when it is over")
    return period
