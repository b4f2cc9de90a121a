"""From the flow to events: counted by the definitions, and without a character of source text."""

import asyncio
import random
from typing import Any

import msgspec
import pytest
from client.scripted_gateway import Script, ScriptedGateway
from client.typing_desk import URI, Desk, profile
from foretype_client.feedback.feedback import Feedback
from foretype_client.flow.suggestion import Suggestion
from foretype_client.telemetry.recorder import Recorder
from foretype_client.telemetry.survival import measure
from foretype_context.syntax.document import Document
from foretype_wire.telemetry import (
    Accept,
    Dismiss,
    Display,
    Event,
    Opportunity,
    Request,
    Result,
    Sample,
    Survive,
    Typing,
)

pytestmark = pytest.mark.virtual_time

ANSWER = Script([(0.02, "secret_name"), (0.01, "(a"), (0.01, ")")])
WALL_MS = 1_790_078_400_000


class Recorded(Desk):
    """A desk whose flow is recorded."""

    def __init__(self, gateway: ScriptedGateway, text: str = "|", *, texts: bool = False, editor: str = "") -> None:
        feedback = Feedback()
        clock = asyncio.get_running_loop().time
        self.recorder = Recorder("abc123", feedback, clock=clock, wall_ms=WALL_MS, texts=texts, editor=editor)
        super().__init__(gateway, text, feedback=feedback)
        self.recorder.follow(self.flow)
        self.recorder.opened(self.document.snapshot())
        self.all: list[Event] = []

    def of(self, kind: Any) -> list[Any]:
        self.all += self.recorder.take()
        return [event for event in self.all if isinstance(event, kind)]

    def measured(self) -> None:
        due = self.recorder.due()
        self.recorder.survived([measure(one) for one in due], branch_changed=lambda one: False)


@pytest.mark.parametrize(("says", "outcome", "parses"), [("a + 1", "network", True), ("a b", "broken", False)])
async def test_whether_what_was_found_parses_is_told_shown_or_not(says: str, outcome: str, parses: bool) -> None:
    async with Recorded(ScriptedGateway(Script([(0.02, says)]))) as desk:
        desk.document = Document(URI, "def f(a):\n    return\n", language="python", path="a.py")
        desk.flow.document_opened(desk.document.snapshot())
        desk.move("return")
        shown = await desk.typed(" ")
        (opportunity,) = desk.of(Opportunity)
        assert (opportunity.outcome, opportunity.parses) == (outcome, parses)
        assert (shown is not None) is parses


async def test_a_suggestion_that_is_asked_for_shown_and_accepted() -> None:
    async with Recorded(ScriptedGateway(ANSWER)) as desk:
        suggestion = await desk.typed("x = ")
        await asyncio.sleep(1.0)
        desk.accept(suggestion)
        (opportunity,) = desk.of(Opportunity)
        assert (opportunity.outcome, opportunity.caret, opportunity.trigger) == ("network", "line_end", "automatic")
        (request,), (result,) = desk.of(Request), desk.of(Result)
        assert request.opportunity == opportunity.id and request.id == result.id == suggestion.request_id
        assert (request.prompt_tokens, request.cached_tokens) == (100, 80)
        assert (result.first_ms, result.last_ms) == (pytest.approx(20), pytest.approx(40))
        assert result.finish == "end_of_middle" and result.stages_ms["debounce"] == pytest.approx(75)
        (display,) = desk.of(Display)
        assert (display.end, display.visible_ms, display.characters) == ("accepted", pytest.approx(1000), 14)
        assert (display.opportunity, display.request) == (opportunity.id, request.id)
        assert (display.served_from, display.display_source) == ("network", "inferred")
        (accept,) = desk.of(Accept)
        assert (accept.kind, accept.how, accept.characters, accept.shown) == ("full", "reported", 14, display.shown)
        assert desk.of(Dismiss) == []
        assert display.t_ms == WALL_MS + int(display.at_ms) and display.at_ms == pytest.approx(115)


async def test_typing_through_is_one_session_and_one_opportunity_for_each_key() -> None:
    async with Recorded(ScriptedGateway(ANSWER)) as desk:
        await desk.typed("x = ")
        for key in "secret":
            await asyncio.sleep(0.2)
            await desk.typed(key)
        await desk.ask()  # again at the same place: the editor was told that it grew
        await asyncio.sleep(0.2)
        desk.type("?")
        await asyncio.sleep(6)
        desk.type("!")
        outcomes = [event.outcome for event in desk.of(Opportunity)]
        assert outcomes == ["network"] + ["cache"] * 6
        (display,) = desk.of(Display)
        assert (display.end, display.visible_ms) == ("diverged", pytest.approx(1400))
        (dismiss,) = desk.of(Dismiss)
        assert (dismiss.kind, dismiss.shown) == ("typed_over", display.shown)
        assert len(desk.of(Request)) == 1


