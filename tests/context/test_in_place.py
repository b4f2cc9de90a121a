"""Whether a suggestion parses where it would stand, and what that costs."""

import pytest
from context.test_syntax import at, without_tree
from foretype_context.finish import in_place
from foretype_context.finish.in_place import parses_in_place
from foretype_context.syntax.document import Document, Edit
from foretype_context.syntax.parsing import parse_in_steps, parser_for

LARGE = "".join(
    f"def step_{n}(state, key):\n    found = state.get(key, {n})\n    if found is None:\n        return [key, {n}]\n    return found\n"
    for n in range(1000)
)


@pytest.mark.parametrize(
    ("marked", "text", "parses"),
    [
        ("def f(a):\n    return |\n", "a + 1", True),
        ("def f(a):\n    return |\n", "a +) 1", False),
        ("def f(a):\n    return |\n", "return a", False),
        ("def f(a):\n    |\n", "for x in a:", True),  # its body comes next
        ("def f(a):\n    |\n\n\ndef g():\n    pass\n", "try:", True),
        ("class A:\n    |\n", "@property", True),
        ("x = [\n    1,\n    |\n", "dict(a=", True),  # the call goes on below
        ("|\ndef f():\n    pass\n", "import os, import sys", False),
        ("    |\n", "print(1)\n    print(2", True),
        ("names = ['a', '|']\n", "b', 'c", True),
        ("if x|\n    y = 1\n", ":", True),  # the body is there already
        ("def f(a):\n    |\n        return a\n", "if a:", True),
        ("def f(a):\n    |\n        return a\n", "a = 1", False),  # too deep behind it
        ("def f(a):\n    |\n        return a\n", "g(\n        (", False),
        ("def f(a):\n    |\n        a,\n        1,\n    )\n", "g(", True),
        ("def f(\n    a,\n    |\n    *,\n    b,\n):\n    pass\n", "c,", True),
        ("def f(\n    a,\n    |\n    *,\n    b,\n):\n    pass\n", "**more,", False),
        ('x = {\n    "a": [{"b|\n    "c": 2,\n}\n', '": 1}],', True),
        ('x = {\n    "a": [{"b|\n    "c": 2,\n}\n', '": 1}, {},', True),  # the list goes on
        ('x = {\n    "a": |\n    "c": 2,\n}\n', "1, {},", False),
        ('"""A text.\n\n|\n\nmore of it\n"""\nx = 1\n', "and more", True),
        ('"""A text.\n\n|\n\nmore of it\n"""\nx = 1\n', '"""', False),  # it ends below
        ('def f():\n    """A text.|\n\n\ndef g():\n    """Another."""\n', '"""', True),
        ("const x = f(|);\n", "a, b", True),
        ("const x = f(|);\n", "a, b);)", False),
    ],
)
def test_what_adds_an_error_of_syntax_is_known(marked: str, text: str, parses: bool) -> None:
    snapshot, offset = at(marked, "a.js" if marked.startswith("const") else "a.py")
    assert parses_in_place(snapshot, offset, text) is parses


PYTHON_TWO = [
    ("def f(a):\n    |\n", 'print "x"'),
    ("def f(a):\n    |\n", "print a, b"),
    ("def f(a):\n    |\n", 'exec "a"'),
    ("def f(a):\n    |\n", 'raise E, "m"'),
    ("|\n", "def f((a, b)):"),
    ("x = |\n", "lambda (a, b): a"),
    ("x = |\n", "0777"),
    ("x = |\n", "10L"),
    ("x = |\n", "`y`"),
    ("x = |\n", 'ur"a"'),
    ("if a |\n    pass\n", "<> b:"),
]
"""The grammar has no error for any of it."""


@pytest.mark.parametrize(("marked", "text"), PYTHON_TWO)
def test_python_two_is_for_files_of_python_two(marked: str, text: str) -> None:
    snapshot, offset = at(marked, "a.py")
    assert parses_in_place(snapshot, offset, text) is False
    snapshot, offset = at(f"print 'version', 2\n\n{marked}", "a.py")
    assert parses_in_place(snapshot, offset, text) is True


@pytest.mark.parametrize("text", ["type B = list[int]", 'x = f"{a["k"]}"', "print (a), b", "x = 0, 00, 0o17", "u = Ru"])
def test_what_this_python_does_not_know_yet_or_only_looks_old_is_shown(text: str) -> None:
    snapshot, offset = at("def f(a):\n    |\n", "a.py")
    assert parses_in_place(snapshot, offset, text) is True


def test_characters_that_the_text_takes_the_place_of_are_gone() -> None:
    snapshot, offset = at("x = f(|)\n", "a.py")
    assert parses_in_place(snapshot, offset, "a) + g(b)", 1) is True
    assert parses_in_place(snapshot, offset, "a) + g(b)") is False


def test_nobody_can_tell_without_a_tree_or_where_the_file_is_broken_elsewhere() -> None:
    snapshot, offset = at("x = |\n", "a.py")
    assert parses_in_place(without_tree(snapshot), offset, ") 1") is None
    plain, offset = at("x = |\n", "a.txt")
    assert parses_in_place(plain, offset, ") 1") is None
    broken, offset = at("def (:\n    pass\n\n\nx = |\n", "a.py")
    assert parses_in_place(broken, offset, ") 1") in (None, True)
    assert parses_in_place(broken, offset, "1") is True


def test_the_tree_that_others_hold_stays_as_it_was() -> None:
    snapshot, offset = at("def f(a):\n    return |\n", "a.py")
    region = snapshot.syntax_at(offset)
    before = str(region.tree.root_node)
    parses_in_place(snapshot, offset, "a +) 1")
    assert str(region.tree.root_node) == before and snapshot.syntax_at(offset) is region


def test_a_check_in_a_file_of_five_thousand_lines_is_not_one_of_all_its_lines() -> None:
    """In the parser's steps, which are the same on every machine."""
    document = Document("file:///a.py", LARGE, path="a.py")
    assert document.snapshot().line_count > 5_000
    parser = parser_for("python")
    assert parser is not None and parse_in_steps(parser, LARGE.encode(), in_place._STEPS) is None
    for n in range(40):
        offset = document.snapshot().line_end(2500 + 5 * n + 1)
        document.apply([Edit(offset, offset, "\n    again = ")], n + 1)
        snapshot, offset = document.snapshot(), offset + len("\n    again = ")
        assert parses_in_place(snapshot, offset, "state.get(found, [key])") is True
        document.apply([Edit(offset, offset, "found")], n + 2)
