"""Which mutants are tried: those of cosmic-ray that a person could have written by mistake, drawn by a seed.

A draw goes by what a mutant changes (its definition, the line before and after), not by where it stands: a module that moves keeps
its mutants, and an edit elsewhere draws no others.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.ast.ast_query import ASTQuery
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_item import MutationSpec, WorkItem

from mutants.chart import Chart, Room

__all__ = ["Mutant", "draw"]

_COMPARISONS = (
    "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt", "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is",
)  # fmt: skip
_BINARY = (
    "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "FloorDiv_Mul", "Mod_FloorDiv", "Pow_Mul",
    "BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitAnd", "LShift_RShift", "RShift_LShift",
)  # fmt: skip
OPERATORS = frozenset(
    {
        *(f"core/ReplaceComparisonOperator_{one}" for one in _COMPARISONS),
        *(f"core/ReplaceBinaryOperator_{one}" for one in _BINARY),
        *(f"core/Replace{one}" for one in ("TrueWithFalse", "FalseWithTrue", "AndWithOr", "OrWithAnd")),
        *(f"core/Replace{one}" for one in ("BreakWithContinue", "ContinueWithBreak")),
        *(f"core/ReplaceUnaryOperator_{one}" for one in ("USub_UAdd", "Delete_USub", "Delete_Not", "Delete_Invert")),
        *(f"core/{one}" for one in ("AddNot", "ExceptionReplacer", "NumberReplacer", "ZeroIterationForLoop")),
    }
)
"""The boundary and the opposite of each comparison, the neighbour of each operator. What breaks at every call (`a << b` for `a + b`)
would only flatter the tests."""


@dataclass(frozen=True)
class Mutant:
    room: Room
    item: WorkItem
    was: str
    now: str
    key: str
    """Of the seed and of what it changes, as hex: the smallest of a room are drawn."""

    @property
    def spec(self) -> MutationSpec:
        return self.item.mutations[0]

    @property
    def module(self) -> str:
        return self.spec.module_path.as_posix()

    @property
    def definition(self) -> str:
        return self.spec.definition_name or ""

    @property
    def place(self) -> tuple[str, str, str, str]:
        return self.module, self.definition, self.was, self.now

    def __str__(self) -> str:
        return f"{self.key[:8]}  {self.module}:{self.spec.start_pos[0]} {self.definition}\n    - {self.was}\n    + {self.now}"


def draw(chart: Chart, root: Path) -> list[Mutant]:
    """`per_room` mutants of every room, each of another place."""
    drawn: list[Mutant] = []
    for room in chart.rooms:
        sources = {path: (root / path).read_text("utf-8") for path in room.modules}
        keyed = [
            (*one, path)
            for path in room.modules
            for one in _places(_specs(path, sources[path]), sources[path], chart.seed)
        ]
        for key, spec, path in sorted(keyed, key=lambda one: (one[0], one[2]))[: chart.per_room]:
            drawn.append(Mutant(room, WorkItem.single(key, spec), *_changed_line(sources[path], spec), key))
    return drawn


def _specs(path: str, source: str) -> Iterator[MutationSpec]:
    """What cosmic-ray's `init` would find, by the operators that count here."""
    nodes = [(node, ASTQuery(node).get_definition_name()) for node in ast_nodes(get_ast(source))]
    lines = source.splitlines()
    for name in sorted(OPERATORS):
        operator = get_operator(name)()
        found = [(*place, of) for node, of in nodes for place in operator.mutation_positions(node)]
        for occurrence, (start, end, of) in enumerate(found):
            if name == "core/ExceptionReplacer" and "." in lines[start[0] - 1][start[1] :].split(":")[0]:
                continue  # which cosmic-ray cannot replace: it takes each for a plain name
            yield MutationSpec(path, name, occurrence, start, end, definition_name=of)


def _places(specs: Iterable[MutationSpec], source: str, seed: int) -> Iterable[tuple[str, MutationSpec]]:
    """One mutant of each place in a module with its key, though `<` has two and a number has two."""
    tree, lines = ast.parse(source), source.splitlines()
    opposite = {_span(node)[0] for node in ast.walk(tree) if _has_opposite(node)}
    declared, between = (
        list(_declarations(tree)),
        [_between(node) for node in ast.walk(tree) if isinstance(node, ast.BinOp)],
    )
    seen: Counter[tuple[str, ...]] = Counter()
    found: dict[tuple[int, int], tuple[str, MutationSpec]] = {}
    for spec in sorted(specs, key=lambda one: (one.start_pos, one.operator_name, one.occurrence)):
        if any(first <= spec.start_pos < last for first, last in declared):
            continue
        if "BinaryOperator" in spec.operator_name and not any(
            first <= spec.start_pos < last for first, last in between
        ):
            continue  # the bare `*` among parameters, which cosmic-ray takes for an operator
        if spec.operator_name == "core/AddNot" and spec.start_pos in opposite:
            continue
        line, column = lines[spec.start_pos[0] - 1], spec.start_pos[1]
        change = (spec.definition_name or "", line.strip(), line[:column].strip(), spec.operator_name)
        seen[change] += 1
        key = hashlib.sha256("\0".join([str(seed), *change, str(seen[change])]).encode()).hexdigest()
        if spec.start_pos not in found or key < found[spec.start_pos][0]:
            found[spec.start_pos] = key, spec
    return found.values()


def _changed_line(before: str, spec: MutationSpec) -> tuple[str, str]:
    """The line that differs, as it was and as it is, without the space around them."""
    after = mutate_code(before, get_operator(spec.operator_name)(**spec.operator_args), spec.occurrence)
    assert after is not None
    for was, now in zip(before.splitlines(), after.splitlines(), strict=False):
        if was != now:
            return was.strip(), now.strip()
    raise AssertionError(f"{spec} changes nothing")


def _declarations(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Spans in which a mutant changes nothing that runs: types, decorators and options of classes, imports for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) or (isinstance(node, ast.arg) and node.annotation is not None):
            yield _span(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from map(_span, node.decorator_list)
            if node.returns is not None:
                yield _span(node.returns)
        elif isinstance(node, ast.ClassDef):
            yield from map(_span, [*node.decorator_list, *(one.value for one in node.keywords)])
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield _span(node)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.Subscript) and _is_alias(node):
            yield _span(node.value)


def _is_alias(node: ast.Assign) -> bool:
    """`Message = Hello | Complete`: a name of types."""
    (target, *_) = node.targets
    return isinstance(target, ast.Name) and target.id[:1].isupper() and not target.id.isupper() and node.col_offset == 0


def _has_opposite(node: ast.AST) -> bool:
    """Whether `not` before it is what another mutant writes into it: `a is not b`, `a >= b`, or `a` for `not a`."""
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and not isinstance(node.ops[0], ast.In | ast.NotIn)
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _between(node: ast.BinOp) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where an operator stands: between its operands."""
    return _span(node.left)[1], _span(node.right)[0]


def _span(node: ast.expr | ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)
