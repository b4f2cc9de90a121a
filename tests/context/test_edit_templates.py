"""What two edits have in common, and where else it applies: `generalised` and `matches`, on lines."""

import pytest
from context.typing_editor import parsed
from foretype_context.edits.bursts import Burst, ChangeOrigin
from foretype_context.edits.examples import Examples
from foretype_context.edits.templates import LineEdit, Template, generalised, line_edit, matches, region_of
from foretype_context.syntax.document import Edit
from hypothesis import given
from hypothesis import strategies as st


def edit(old: str, new: str, how: ChangeOrigin = ChangeOrigin.TYPED) -> LineEdit | None:
    region = region_of(Burst(f"x\n{old}\ny", f"x\n{new}\ny", Edit(2, 2 + len(old), new), how, 0.0))
    return None if region is None else line_edit(region)


def template(*examples: tuple[str, str]) -> Template | None:
    one, other = (edit(*example) for example in examples)
    assert one is not None and other is not None
    return generalised(one, other)


def applied(found: Template, line: str) -> list[str]:
    return [line[: one.start] + one.text + line[one.end :] for one in matches(found, line)]


@pytest.mark.parametrize(
    ("examples", "line", "becomes"),
    [
        (
            (("    print(a.name)", "    log.info(a.name)"), ("print(b.kind)", "log.info(b.kind)")),
            "        print(c.size)",
            "        log.info(c.size)",
        ),
        ((("x = print(a)", "x = log.info(a)"), ("y = print(b)", "y = log.info(b)")), "q = print(c)", "q = log.info(c)"),
        (
            (("self.assertEqual(x, 1)", "assert x == 1"), ("self.assertEqual(y, 2)", "assert y == 2")),
            "    self.assertEqual(z, 3)",
            "    assert z == 3",
        ),
        ((("x.old", "x.new"), ("y.old", "y.new")), "(z.old)", "(z.new)"),
        (
            (("foo(a, flag)", "foo(a, flag, deep=True)"), ("foo(b, flag)", "foo(b, flag, deep=True)")),
            "r = foo(e, flag)",
            "r = foo(e, flag, deep=True)",
        ),
        ((("int a = 1;", "long a = 1;"), ("int b = 2;", "long b = 2;")), "    int c = 3;", "    long c = 3;"),
    ],
)
def test_what_two_edits_have_in_common_applies_to_a_third_line(
    examples: tuple[tuple[str, str], tuple[str, str]], line: str, becomes: str
) -> None:
    found = template(*examples)
    assert found is not None
    assert applied(found, line) == [becomes]
    assert applied(found, becomes) == []  # done once, done


@pytest.mark.parametrize(
    "examples",
    [
        (("count = 1", "total = 1"), ("count = 2", "sum = 2")),  # two different names, from nowhere
        (("count", "total"), ("count", "total")),  # a bare word
        (("f(a)", "f(a, b)"), ("g(c, d)", "g(c)")),  # other shapes
        (("a = b", "a = c"), ("(x)", "(y)")),
        (("f(a)", "g(a)"), ("f('x')", "g(1)")),
        (("a + b", "a - b"), ("c + d", "c - d")),  # no word that is the same
    ],
)
def test_what_is_not_certain_is_no_template(examples: tuple[tuple[str, str], tuple[str, str]]) -> None:
    assert template(*examples) is None


@pytest.mark.parametrize("line", ["z.older", "old = 1", "a.b.renew", "x . new", "", "    "])
def test_other_lines_stay(line: str) -> None:
    found = template(("x.old", "x.new"), ("y.old", "y.new"))
    assert found is not None
    assert applied(found, line) == []


def test_a_hole_is_filled_by_what_stands_there() -> None:
    found = template(("swap(a, b)", "turn(b, a)"), ("swap(c, d)", "turn(d, c)"))
    assert found is not None
    assert applied(found, "swap(left, right)") == ["turn(right, left)"]
    assert template(("swap(a, b)", "swap(b, a)"), ("swap(c, d)", "swap(d, c)")) is None  # it would never end


def test_edits_that_were_not_typed_or_are_large_are_no_examples() -> None:
    assert edit("a", "b", ChangeOrigin.PASTED) is None and edit("a", "b", ChangeOrigin.UNDONE) is None
    assert edit("a\n" * 9, "b") is None and edit("a" * 600, "b") is None
    assert edit("a.b", "a.c", ChangeOrigin.ACCEPTED) is not None


def test_the_last_two_that_are_alike_count_and_not_the_last_two() -> None:
    tree, _ = parsed("x.old\n", "python")
    examples = Examples("python")
    for old, new in (("x.old", "x.new"), ("a = 1", "a = 2"), ("y.old", "y.new")):
        examples.learn(Burst(f"{old}\n", f"{new}\n", Edit(0, len(old), new), ChangeOrigin.TYPED, 0.0), tree.root_node)
    found = examples.template(None, tree.root_node, "x.old\n")
    assert found is not None and found.word == "old" and not found.in_text
    examples.clear()
    assert examples.template(None, tree.root_node, "x.old\n") is None


_LINES = st.lists(st.sampled_from(["a", " b", ".", "(", ")", "1", "  ", "é", ",", " =", "old", "new"]), max_size=9).map(
    "".join
)


@given(_LINES, _LINES, _LINES, _LINES, _LINES)
def test_any_two_edits_give_a_template_that_explains_both_or_none(a: str, b: str, c: str, d: str, line: str) -> None:
    one, other = edit(a, b), edit(c, d)
    if one is None or other is None or (found := generalised(one, other)) is None:
        return
    for old, new in ((one.before, one.after), (other.before, other.after)):
        said = applied(found, "".join(old).strip())
        same = "".join(old).split() == "".join(new).split()
        assert same or "".join(new).replace(" ", "") in [text.replace(" ", "") for text in said]
    for change in matches(found, line):
        assert 0 <= change.start <= change.end <= len(line)
