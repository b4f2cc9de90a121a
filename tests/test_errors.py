"""Exceptions of the measuring rooms: one module each, one tree, and the tree stands in its docstring."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

import foretype_eval.errors
import foretype_lab.errors
import pytest

MODULES = [foretype_eval.errors, foretype_lab.errors]
each = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.partition(".")[0])
BUILT_IN = {"Exception", "BaseException", "ValueError", "RuntimeError", "OSError", "LookupError", "KeyError"}


def tree_of(module: ModuleType) -> dict[str, type[Exception]]:
    return {
        name: one
        for name, one in vars(module).items()
        if inspect.isclass(one) and issubclass(one, Exception) and one.__module__ == module.__name__
    }


@each
def test_the_tree_in_the_docstring_is_the_tree(module: ModuleType) -> None:
    parents: list[tuple[int, str]] = []
    told: dict[str, str] = {}
    for line in (module.__doc__ or "").splitlines():
        if (found := re.match(r"( *)\* ((?:`\w+`(?:, )?)+)", line)) is None:
            continue
        depth, names = len(found[1]), re.findall(r"`(\w+)`", found[2])
        parents = [parent for parent in parents if parent[0] < depth]
        told |= dict.fromkeys(names, parents[-1][1] if parents else "ForetypeError")
        parents.append((depth, names[-1]))
    tree = tree_of(module)
    assert told == {name: one.__bases__[0].__name__ for name, one in tree.items()}
    assert [name for name, base in told.items() if base == "ForetypeError"] == [next(iter(told))], "one root"
    assert all(name.endswith("Error") for name in tree)
    assert set(module.__all__) == set(tree)


@each
def test_no_exception_is_defined_elsewhere(module: ModuleType) -> None:
    known = BUILT_IN | set(tree_of(module))
    file = Path(inspect.getfile(module))
    elsewhere = [
        f"{path.relative_to(file.parent)}: {node.name}"
        for path in file.parent.rglob("*.py")
        if path != file
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for base in node.bases
        if ast.unparse(base).rpartition(".")[2] in known
    ]
    assert elsewhere == []
