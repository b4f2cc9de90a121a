from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_eval.replay.commits import Stretch
from foretype_eval.replay.oracle import oracle_of
from foretype_wire.messages import Complete

STRETCH = Stretch("a.py", "x = 1\n", "y = 2\nz = 3", "\nx = 1\n")


def call(left: str, document: str = "file:///r/a.py") -> Complete[Segment]:
    prefix = Segment(kind=Kind.PREFIX, scope=Scope.FILE, source=Source(), text=left)
    return Complete(id="1", document=document, segments=[prefix])


def test_it_knows_the_rest_of_the_line_that_is_typed_next() -> None:
    predict = oracle_of([STRETCH], 1.0, 0, lambda _: "other")
    assert predict(call("x = 1\ny")) == " = 2"
    assert predict(call("x = 1\ny = 2\n")) == "z = 3"
    assert predict(call("x = 1\ny = 2")) == ""


def test_another_file_and_another_text_are_answered_otherwise() -> None:
    predict = oracle_of([STRETCH], 1.0, 0, lambda _: "other")
    assert predict(call("x = 1\ny", "file:///r/b.py")) == "other"
    assert predict(call("unwritten")) == "other"


def test_a_share_of_lines_is_known_from_their_first_to_their_last_character() -> None:
    text = "".join(f"line{n} = value\n" for n in range(400))
    predict = oracle_of([Stretch("a.py", "", text, "")], 0.3, 1, lambda _: "other")
    known = 0
    for n in range(400):
        above = "".join(f"line{m} = value\n" for m in range(n))
        answers = {predict(call(above + f"line{n} = value"[:at])) == "other" for at in range(12)}
        assert len(answers) == 1
        known += answers == {False}
    assert 90 < known < 150
