"""Outlines: signatures of every language, within their limit, whatever the source."""

from textwrap import dedent

import pytest
from foretype_context.syntax.languages import LANGUAGES
from foretype_context.syntax.outline import outline, parts_of
from hypothesis import given, settings
from hypothesis import strategies as st

PYTHON = '''
"""A module."""
import os
from shapes import (
    Shape,
)

LIMIT = 3


@dataclass
class Circle(Shape):
    """A circle.

    With more to say.
    """

    radius: float = 1.0

    @property
    def area(self, scale: int = 1,
             unit: str = "m") -> float:
        """Its area."""
        inner = 3
        return inner

    def _hidden(self):
        return 1


async def load(path: str) -> Circle:
    def helper():
        return path

    return Circle()
'''
SOURCES = {
    "python": (PYTHON, ["LIMIT = 3", "class Circle(Shape):", "    def area(self, scale: int = 1,", "async def load(path: str) -> Circle:"], ["inner", "helper", "return", "import"]),
    "javascript": (
        "import a from 'b';\nfunction* numbers(first) {\n  yield first;\n}\nclass Box extends Base {\n  get size() {\n    return 1;\n  }\n}\nconst add = (a, b) => {\n  return a + b;\n};\n",
        ["function* numbers(first);", "class Box extends Base {", "  get size();", "const add = (a, b) => ..."],
        ["yield", "return", "import"],
    ),
    "typescript": (
        "export interface Shape {\n  area(): number;\n}\n/** Says hello. */\nexport async function hello(name: string): Promise<void> {\n  await name;\n}\nexport type Id = string | number;\n",
        ["export interface Shape {", "  area(): number;", "// Says hello.", "export async function hello(name: string): Promise<void>;", "export type Id = string | number;"],
        ["await"],
    ),
    "typescriptreact": (
        "export const View = (props: Props): JSX.Element => {\n  return <p>{props.text}</p>;\n};\nexport class Page extends Component<Props> {\n  render() {\n    return <View />;\n  }\n}\n",
        ["export const View = (props: Props): JSX.Element => ...", "export class Page extends Component<Props> {", "  render();"],
        ["return"],
    ),
    "go": (
        "package main\n\ntype Server struct {\n\tName string\n}\n\n// Run runs.\nfunc (s *Server) Run(a int) (string, error) {\n\treturn \"\", nil\n}\n",
        ["type Server struct {", "\tName string", "// Run runs.", "func (s *Server) Run(a int) (string, error)"],
        ["return", "package"],
    ),
    "rust": (
        "use std::io;\npub trait Shape {\n    fn area(&self) -> f64;\n}\nimpl Shape for Circle {\n    /// Its area.\n    fn area(&self) -> f64 {\n        1.0\n    }\n}\npub fn make<T>(one: T) -> T where T: Clone {\n    one\n}\n",
        ["pub trait Shape {", "impl Shape for Circle {", "    // Its area.", "    fn area(&self) -> f64;", "pub fn make<T>(one: T) -> T where T: Clone;"],
        ["use", "1.0"],
    ),
    "java": (
        "package a.b;\npublic class Box<T> extends Base {\n    private final int size = 1;\n    public Box(int size) {\n        this.size = size;\n    }\n    @Override\n    public int get(String key) throws Fault {\n        return 1;\n    }\n}\n",
        ["public class Box<T> extends Base {", "    private final int size = 1;", "    public Box(int size);", "    @Override", "    public int get(String key) throws Fault;"],
        ["return", "this", "package"],
    ),
    "c": (
        "#include <stdio.h>\n#define LIMIT 3\n/* Adds. */\nstatic int add(int a, int b)\n{\n    return a + b;\n}\nstruct point {\n    int x;\n};\n",
        ["#define LIMIT 3", "// Adds.", "static int add(int a, int b);", "struct point {", "    int x;"],
        ["include", "return"],
    ),
    "cpp": (
        "namespace shapes {\ntemplate <typename T>\nclass Box : public Base {\n public:\n  int get() const { return one; }\n};\n}\nint Box::put(int one) {\n  return one;\n}\n",
        ["namespace shapes {", "template <typename T>", "class Box : public Base {", "  int get() const;", "int Box::put(int one);"],
        ["return"],
    ),
    "csharp": (
        "using System;\nnamespace Shapes {\n    public class Box : Base {\n        public int Size { get; set; }\n        public async Task<int> Get(string key) {\n            return 1;\n        }\n    }\n}\n",
        ["namespace Shapes {", "    public class Box : Base {", "        public int Size { get; set; }", "        public async Task<int> Get(string key);"],
        ["return", "using"],
    ),
    "ruby": (
        "require 'set'\nmodule Shapes\n  class Box < Base\n    LIMIT = 3\n    def get(key, other = 1)\n      key\n    end\n  end\nend\n",
        ["module Shapes", "  class Box < Base", "    LIMIT = 3", "    def get(key, other = 1)", "  end", "end"],
        ["require", "      key"],
    ),
    "php": (
        "<?php\nnamespace A\\B;\nclass Box extends Base {\n    const LIMIT = 1;\n    public function get(string $key): int {\n        return 1;\n    }\n}\nfunction free($one) {\n    return $one;\n}\n",
        ["class Box extends Base {", "    const LIMIT = 1;", "    public function get(string $key): int;", "function free($one);"],
        ["return"],
    ),
    "shellscript": ("source x.sh\n# Runs it.\nrun() {\n  local a=1\n  echo $a\n}\n", ["# Runs it.", "run()"], ["local", "echo", "source"]),
    "lua": (
        "local x = require('y')\n-- Finds it.\nlocal function first(a)\n  local inner = 1\nend\nfunction M.second(a, b)\n  return a\nend\nfunction M:third()\nend\n",
        ["-- Finds it.", "local function first(a)", "function M.second(a, b)", "function M:third()"],
        ["inner", "return"],
    ),
    "perl": ("use Some;\nsub first {\n  my $inner = 1;\n}\nsub second {\n}\n", ["sub first {", "sub second {"], ["inner"]),
}  # fmt: skip


