"""Which figures of a report are not shown, so that none tells of fewer than five people, not even as a difference. Pure.

A report's tables are sums of sums: a tenant's figure by language is the sum of its teams', a team's the sum of its languages'. What is
hidden in one place and shown in all others of such a sum is told by subtraction, so a second figure goes with it: the one of the
fewest users. Several sums taken together may still say something about a group of five or more; about fewer they do not in any one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

LEAST_USERS: Final = 5

Place = tuple[str | None, str | None]
"""A team and a value of what is told apart; None is all of them."""
Users = Mapping[tuple[str, str], Collection[str]]
"""Who stands behind the figures of each team and value."""


class _Sum(NamedTuple):
    whole: Place
    parts: list[Place]


def hidden(users: Users, also: Collection[Place] = (), *, least: int = LEAST_USERS) -> set[Place]:
    """Places that are not shown.

    Args:
        also: hidden for another reason.
    """
    known = _members(users)
    found = {place for place, who in known.items() if len(who) < least} | {place for place in also if place in known}
    changed = True
    while changed:
        changed = False
        for one in _sums(users):
            more = _told(one, found, known, least)
            if more is not None:
                found.add(more)
                changed = True
    return found


def hidden_in(weeks: Sequence[Users], also: Collection[Place] = ()) -> set[Place]:
    """The same of some weeks together.

    Each has a report of its own, and they are their sum: what one of them hides is told by the others, unless those hide enough of it
    too.
    """
    whole: dict[tuple[str, str], set[str]] = {}
    gone: dict[Place, list[set[str]]] = {}
    for week in weeks:
        for place, who in week.items():
            whole.setdefault(place, set()).update(who)
        known = _members(week)
        for place in hidden(week) if len(weeks) > 1 else ():
            gone.setdefault(place, []).append(known[place])
    told = {place for place, who in gone.items() if len(who) < 2 or len(set[str]().union(*who)) < LEAST_USERS}
    return hidden(whole, told | set(also))


def _members(users: Users) -> dict[Place, set[str]]:
    known: dict[Place, set[str]] = {}
    for (team, value), who in users.items():
        for place in ((team, value), (team, None), (None, value), (None, None)):
            known.setdefault(place, set()).update(who)
    return known


def _sums(users: Users) -> Iterator[_Sum]:
    teams = sorted({team for team, _ in users})
    values = sorted({value for _, value in users})
    for team in (*teams, None):
        yield _Sum((team, None), [(team, value) for value in values if team is None or (team, value) in users])
    for value in (*values, None):
        yield _Sum((None, value), [(team, value) for team in teams if value is None or (team, value) in users])


def _told(one: _Sum, found: set[Place], known: Mapping[Place, set[str]], least: int) -> Place | None:
    """What has to be hidden too; None where nothing of this sum is told by the rest of it."""
    parts = [place for place in one.parts if place in found]
    whole = one.whole in found
    if not parts and not whole:
        return None
    few = not whole and len(set[str]().union(*(known[place] for place in parts))) < least
    if len(parts) + whole >= 2 and not few:
        return None
    shown = [place for place in one.parts if place not in found]
    if shown:
        return min(shown, key=lambda place: (len(known[place]), str(place)))
    return None if whole else one.whole
