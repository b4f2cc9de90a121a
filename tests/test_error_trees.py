"""What a package raises stands in one module, as one tree, and the tree in its docstring is the tree."""

import ast
import importlib
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from types import ModuleType

import pytest
from foretype_context.errors import ForetypeError

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "context/foretype_context": "ContextError",
    "wire/foretype_wire": "WireError",
    "client/foretype_client": "ClientError",
    "lsp_server/foretype_lsp": "LanguageServerError",
    "retrieval/foretype_retrieval": "RetrievalError",
    "backend/foretype_backend": "BackendError",
    "models/foretype_models": "ModelsError",
    "eval/foretype_eval": "EvalError",
    "plan/foretype_plan": "PlanError",
    "lab/foretype_lab": "LabError",
}
"""Package to the base of all that it raises."""


def raised_by(folder: str) -> Iterator[tuple[str, str]]:
    """Every class of exception that a module of the package defines, but for what never leaves its module."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                bases = [ast.unparse(base) for base in node.bases]
                if any(base.endswith(("Error", "Exception")) for base in bases):
                    yield path.relative_to(ROOT / folder).as_posix(), node.name


def errors_of(folder: str) -> ModuleType:
    return importlib.import_module(f"{folder.partition('/')[2]}.errors")


def drawn(text: str) -> dict[str, tuple[str, str]]:
    """Of a tree in a docstring: name to the name that it hangs from, and to what stands in brackets beside it."""
    above: list[tuple[int, str]] = []
    tree: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        if match := re.match(r"([ │├└─]*)(\w+Error)\b +(?:\((\w+)\) )?", line):
            names, beside = [match[2]], match[3] or ""
        elif match := re.match(r"( *)\* ((?:`\w+Error`(?:, )?)+)(?: \((\w+)\))?", line):
            names, beside = re.findall(r"\w+", match[2]), match[3] or ""
        else:
            continue
        above = list(takewhile(lambda one: one[0] < len(match[1]), above))
        for name in names:
            tree[name] = (above[-1][1] if above else "", beside)
        above.append((len(match[1]), names[-1]))
    return tree


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exception_of_a_package_stands_in_its_module_of_errors_and_hangs_from_its_base(package: str):
    errors = errors_of(package)
    base = getattr(errors, PACKAGES[package])
    found = list(raised_by(package))
    assert ("errors.py", base.__name__) in found and issubclass(base, ForetypeError)
    for module, name in found:
        assert module == "errors.py", f"{module}: {name}"
        made = getattr(errors, name)
        assert issubclass(made, base) or made is ForetypeError, made
        assert name.endswith("Error"), made


@pytest.mark.parametrize("package", PACKAGES)
def test_the_tree_in_the_docstring_is_the_tree(package: str):
    errors = errors_of(package)
    tree = drawn(errors.__doc__ or "")
    made = {
        name: one
        for name, one in vars(errors).items()
        if isinstance(one, type) and issubclass(one, BaseException) and one.__module__ == errors.__name__
    }
    assert made.keys() <= set(getattr(errors, "__all__", made)), "one that the module does not offer"
    made.pop("ForetypeError", None)
    assert set(tree) - {"ForetypeError"} == set(made)
    for name, one in made.items():
        parent, beside = tree[name]
        bases = [base.__name__ for base in one.__bases__]
        assert bases == [parent or "ForetypeError", *([beside] if beside else [])], name