@pytest.mark.parametrize("language", list(SOURCES))
def test_signatures_stay_and_bodies_go(language: str) -> None:
    text, kept, gone = SOURCES[language]
    shown = outline(text, language)
    lines = shown.splitlines()
    for line in kept:
        assert line in lines, shown
    for word in gone:
        assert word not in shown, shown


def test_all_languages_of_the_table_are_tried() -> None:
    assert set(LANGUAGES) - {"plaintext"} <= set(SOURCES)


def test_documentation_keeps_its_first_line_inside_its_definition() -> None:
    shown = outline(PYTHON, "python")
    assert '    """A circle."""\n' in shown and '        """Its area."""\n' in shown and "more to say" not in shown


def test_documentation_goes_first_then_what_is_private_then_the_end() -> None:
    whole = outline(PYTHON, "python")
    shorter = outline(PYTHON, "python", limit_chars=len(whole) - 1)
    assert '"""' not in shorter and "_hidden" in shorter
    least = outline(PYTHON, "python", limit_chars=len(shorter) - 1)
    assert "_hidden" not in least and "async def load" in least
    assert outline(PYTHON, "python", limit_chars=20) == "LIMIT = 3\n@dataclass\n"[:10]


def test_names_choose_definitions_and_the_classes_of_members() -> None:
    shown = outline(PYTHON, "python", names={"area"})
    assert shown.startswith("@dataclass\nclass Circle(Shape):\n") and "load" not in shown and "radius" not in shown
    assert outline(PYTHON, "python", names={"load"}) == "async def load(path: str) -> Circle:\n"
    assert outline(PYTHON, "python", names={"nobody"}) == outline(PYTHON, "python")


def test_imports_are_shown_where_asked_for() -> None:
    shown = outline(PYTHON, "python", imports=True)
    assert shown.startswith("import os\nfrom shapes import (\n    Shape,\n)\n")
    assert [part.is_import for part in parts_of(PYTHON, "python")][:3] == [True, True, False]


@pytest.mark.parametrize("language", list(SOURCES))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_broken_source_gives_whole_lines_within_the_limit(language: str, data: st.DataObject) -> None:
    text = SOURCES[language][0]
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.sampled_from([0, 1, 40]))
        text = (
            text[:at]
            + data.draw(st.sampled_from(["", "{", "(", '"', "\r\n", "é🙂", "\ud800", "\x00", "/*"]))
            + text[at + gone :]
        )
    limit = data.draw(st.sampled_from([0, 30, 200, 1000]))
    shown = outline(text, language, limit_chars=limit)
    assert len(shown) <= limit and (not shown or shown.endswith("\n"))
    assert shown == outline(text, language, limit_chars=limit)
    shown.encode()


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "(" * 60_000),
        ("javascript", "{" * 60_000),
        ("cpp", "template <" * 20_000),
        ("python", "".join(f"{' ' * (depth % 100)}if x:\n" for depth in range(20_000))),
        ("typescript", "// a\n" * 40_000),
        ("java", "class A { " * 5_000),
        ("plaintext", "def " * 100_000),
        ("ruby", "'" * 60_000),
    ],
)
def test_adversarial_source_ends(language: str, text: str) -> None:
    assert len(outline(text, language)) <= 1_000  # what is not bounded takes minutes here


def test_line_endings_of_windows_are_not_part_of_an_outline() -> None:
    assert outline(PYTHON.replace("\n", "\r\n"), "python") == outline(dedent(PYTHON), "python")
