"""The gateway's exceptions: one module, one tree, and the tree stands in its docstring."""

import ast
import inspect
import re
from pathlib import Path

import foretype_backend
from foretype_backend import errors

ROOT = Path(inspect.getfile(foretype_backend)).parent
TREE = {
    name: one for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, errors.BackendError)
}


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    parents: list[tuple[int, str]] = []
    told: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if (found := re.match(r"( *)\* ((?:`\w+`(?:, )?)+)", line)) is None:
            continue
        depth, names = len(found[1]), re.findall(r"`(\w+)`", found[2])
        parents = [parent for parent in parents if parent[0] < depth]
        told |= dict.fromkeys(names, parents[-1][1] if parents else "")
        parents.append((depth, names[-1]))
    assert told == {name: "" if one is errors.BackendError else one.__bases__[0].__name__ for name, one in TREE.items()}
    assert all(name.endswith("Error") for name in TREE)
    assert set(errors.__all__) == {*TREE, "Fault", "FAULT_TOLD"}


def test_no_exception_is_defined_elsewhere() -> None:
    exceptions = {"Exception", "BaseException", "ValueError", "RuntimeError", "OSError", *TREE}
    elsewhere = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in ROOT.rglob("*.py")
        if path != ROOT / "errors.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if ast.unparse(base).rpartition(".")[2] in exceptions
    ]
    assert elsewhere == []