async def test_keys_are_counted_by_language_and_told_once_a_minute() -> None:
    async with Recorded(ScriptedGateway(ANSWER)) as desk:
        for text in ("x", "()", "=", "\n        ", "a whole line that was pasted"):
            desk.type(text)
        desk.backspace()
        assert desk.of(Typing) == []
        await asyncio.sleep(61.0)
        (typing,) = desk.of(Typing)
        assert (typing.keys, typing.deletions, typing.language) == (4, 1, "plaintext")
        desk.type("y")
        assert len(desk.of(Typing)) == 1
        desk.all += desk.recorder.take(everything=True)  # the editor closes
        assert [event.keys for event in desk.of(Typing)] == [4, 1]


async def test_every_event_names_the_editor_and_the_model() -> None:
    async with Recorded(ScriptedGateway(ANSWER), editor="Visual Studio Code") as desk:
        await desk.typed("x = ")
        events = desk.of(Event)
        assert len(events) >= 3
        assert {(event.editor, event.model) for event in events} == {("visual-studio-code", profile().model)}
        assert {event.request_class for event in desk.of(Result)} == {"interactive"}


async def test_what_becomes_of_a_suggestion_belongs_to_the_arm_that_it_was_asked_under() -> None:
    """The block changes while a suggestion stands: its accept, and what is left of it later, say nothing of the new one."""

    gateway = ScriptedGateway(ANSWER, profile=profile(experiment="context", variant="treatment", block=7))
    async with Recorded(gateway) as desk:
        suggestion = await desk.typed("x = ")
        gateway.profile = profile(experiment="context", variant="control", block=8)
        desk.accept(suggestion)
        await asyncio.sleep(1.0)
        await desk.typed("y = ")
        await asyncio.sleep(16.0)
        desk.measured()
        arms = {
            kind: {(one.experiment, one.variant, one.block) for one in desk.of(kind)}
            for kind in (Accept, Survive, Opportunity, Result)
        }
        treated, controlled = ("context", "treatment", 7), ("context", "control", 8)
        assert arms[Accept] == arms[Survive] == {treated}
        assert arms[Opportunity] == arms[Result] == {treated, controlled}


async def test_the_same_text_from_elsewhere_is_the_same_session() -> None:
    feedback = Feedback()
    async with Recorded(ScriptedGateway(ANSWER)) as desk:
        from foretype_client.flow.strands import Place

        snapshot = desk.document.snapshot()
        place = Place.of(snapshot, 0, None)
        for id, text, now in (("a", "foo", 0.0), ("b", "foo", 0.5), ("c", "bar", 0.8)):
            events = feedback.offered(id, snapshot, 0, place=place, text=text, replaces=0, source="network", now=now)
            desk.all += events  # type: ignore[arg-type]
        events = feedback.closed(snapshot.uri, 1.0)
        sessions = [(event.id, event.session) for event in [*desk.all, *events]]  # type: ignore[union-attr]
        assert sessions == [("a", "a"), ("b", "a"), ("c", "c")]


async def test_partial_accepts_add_their_characters_and_the_rest_adds_only_the_rest() -> None:
    script = Script([(0.02, "alpha beta\n    gamma")])
    async with Recorded(ScriptedGateway(script)) as desk:
        suggestion = await desk.typed("x = ")
        desk.type("a")  # typed by hand: nobody's accept
        whole = suggestion.text
        for word in ("lpha ", "beta"):
            await asyncio.sleep(0.3)
            desk.type(word)
        accepts = [(event.kind, event.characters) for event in desk.of(Accept)]
        rest = whole[len("alpha beta") :]
        if rest:
            desk.type(rest)
        accepts = [(event.kind, event.characters, event.how) for event in desk.of(Accept)]
        assert accepts[0] == ("word", 5, "inferred")
        assert sum(event[1] for event in accepts) == len(whole) - 1
        assert len({event.shown for event in desk.of(Accept)}) == 1


