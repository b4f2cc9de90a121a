"""What a package raises stands in one module, as one tree, and the tree in its docstring is the tree."""

from __future__ import annotations

import importlib
import pkgutil
import re
from itertools import takewhile

import pytest
from foretype_context.errors import ForetypeError

PACKAGES = {
    "foretype_context": "ContextError",
    "foretype_wire": "WireError",
    "foretype_client": "ClientError",
    "foretype_lsp": "LanguageServerError",
    "foretype_retrieval": "RetrievalError",
}
"""Package to the base of all that it raises."""


def raised_by(package: str) -> list[type[BaseException]]:
    """Every class of exception that a module of the package defines, but for what never leaves its module."""
    found: list[type[BaseException]] = []
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if module.name.endswith("__main__"):
            continue
        for name, made in vars(importlib.import_module(module.name)).items():
            ours = isinstance(made, type) and issubclass(made, BaseException) and made.__module__ == module.name
            if ours and not name.startswith("_"):
                found.append(made)
    return found


def drawn(text: str) -> dict[str, tuple[str, str]]:
    """Of a tree in a docstring: name to the name that it hangs from, and to what stands in brackets beside it."""
    above: list[tuple[int, str]] = []
    tree: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        if not (match := re.match(r"([ │├└─]*)(\w+Error)\b +(?:\((\w+)\) )?", line)):
            continue
        above = list(takewhile(lambda one: one[0] < len(match[1]), above))
        tree[match[2]] = (above[-1][1] if above else "", match[3] or "")
        above.append((len(match[1]), match[2]))
    return tree


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exception_of_a_package_stands_in_its_module_of_errors_and_hangs_from_its_base(package: str):
    errors = importlib.import_module(f"{package}.errors")
    base = getattr(errors, PACKAGES[package])
    found = raised_by(package)
    assert base in found and issubclass(base, ForetypeError)
    for made in found:
        assert made.__module__ == errors.__name__, f"{made.__module__}.{made.__name__}"
        assert issubclass(made, base) or made is ForetypeError, made
        assert made.__name__.endswith("Error"), made


@pytest.mark.parametrize("package", PACKAGES)
def test_the_tree_in_the_docstring_is_the_tree(package: str):
    errors = importlib.import_module(f"{package}.errors")
    tree = drawn(errors.__doc__ or "")
    made = {
        name: one for name, one in vars(errors).items() if isinstance(one, type) and one.__module__ == errors.__name__
    }
    assert set(tree) == {*made, "ForetypeError"}
    for name, one in made.items():
        parent, beside = tree[name]
        bases = [base.__name__ for base in one.__bases__ if base is not Exception]
        assert bases == [above for above in (parent, beside) if above], name
