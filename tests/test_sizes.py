"""A function has at most 80 lines and eight parameters, but for those in sizes.toml, which may only shrink."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent
ROOMS = ("wire", "client", "lsp_server", "context", "retrieval", "backend", "eval", "models", "plan", "lab")
MOST = {"lines": 80, "parameters": 8}


class Function(NamedTuple):
    """`name` is `path/from/root.py::Class.function`."""

    name: str
    lines: int
    parameters: int


def functions(path: Path) -> Iterator[Function]:
    def of(node: ast.AST, within: str) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            inner = f"{within}.{child.name}" if named and within else child.name if named else within
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                given = child.args.posonlyargs + child.args.args + child.args.kwonlyargs
                parameters = [one for one in given if one.arg not in ("self", "cls")]
                assert child.end_lineno is not None
                lines = child.end_lineno - child.lineno + 1
                yield Function(f"{path.relative_to(ROOT).as_posix()}::{inner}", lines, len(parameters))
            yield from of(child, inner)

    yield from of(ast.parse(path.read_text("utf-8")), "")


def test_no_function_is_larger_than_it_may_be_and_the_list_only_shrinks() -> None:
    allowed = tomllib.loads((HERE / "sizes.toml").read_text("utf-8"))
    found: dict[str, dict[str, int]] = {kind: {} for kind in MOST}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("foretype_*/**/*.py")):
            for one in functions(path):
                for kind, size in (("lines", one.lines), ("parameters", one.parameters)):
                    if size > MOST[kind]:
                        found[kind][one.name] = size
    assert sum(map(len, found.values())) > 10
    for kind, sizes in found.items():
        assert sizes == allowed[kind], (
            f"split what has too many {kind}; what became smaller or is gone leaves sizes.toml so"
        )
