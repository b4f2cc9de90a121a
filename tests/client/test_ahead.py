import pytest
from foretype_client.flow.after_accepting import WayPoint, way_after
from foretype_context.syntax.document import Document, Edit, Snapshot
from hypothesis import given
from hypothesis import strategies as st


def at(text: str, language: str = "python") -> tuple[Snapshot, int]:
    """A document with its cursor at `|`."""
    document = Document("file:///a.py", text.replace("|", "", 1), language=language, path="a.py")
    return document.snapshot(), text.index("|")


@pytest.mark.parametrize(
    ("text", "suggestion", "target"),
    [
        ("x = |", "foo(a)", "x = foo(a)\n|"),
        ("    x = |\n    y", "foo(a)", "    x = foo(a)\n    |\n    y"),
        ("if a|\n", " == 1:", "if a == 1:\n    |\n"),
        ("\tif a|\n", ":", "\tif a:\n\t\t|\n"),
        ("x = f(|)", "a, b", "x = f(a, b|)"),
        ("a = 1|\r\n", "2\r\nb", "a = 12\r\nb\r\n|\r\n"),
        ("def f():|", "\n    return 1", "def f():\n    return 1\n    |"),
    ],
)
def test_behind_a_full_line_comes_enter_and_behind_anything_else_nothing(
    text: str, suggestion: str, target: str
) -> None:
    snapshot, offset = at(text)
    way = way_after(snapshot, offset, suggestion, 0)
    assert (way.target.text, way.target_offset) == (target.replace("|", ""), target.index("|"))


def test_what_the_suggestion_replaces_is_gone_behind_it() -> None:
    snapshot, offset = at("x = f(|)\ny")
    way = way_after(snapshot, offset, "a)", 1)
    assert (way.target.text, way.target_offset) == ("x = f(a)\n\ny", 9)
    taken = Document("file:///a.py", "x = f(a)\ny", language="python").snapshot()
    through = Document("file:///a.py", "x = f(a)\ny", language="python").snapshot()
    assert way.seen_in(taken) is WayPoint.ON_WAY
    assert way.seen_in(through) is WayPoint.ON_WAY


@pytest.mark.parametrize("text", ["x = b", "x = foo(b", "y = foo(a)", "x =", "x = foo(a);"])
def test_another_text_is_another_way(text: str) -> None:
    snapshot, offset = at("x = |")
    assert way_after(snapshot, offset, "foo(a)", 0).seen_in(at(text + "|")[0]) is WayPoint.LEFT


lines = st.text("ab(): \n", max_size=20)


@given(lines, lines, st.text("ab():", min_size=1, max_size=12), st.data())
def test_typing_a_suggestion_and_what_follows_it_leads_to_the_target(
    before: str, after: str, suggestion: str, data: st.DataObject
) -> None:
    document = Document("file:///a.py", before + after, language="python", path="a.py")
    way = way_after(document.snapshot(), len(before), suggestion, 0)
    done = 0
    while done < len(way.text):
        assert way.seen_in(document.snapshot()) is WayPoint.ON_WAY
        size = data.draw(st.integers(1, len(way.text) - done))
        offset = len(before) + done
        document.apply([Edit(offset, offset, way.text[done : done + size])], document.version + 1)
        done += size
    assert document.text == way.target.text
    assert way.seen_in(document.snapshot()) is WayPoint.ARRIVED
    offset = way.target_offset
    document.apply([Edit(offset, offset, "more")], document.version + 1)
    assert way.seen_in(document.snapshot()) is WayPoint.ARRIVED


@given(lines, lines, st.text("ab", min_size=1, max_size=4))
def test_the_lines_of_the_target_are_those_of_its_text(before: str, after: str, suggestion: str) -> None:
    document = Document("file:///a.py", before + after, language="python", path="a.py")
    way = way_after(document.snapshot(), len(before), suggestion, 0)
    fresh = Document("file:///a.py", way.target.text, language="python", path="a.py").snapshot()
    assert [way.target.line_text(n) for n in range(way.target.line_count)] == [
        fresh.line_text(n) for n in range(fresh.line_count)
    ]
