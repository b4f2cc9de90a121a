"""Which import statements mean one file of the repository, and what they call it."""

import pytest
from context.typing_editor import parsed
from foretype_context.edits.imports import imported


@pytest.mark.parametrize(
    ("language", "path", "other", "text", "names", "modules"),
    [
        ("python", "a.py", "pkg/m.py", "from pkg.m import f, g as h\n", ["f", "g"], []),
        ("python", "pkg/a.py", "pkg/m.py", "from . import m\nfrom .m import f\n", ["f"], ["m"]),
        ("python", "pkg/a.py", "pkg/m.py", "from .. import m\nfrom ...m import f\n", [], []),
        ("python", "tests/a.py", "src/pkg/m.py", "import pkg.m as x\nimport pkg.n\n", [], ["x"]),
        ("python", "b/a.py", "b/m.py", "from m import f\n", ["f"], []),
        ("python", "c/a.py", "b/m.py", "from m import f\n", [], []),
        ("python", "a.py", "pkg/__init__.py", "from pkg import f\n", ["f"], []),
        ("python", "a.py", "json.py", "def g():\n    from json import f\n", [], []),
        ("javascript", "b/a.js", "b/m.js", "import { f, g as h } from './m';\nimport * as x from './m.js';\n", ["f", "g"], ["x"]),
        ("javascript", "b/a.js", "m.js", "import { f } from '../m';\nimport { g } from 'm';\n", ["f"], []),
        ("typescript", "a.ts", "m/index.ts", "import type { f } from './m';\nimport d from './m';\n", ["f"], []),
        ("javascript", "a.js", "m.js", "const { f, g: h } = require('./m'), x = require(\"./m\");\n", ["f"], ["x"]),
        ("go", "a.go", "pkg/m/b.go", "package a\n\nimport (\n\t\"x.org/pkg/m\"\n\tn \"x.org/pkg/m\"\n)\n", [], ["m", "n"]),
        ("go", "a.go", "m/b.go", "package a\n\nimport \"m\"\n", [], []),
        ("ruby", "a.rb", "m.rb", "require './m'\n", [], []),
    ],
)  # fmt: skip
def test_only_statements_that_can_mean_nothing_else_count(
    language: str, path: str, other: str, text: str, names: list[str], modules: list[str]
) -> None:
    tree, source = parsed(text, language)
    found = imported(tree.root_node, source, language, path, other)
    assert [one.name for one in found.specifiers] == names
    assert [one.local for one in found.modules] == modules
    assert all(source[one.start : one.end].decode() == one.name for one in found.specifiers)


def test_a_package_of_go_needs_no_import_but_its_outer_tests_do() -> None:
    for path, package, whole in (("m/a.go", "m", True), ("m/a_test.go", "m", True), ("m/a_test.go", "m_test", False)):
        tree, source = parsed(f"package {package}\n", "go")
        assert imported(tree.root_node, source, "go", path, "m/b.go").whole is whole
