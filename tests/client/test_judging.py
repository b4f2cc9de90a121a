"""What of a generated text is worth showing."""

from dataclasses import replace

import pytest
from client.typing_desk import profile
from foretype_client.feedback.feedback import Feedback
from foretype_client.flow.judgement import Candidate, SyntaxFilter, judge
from foretype_client.flow.question import Question
from foretype_client.flow.strands import Place
from foretype_client.flow.suggestion import Origin, Outcome, Suggestion
from foretype_client.policy.trigger import Trigger
from foretype_context.prompt.profile import LineChance, MinMeanLogprob
from foretype_context.syntax.blocks import SuggestionKind
from foretype_context.syntax.document import Document, Snapshot
from foretype_wire.messages import Finish

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
    judged = judge(candidate, question, Feedback(), 0.0, SyntaxFilter())
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
    return judge(candidate, question, Feedback(), 0.0, SyntaxFilter())


def test_what_adds_an_error_is_not_shown_and_what_parses_is() -> None:
    assert judged(asked("def f(a):\n    return |\n"), "let b = a") is Outcome.BROKEN
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
    shown = judged(asked("def f(a):\n    return |\n", drop_broken=False), "let b = a")
    assert isinstance(shown, Suggestion) and (shown.text, shown.parses) == ("let b = a", False)


def test_a_text_that_is_typed_through_is_parsed_once_and_what_was_taken_off_stays_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def check(snapshot: Snapshot, offset: int, text: str, replaces: int = 0) -> bool | None:
        calls.append(text)
        return "++" not in text

    monkeypatch.setattr("foretype_client.flow.judgement.parses_in_place", check)
    syntax = SyntaxFilter()
    assert syntax(asked("x = |)\n"), "ab\ncd\n++", 1) == ("ab\ncd", False)
    parsed = len(calls)
    assert syntax(asked("x = a|)\n"), "b\ncd\n++", 1) == ("b\ncd", False)
    assert syntax(asked("x = ab\ncd|)\n"), "\n++", 1) == ("", False)
    assert syntax(asked("x = ab\ncd\n|)\n"), "++", 1) == ("", False), "the user types what was taken off"
    assert len(calls) == parsed
    assert syntax(asked("x = b|)\n"), "b\ncd\n++", 1) == ("b\ncd", False) and len(calls) > parsed, "another text"


def test_an_address_that_the_file_does_not_hold_is_not_shown_and_the_users_own_candidate_may_hold_it() -> None:
    line = 'r = "jane.roe@corp.example.com"'
    assert judged(asked("autho|\n"), line) is Outcome.FOREIGN
    own = Candidate(id="1", text=line, kind=SuggestionKind.LINE, final=True, source=Origin.LOCAL)
    assert isinstance(judge(own, asked("autho|\n"), Feedback(), 0.0, SyntaxFilter()), Suggestion)
    assert isinstance(judged(asked('A = "jane.roe@corp.example.com"\nautho|\n'), line), Suggestion)


@pytest.mark.parametrize(
    ("finish_", "shown"), [(Finish.LENGTH, False), (Finish.STOP, True), (Finish.END_OF_MIDDLE, True), (None, True)]
)
@pytest.mark.parametrize("invoked", [True, False])
def test_a_line_that_was_cut_where_it_became_unlikely_is_for_those_who_ask(
    finish_: Finish | None, shown: bool, invoked: bool
) -> None:
    """Its beginning was sure, and that says nothing about the line."""
    question = replace(asked("x = |\n"), least=None if invoked else MinMeanLogprob(line=-0.5))
    candidate = Candidate(
        id="1", text="1", kind=SuggestionKind.LINE, final=True, source=Origin.NETWORK, logprob=-0.1, finish=finish_
    )
    judged = judge(candidate, question, Feedback(), 0.0, SyntaxFilter())
    assert isinstance(judged, Suggestion) is (shown or invoked)


def sure(text: str, kind: SuggestionKind, total: float | None) -> Candidate:
    """Token by token; `total` is the log-probability of all of it."""
    return Candidate(
        id="1",
        text=text,
        kind=kind,
        final=True,
        source=Origin.NETWORK,
        logprob=-0.1,
        total_logprob=total,
        finish=Finish.END_OF_MIDDLE,
    )


@pytest.mark.parametrize(
    ("text", "total", "shown"),
    [("value", -1.0, True), ("value", -2.0, False), ("value", None, True), ("1", -0.1, False), ("abc", -0.1, True)],
)
def test_a_line_is_shown_where_the_whole_of_it_is_likely_and_it_is_worth_a_look(
    text: str, total: float | None, shown: bool
) -> None:
    asks = replace(
        asked("x = |\n"), least=MinMeanLogprob(line=-0.5), profile=profile(line_chance=LineChance(least=0.25))
    )
    candidate = sure(text, SuggestionKind.LINE, total)
    assert isinstance(judge(candidate, asks, Feedback(), 0.0, SyntaxFilter()), Suggestion) is shown
    assert isinstance(judge(candidate, replace(asks, least=None), Feedback(), 0.0, SyntaxFilter()), Suggestion)


@pytest.mark.parametrize(("text", "shown"), [("ab)", False), ("abc)", True)])
def test_what_is_left_of_a_line_must_be_worth_a_look_too(text: str, shown: bool) -> None:
    """A bracket that stands there already is not put in again, and two letters were what was shown."""
    chance = profile(line_chance=LineChance(least=0.25))
    asks = replace(asked("x = f(|)\n"), least=MinMeanLogprob(line=-0.5, mid_line=-0.5), profile=chance)
    candidate = sure(text, SuggestionKind.MID_LINE, -0.2)
    assert isinstance(judge(candidate, asks, Feedback(), 0.0, SyntaxFilter()), Suggestion) is shown
    assert isinstance(judge(candidate, replace(asks, least=None), Feedback(), 0.0, SyntaxFilter()), Suggestion)
