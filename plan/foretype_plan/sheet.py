"""Quantities by name: which formulas there are, in which order they are worked out, and what each of them says."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Mapping
from functools import cache
from graphlib import TopologicalSorter
from types import FunctionType
from typing import NamedTuple

from foretype_plan import formulas
from foretype_plan.errors import PlanError


class Quantity(NamedTuple):
    """One formula.

    Attributes:
        unit: the first word of its docstring.
        says: the rest, with where it comes from.
        text: what it gives, as the code has it; of several lines the last one.
        needs: names of inputs and other quantities.
    """

    name: str
    unit: str
    says: str
    text: str
    needs: tuple[str, ...]
    function: Callable[..., float]


@cache
def quantities() -> tuple[Quantity, ...]:
    """All of them; each after those it needs."""
    found: dict[str, Quantity] = {}
    for name, function in vars(formulas).items():
        if isinstance(function, FunctionType) and not name.startswith("_") and name not in formulas.HELPERS:
            unit, _, says = (inspect.getdoc(function) or "").partition(": ")
            needs = tuple(inspect.signature(function).parameters)
            found[name] = Quantity(name, unit, says, _text(function), needs, function)
    order = TopologicalSorter({name: [need for need in one.needs if need in found] for name, one in found.items()})
    return tuple(found[name] for name in order.static_order())


@cache
def inputs() -> frozenset[str]:
    """Names that formulas need and none gives."""
    every = quantities()
    return frozenset(need for one in every for need in one.needs) - {one.name for one in every}


def evaluate(values: Mapping[str, float], *, only: str | None = None) -> dict[str, float]:
    """All quantities, the inputs among them.

    Args:
        values: by name; a quantity that is given is taken as it is, not worked out.
        only: work out no more than this one needs.

    Raises:
        PlanError: a quantity is no number, or without bound; it names the quantity.
    """
    known = dict(values)
    wanted = None if only is None else _needed(only, frozenset(values))
    for one in quantities():
        if one.name in known or (wanted is not None and one.name not in wanted):
            continue
        missing = [need for need in one.needs if need not in known]
        if missing:
            raise PlanError(missing[0], f"{one.name} needs it, and it is not given")
        try:
            value = float(one.function(*(known[need] for need in one.needs)))
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise PlanError(one.name, f"cannot be worked out with these inputs ({error})") from error
        if not math.isfinite(value):
            raise PlanError(one.name, f"{value} with these inputs")
        known[one.name] = value
    return known


def _needed(name: str, given: frozenset[str]) -> frozenset[str]:
    by_name = {one.name: one for one in quantities()}
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in by_name and one not in seen and one not in given:
            seen.add(one)
            waiting.extend(by_name[one].needs)
    return frozenset(seen)


def _text(function: FunctionType) -> str:
    body = ast.parse(inspect.getsource(function)).body[0]
    assert isinstance(body, ast.FunctionDef)
    last = body.body[-1]
    if any(isinstance(statement, ast.For) for statement in body.body):
        return "the greatest that holds, by halving"
    given = {
        target.id: statement.value
        for statement in body.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    assert isinstance(last, ast.Return) and last.value is not None

    class Inline(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return given.get(node.id, node)

    return ast.unparse(Inline().visit(last.value))