@pytest.mark.parametrize("report_first", [True, False])
async def test_reported_words_count_once_whichever_comes_first(report_first: bool) -> None:
    async with Recorded(ScriptedGateway(Script([(0.02, "alpha beta gamma")]))) as desk:
        suggestion = await desk.typed("x = ")
        for word in ("alpha ", "beta "):
            assert suggestion is not None
            if report_first:
                desk.flow.partially_accepted(suggestion.id, len(word))
            desk.type(word)
            if not report_first:
                desk.flow.partially_accepted(suggestion.id, len(word))
            suggestion = await desk.ask()
        desk.accept(suggestion)
        assert [(event.kind, event.characters) for event in desk.of(Accept)] == (
            [("word", 6), ("word", 5), ("full", 5)]
        )
        await asyncio.sleep(31)
        desk.measured()
        assert [(event.age_s, event.characters, event.arc) for event in desk.of(Survive)] == (
            [(30, 6, 6), (30, 5, 5), (30, 5, 5)]
        )


async def test_where_policy_allows_nothing_there_was_no_opportunity_and_an_absent_gateway_is_a_miss() -> None:
    gateway = ScriptedGateway(ANSWER)
    async with Recorded(gateway, "foo| = bar\n") as desk:
        assert await desk.typed("d") is None
        assert desk.of(Opportunity) == []
        desk.move(" = bar")
        gateway.connected = False
        assert await desk.typed("s") is None
        assert [event.outcome for event in desk.of(Opportunity)] == ["offline"]


async def test_survival_is_measured_in_the_live_document() -> None:
    async with Recorded(ScriptedGateway(ANSWER), "|\n") as desk:
        suggestion = await desk.typed("x = ")
        desk.accept(suggestion)
        await asyncio.sleep(15)
        desk.measured()
        start = desk.document.text.index("(a)")
        desk.edit(start, start + 3, "[0]")
        await asyncio.sleep(15)
        desk.measured()
        first, second = desk.of(Survive)
        assert (first.age_s, first.arc, first.levenshtein, first.fourgram) == (15, 14, 0, 1.0)
        assert (second.age_s, second.arc, second.levenshtein, second.length_now) == (30, 11, 3, 14)
        assert second.at_ms == pytest.approx(first.at_ms + 15_000)


async def test_a_clock_that_jumps_moves_the_day_and_no_duration() -> None:
    async with Recorded(ScriptedGateway(ANSWER)) as desk:
        await desk.typed("x = ")
        await asyncio.sleep(1)
        desk.recorder.set_wall(WALL_MS - 86_400_000)
        desk.type("?")
        await asyncio.sleep(6)
        desk.type("!")
        (opportunity,), (display,) = desk.of(Opportunity), desk.of(Display)
        assert opportunity.t_ms >= WALL_MS and display.t_ms < WALL_MS - 86_000_000
        assert display.visible_ms == pytest.approx(1000) and display.at_ms > opportunity.at_ms


@pytest.mark.parametrize("texts", [False, True])
async def test_samples_hold_text_only_where_they_are_wanted(texts: bool) -> None:
    async with Recorded(ScriptedGateway(ANSWER), texts=texts) as desk:
        suggestion = await desk.typed("x = ")
        desk.accept(suggestion)
        samples = [(sample.prefix, sample.suggestion, sample.accepted) for sample in desk.of(Sample)]
    assert samples == ([("x = ", "secret_name(a)", True)] if texts else [])


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_typed_every_event_is_valid_numbered_and_without_text(seed: int) -> None:
    rng = random.Random(seed)
    async with Recorded(ScriptedGateway(ANSWER), "secret_start = |\n") as desk:
        last: Suggestion | None = None
        for _ in range(40):
            await asyncio.sleep(rng.choice([0.01, 0.1, 0.5, 2.0, 20.0]))
            match rng.randrange(7):
                case 0 if last is not None:
                    desk.accept(last)
                case 1 if last is not None:
                    desk.flow.partially_accepted(last.id, rng.randrange(1, 6))
                case 2 if last is not None:
                    desk.flow.shown(last.id)
                case 3 if desk.cursor > 0:
                    desk.backspace()
                case _:
                    desk.type(rng.choice(["s", "secret_name(", "(", "\n", "x", "secret_name(a)"]))
            desk.measured()
            last = await desk.ask()
    events = [*desk.all, *desk.recorder.take()]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    encoded = msgspec.msgpack.encode(events)
    assert b"ecret" not in encoded
    assert msgspec.msgpack.decode(encoded, type=list[Event]) == events  # within every limit of the wire
    displays = [event.id for event in events if isinstance(event, Display)]
    assert len(displays) == len(set(displays))
    ends = {event.shown for event in events if isinstance(event, Accept | Dismiss)}
    assert ends <= {event.shown for event in events if isinstance(event, Display)}
