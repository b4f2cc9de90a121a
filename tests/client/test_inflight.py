import pytest
from client.scripted_gateway import PROFILE, Script, ScriptedStream
from foretype_client.flow.inflight import AnswerRules, Flight, ReadyText, ripe
from foretype_client.flow.planning import Draft
from foretype_client.flow.strands import Place, Strand
from foretype_context.prompt.healing import HealedText
from foretype_context.prompt.plan import Plan, PlanState
from foretype_context.prompt.profile import Opened, Stop
from foretype_context.syntax.blocks import SuggestionKind
from foretype_context.syntax.document import Document
from foretype_wire.errors import GatewayGoneError
from foretype_wire.messages import Complete, Delta, Done, Finish, Timings, Usage

RULES = AnswerRules()
LINE, BLOCK = SuggestionKind.LINE, SuggestionKind.BLOCK


class Stream(ScriptedStream):
    """Never read here; a flight only has to have one."""

    def __init__(self) -> None:
        self.id = "r1"
        self.call = Complete(id="r1", segments=[])
        self._script = Script()


def flight(text: str = "", kind: SuggestionKind = LINE, *, healed: str = "", first_s: float = 1.0) -> Flight:
    place = Place.of(Document("file:///a.py", "", language="plaintext").snapshot(), 0, None)
    made = Flight("r1", Strand(place), kind, Stream(), sent_s=0.9, healing=HealedText(healed))
    if text:
        made.add(Delta(id="r1", text=text, logprob=-0.5, tokens=2), first_s)
    return made


def end(made: Flight, finish: Finish | None) -> Flight:
    made.done = None if finish is None else Done(id="r1", finish=finish)
    made.error = GatewayGoneError("gone") if finish is None else None
    made.ended_s = 2.0
    return made


def look(made: Flight, now: float) -> ReadyText | float | None:
    return ripe(made, made.strand.text, now, RULES)


def test_nothing_is_ripe_before_the_first_text() -> None:
    assert look(flight(), 5.0) is None


def test_a_line_is_ripe_at_its_end() -> None:
    assert look(flight("foo"), 1.0) == 1.25
    assert look(flight("foo\nbar"), 1.0) == ReadyText("foo", True, LINE)


def test_a_block_is_ripe_at_three_lines_that_say_something() -> None:
    assert look(flight("\na\n\n  b\nc", BLOCK), 1.0) == 1.25
    assert look(flight("\na\n\n  b\nc\nd", BLOCK), 1.0) == ReadyText("\na\n\n  b\nc\n", False, BLOCK)


@pytest.mark.parametrize(
    ("kind", "text", "answer"),
    [
        (BLOCK, "a\nb\nc d", ReadyText("a\nb\n", False, BLOCK)),
        (BLOCK, "foo(bar, ba", ReadyText("foo(bar,", False, LINE)),
        (LINE, "foo(bar, ba", ReadyText("foo(bar,", False, LINE)),
        (LINE, "foo", None),
        (BLOCK, "\n  ", None),
    ],
)
def test_a_quarter_second_after_the_first_text_what_is_whole_will_do(
    kind: SuggestionKind, text: str, answer: ReadyText | None
) -> None:
    made = flight(text, kind)
    assert ripe(made, text, 1.25, RULES, wanted=True) == answer
    whole_lines = answer is not None and "\n" in answer.text
    assert look(made, 1.25) == (answer if whole_lines else None), "how sure its beginning is says nothing about a line"


@pytest.mark.parametrize(
    ("finish", "answer"),
    [
        (Finish.END_OF_MIDDLE, ReadyText("a\nb", True, BLOCK)),
        (Finish.STOP, ReadyText("a\nb", True, BLOCK)),
        (Finish.LENGTH, ReadyText("a\nb", False, BLOCK)),
        (Finish.CANCELLED, ReadyText("a\n", False, BLOCK)),
        (None, ReadyText("a\n", False, BLOCK)),
    ],
)
def test_how_a_request_ended_says_how_much_of_it_counts(finish: Finish | None, answer: ReadyText) -> None:
    assert look(end(flight("a\nb", BLOCK), finish), 9.0) == answer


@pytest.mark.parametrize(
    ("text", "finish", "kept"),
    [
        ("a\nb", Finish.STOP, ("a\nb", Finish.STOP)),
        ("a\nb", Finish.LENGTH, ("a\nb", Finish.LENGTH)),
        ("a\nb", Finish.CANCELLED, ("a\n", Finish.CANCELLED)),
        ("a\nb", Finish.EXPIRED, ("a\n", Finish.CANCELLED)),
        ("a\nb", None, ("a\n", Finish.CANCELLED)),
        ("a", Finish.CANCELLED, None),
        ("", Finish.END_OF_MIDDLE, ("", Finish.END_OF_MIDDLE)),
        ("", Finish.REFUSED, None),
    ],
)
def test_the_cache_keeps_what_is_whole_and_knows_what_was_cut_short(
    text: str, finish: Finish | None, kept: tuple[str, Finish] | None
) -> None:
    entry = end(flight(text), finish).entry()
    assert (None if entry is None else (entry.strand.text, entry.finish)) == kept


