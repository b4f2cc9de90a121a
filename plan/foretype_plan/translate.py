"""The formulas as JavaScript, for the page: `python -m foretype_plan.translate` writes static/formulas.js (`make plan-page`)."""

from __future__ import annotations

import ast
import inspect
import json
from importlib.resources import files
from pathlib import Path
from typing import Final, cast

from foretype_plan import formulas
from foretype_plan.sheet import quantities

_HEAD: Final = (
    "// Made of formulas.py by `make plan-page`: do not edit.\n'use strict';\nconst ceil = Math.ceil, exp = Math.exp;\n"
)


def script() -> str:
    """Each function of :mod:`foretype_plan.formulas`, and QUANTITIES: name, unit, what it says, its text and what it needs, in order."""
    from pscript import py2js  # pyright: ignore[reportMissingTypeStubs,reportUnknownVariableType] - of development alone

    tree = ast.parse(inspect.getsource(formulas))
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    for one in functions:
        one.body = one.body[1:]  # its docstring
        one.returns = None
        for argument in one.args.args:
            argument.annotation = None
    made = cast("str", py2js("\n\n".join(ast.unparse(one) for one in functions)))
    told = [[one.name, one.unit, one.says, one.text, list(one.needs)] for one in quantities()]
    table = ",\n".join(json.dumps(row, ensure_ascii=False) for row in told)
    by_name = ", ".join(one.name for one in quantities())
    return f"{_HEAD}{made.strip()}\nconst FUNCTIONS = {{{by_name}}};\nconst QUANTITIES = [\n{table}\n];\n"


if __name__ == "__main__":
    Path(str(files("foretype_plan") / "static" / "formulas.js")).write_text(script(), "utf-8")
