"""What of a generated text is worth showing."""

import pytest
from client.typing_desk import profile
from foretype_client.feedback.feedback import Feedback
from foretype_client.flow.judgement import Candidate, SyntaxFilter, judge
from foretype_client.flow.question import Question
from foretype_client.flow.strands import Place
from foretype_client.flow.suggestion import Origin, Outcome, Suggestion
from foretype_client.policy.trigger import Trigger
from foretype_context.finish.post_processing import finish
from foretype_context.prompt.profile import MinMeanLogprob
from foretype_context.syntax.blocks import SuggestionKind
from foretype_context.text.document import Document, Snapshot

TEXT = "f g(x):\n    return x\n"


@pytest.mark.parametrize(
    ("logprob", "shown"),
    [(-0.2, "f g(x):\n    return x"), (-0.8, "f g(x):"), (-1.5, None), (None, "f g(x):\n    return x")],
)
def test_a_block_that_is_not_sure_enough_leaves_the_line_that_opened_it(
    logprob: float | None, shown: str | None
) -> None:
    snapshot = Document("file:///a.py", "de\n", path="a.py").snapshot()
    least = MinMeanLogprob(line=-1.0, block=-0.5)
    question = Question(
        snapshot=snapshot,
        offset=2,
        place=Place.of(snapshot, 2, None),
        trigger=Trigger.AUTOMATIC,
        selected=None,
        profile=profile(min_mean_logprob=least),
        asked_s=0.0,
        least=least,
    )
    candidate = Candidate(
        id="1", text=TEXT, kind=SuggestionKind.OPENED, final=True, source=Origin.NETWORK, logprob=logprob
    )
    judged = judge(candidate, question, finish, Feedback(), 0.0)
    if shown is None:
        assert judged is Outcome.LOW_CONFIDENCE
    else:
        assert isinstance(judged, Suggestion)
        assert judged.text == shown


def asked(text: str, *, drop_broken: bool = True) -> Question:
    snapshot = Document("file:///a.py", text.replace("|", ""), path="a.py").snapshot()
    offset = text.index("|")
    place = Place.of(snapshot, offset, None)
    return Question(snapshot, offset, place, Trigger.AUTOMATIC, None, None, 0.0, drop_broken=drop_broken)


def judged(question: Question, text: str, kind: SuggestionKind = SuggestionKind.LINE) -> Suggestion | Outcome:
    candidate = Candidate(id="1", text=text, kind=kind, final=True, source=Origin.NETWORK)
    return judge(candidate, question, finish, Feedback(), 0.0, SyntaxFilter())


def test_what_adds_an_error_is_not_shown_and_what_parses_is() -> None:
    assert judged(asked("def f(a):\n    return |\n"), "return a") is Outcome.BROKEN
    shown = judged(asked("def f(a):\n    return |\n"), "a + 1")
    assert isinstance(shown, Suggestion) and (shown.text, shown.parses) == ("a + 1", True)
    unknown = judged(asked("def (:\n    pass\n\n\nx = |\n"), "1")
    assert isinstance(unknown, Suggestion)


def test_a_block_is_cut_back_to_what_parses() -> None:
    question = asked("def f(a):\n    |\n")
    shown = judged(question, "b = a + 1\n    c = b * 2\n    return return c\n", SuggestionKind.BLOCK)
    assert isinstance(shown, Suggestion) and shown.text == "b = a + 1\n    c = b * 2"
    assert shown.parses is False, "what the model said did not"
    assert judged(question, "b = = a\n    c = b * 2\n", SuggestionKind.BLOCK) is Outcome.BROKEN


def test_switched_off_nothing_is_taken_away_but_it_is_told() -> None:
    shown = judged(asked("def f(a):\n    return |\n", drop_broken=False), "return a")
    assert isinstance(shown, Suggestion) and (shown.text, shown.parses) == ("return a", False)


def test_a_text_that_is_judged_again_at_its_place_is_parsed_once() -> None:
    calls: list[str] = []

    def check(snapshot: Snapshot, offset: int, text: str, replaces: int = 0) -> bool | None:
        calls.append(text)
        return True

    syntax, question = SyntaxFilter(check), asked("x = |\n")
    assert [syntax(question, "1", 0) for _ in range(3)] == [("1", True)] * 3
    syntax(question, "2", 0)
    assert calls == ["1", "2"]


def test_a_text_that_is_typed_through_is_parsed_once_and_what_was_taken_off_stays_off() -> None:
    calls: list[str] = []

    def check(snapshot: Snapshot, offset: int, text: str, replaces: int = 0) -> bool | None:
        calls.append(text)
        return "++" not in text

    syntax = SyntaxFilter(check)
    assert syntax(asked("x = |)\n"), "ab\ncd\n++", 1) == ("ab\ncd", False)
    parsed = len(calls)
    assert syntax(asked("x = a|)\n"), "b\ncd\n++", 1) == ("b\ncd", False)
    assert syntax(asked("x = ab\ncd|)\n"), "\n++", 1) == ("", False)
    assert syntax(asked("x = ab\ncd\n|)\n"), "++", 1) == ("", False), "the user types what was taken off"
    assert len(calls) == parsed
    assert syntax(asked("x = b|)\n"), "b\ncd\n++", 1) == ("b\ncd", False) and len(calls) > parsed, "another text"