def test_the_cache_keeps_what_a_request_cost_where_that_was_told() -> None:
    for finish in (Finish.STOP, Finish.CANCELLED):
        made = end(flight("a\nb"), finish)
        made.done = Done(id="r1", finish=finish, usage=Usage(prompt_tokens=7))
        entry = made.entry()
        assert entry is not None and entry.usage == Usage(prompt_tokens=7)
    entry = end(flight("a\nb"), None).entry()
    assert entry is not None and entry.usage is None


@pytest.mark.parametrize("pieces", [["return x"], ["r", "et", "urn", " x"], ["ret", "urn x"]])
def test_healed_characters_are_taken_off_whatever_the_chunks(pieces: list[str]) -> None:
    made = flight(healed="ret")
    for piece in pieces:
        made.add(Delta(id="r1", text=piece), 1.0)
    assert made.strand.text == "urn x"
    assert not made.healing.garbled


def test_what_does_not_repeat_the_healed_characters_fits_nowhere() -> None:
    made = flight(healed="ret")
    for piece in ("re", "xt", "urn"):
        made.add(Delta(id="r1", text=piece), 1.0)
    assert made.healing.garbled
    assert made.strand.text == ""


def test_the_mean_log_probability_is_unknown_without_tokens() -> None:
    assert flight().mean_logprob is None
    assert flight("a").mean_logprob == pytest.approx(-0.25)


def test_network_time_is_what_the_gateway_did_not_spend() -> None:
    made = flight("a", first_s=1.0)
    assert made.timings_ms() == pytest.approx({"debounce": 0, "assemble": 0, "ttft": 100})
    made.done = Done(
        id="r1",
        finish=Finish.STOP,
        usage=Usage(),
        timings_ms=Timings(admit=1, queue=4, prefill=60, decode_first=5, stream=40),
    )
    timings = made.timings_ms()
    assert timings["network"] == pytest.approx(30)
    assert timings["prefill"] == 60


def test_a_line_that_opens_a_block_is_waited_for_as_a_block() -> None:
    opened = Opened(endings=[":"], max_lines=9, max_tokens=64, min_indent=1)
    made = flight(kind=LINE)
    plan = Plan(
        segments=(),
        prompt_tokens=1,
        budget_tokens=1,
        layout="",
        kind=LINE,
        stop=Stop(max_lines=1, opened=opened),
        max_tokens=8,
        middle="",
    )
    made.draft = Draft(plan, PROFILE, PlanState.empty(), PlanState.empty(), 0.0, 0.0)
    made.add(Delta(id="r1", text="if x:\n", logprob=-0.1, tokens=3), 1.0)
    assert made.kind is SuggestionKind.OPENED
    assert not isinstance(ripe(made, made.strand.text, 1.0, RULES), ReadyText)
    made.add(Delta(id="r1", text="    a = 1\n    b = 2\n", logprob=-0.1, tokens=3), 1.0)
    assert ripe(made, made.strand.text, 1.0, RULES) == ReadyText(made.strand.text, False, SuggestionKind.OPENED)


def test_an_editor_that_is_told_of_growth_gets_words_much_sooner() -> None:
    rules = AnswerRules.growing()
    made = flight("foo(bar, ba")
    assert ripe(made, made.strand.text, 1.0, rules, wanted=True) == ReadyText("foo(bar,", False, LINE)
    assert ripe(made, made.strand.text, 1.0, AnswerRules(), wanted=True) == 1.25


def test_where_no_confidence_is_asked_for_the_first_whole_word_is_enough_and_half_a_word_is_not() -> None:
    rules, made = AnswerRules.growing(), flight("foo")
    assert ripe(made, made.strand.text, 1.0, rules, wanted=True) is None, "it may go on as another word"
    made.add(Delta(id="r1", text="(ba", logprob=-0.1, tokens=2), 1.0)
    assert ripe(made, made.strand.text, 1.0, rules, wanted=True) == ReadyText("foo(", False, LINE)
    assert ripe(made, made.strand.text, 1.0, AnswerRules(), wanted=True) == 1.25, (
        "an editor that hears of no growth waits"
    )


def test_what_is_left_of_an_answer_has_its_share_of_the_log_probability() -> None:
    made = flight("foo(bar)")
    made.end(Done(id="r1", finish=Finish.END_OF_MIDDLE, logprob=-0.3, tokens=1))
    assert made.mean_logprob == pytest.approx(-0.8 / 3)
    assert made.logprob_of("(bar)") == pytest.approx(-0.8 * 5 / 8)
    made.ended_s = 2.0
    entry = made.entry()
    assert entry is not None and entry.logprob_of("bar)") == pytest.approx(-0.4)
