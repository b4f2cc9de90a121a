"""What the arguments of a call become when the parameters of what it calls change. Pure, on lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from foretype_context.edits.parameters import Argument, Parameter, ParameterKind

_BY_POSITION: Final = (ParameterKind.POSITION, ParameterKind.EITHER)
_MANY: Final = (ParameterKind.REST, ParameterKind.KEYWORDS)


class Given(NamedTuple):
    """An argument of the new call: its place in the old one, if it was there, and its text."""

    place: int | None
    text: str


class NotKnown(Enum):
    """The call has to change, and nobody can say to what."""

    NOT_KNOWN = auto()


NOT_KNOWN: Final = NotKnown.NOT_KNOWN


def pairs_of(old: Sequence[Parameter], new: Sequence[Parameter]) -> dict[str, str] | None:
    """Old names by new ones; None where nobody can say which are the same.

    That is where others came for those that went, and where what takes all the rest may stand for them.
    """
    known, named = {one.name for one in old}, {one.name for one in new}
    gone = [(index, one) for index, one in enumerate(old) if one.name not in named]
    came = [(index, one) for index, one in enumerate(new) if one.name not in known]
    pairs = {one.name: one.name for one in new if one.name in known}
    if gone and any(one.kind in _MANY for one in new):
        return None
    if gone and came:
        if len(gone) != len(came):
            return None
        for (before, a), (after, b) in zip(gone, came, strict=True):
            if before != after or a[1:3] != b[1:3] or (a.declared != b.declared and a.declared and b.declared):
                return None
            pairs[b.name] = a.name
    return pairs


def fits(parameters: Sequence[Parameter], arguments: Sequence[Argument]) -> bool:
    """Whether a call may be one of a function with these parameters."""
    return _bound(parameters, arguments) is not None


def rewritten(
    old: Sequence[Parameter],
    new: Sequence[Parameter],
    arguments: Sequence[Argument],
    value_of: Callable[[Parameter], str | None],
    *,
    keywords: bool,
) -> list[Given] | NotKnown | None:
    """The arguments of a call of `old` as `new` wants them; None where nothing has to change or nothing is certain.

    Args:
        value_of: what a call gives for a parameter that it did not give before, if that is known.
        keywords: the language has arguments by keyword.
    """
    pairs, bound = pairs_of(old, new), _bound(old, arguments)
    if pairs is None or bound is None:
        return None
    by_position: list[Given] = []
    by_keyword: list[Given] = []
    gap = False
    taken: set[int] = set()
    for one in new:
        places = bound.get(pairs.get(one.name, ""), [])
        if one.kind in _MANY:
            if places and gap and one.kind is ParameterKind.REST:
                return NOT_KNOWN
            several = by_position if one.kind is ParameterKind.REST else by_keyword
            several += [_as_it_was(arguments, index) for index in places]
            taken.update(places)
            continue
        if not places and one.default:
            gap = True
            continue
        given = arguments[places[0]] if places else None
        value = given.value if given else value_of(one)
        if value is None:
            return NOT_KNOWN
        index = places[0] if places else None
        taken.update(places)
        if not (given and given.keyword) and not gap and one.kind in _BY_POSITION:
            by_position.append(Given(index, value))
        elif keywords and one.kind is not ParameterKind.POSITION:
            gap = True
            by_keyword.append(Given(index, f"{one.name}={value}"))
        else:
            return NOT_KNOWN
    if any(index not in taken for one in old if one.kind in _MANY for index in bound.get(one.name, [])):
        return NOT_KNOWN
    by_keyword.sort(key=lambda given: len(arguments) if given.place is None else given.place)
    said = by_position + by_keyword
    return None if said == [_as_it_was(arguments, index) for index in range(len(arguments))] else said


def _as_it_was(arguments: Sequence[Argument], index: int) -> Given:
    one = arguments[index]
    return Given(index, f"{one.keyword}={one.value}" if one.keyword else one.value)


def _bound(parameters: Sequence[Parameter], arguments: Sequence[Argument]) -> dict[str, list[int]] | None:
    """The arguments of each parameter; None where the call is none of these parameters, or nobody can count what it gives."""
    by_position = [one for one in parameters if one.kind in _BY_POSITION]
    by_keyword = {one.name: one for one in parameters if one.kind in (ParameterKind.EITHER, ParameterKind.KEYWORD)}
    rest = next((one for one in parameters if one.kind is ParameterKind.REST), None)
    keywords = next((one for one in parameters if one.kind is ParameterKind.KEYWORDS), None)
    bound: dict[str, list[int]] = {}
    position = 0
    for index, argument in enumerate(arguments):
        if argument.many:
            return None
        if argument.keyword:
            one = by_keyword.get(argument.keyword, keywords)
        else:
            one = by_position[position] if position < len(by_position) else rest
            position += 1
        if one is None or (one.name in bound and one not in (rest, keywords)):
            return None
        bound.setdefault(one.name, []).append(index)
    return bound if all(one.default or one.name in bound for one in parameters) else None
