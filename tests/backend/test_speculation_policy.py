"""When guesses are made: per language, per load, with a reason."""

import pytest
from foretype_backend.fleet.routing.patterns import Pattern, line_at, pattern_of
from foretype_backend.fleet.routing.speculation import SpeculationOptions, SpeculationPolicy, SpeculationVerdict
from foretype_context.prompt.segments import Kind, PlacedSegment, Scope, Segment, Source
from hypothesis import given
from hypothesis import strategies as st

LOGIC = Pattern.LOGIC


def policy(**options: float) -> SpeculationPolicy:
    return SpeculationPolicy(
        4, SpeculationOptions(**({"steps_min": 10, "probe_steps": 10, "window_steps": 100} | options))
    )  # type: ignore[arg-type]


def feed(one: SpeculationPolicy, language: str, tokens: int, steps: int, pattern: Pattern = LOGIC) -> None:
    for _ in range(steps):
        one.note(language, pattern, tokens)


def test_a_language_is_judged_by_itself_and_the_reason_is_counted() -> None:
    one = policy()
    assert one.decide("go", LOGIC, 0) is SpeculationVerdict.UNMEASURED
    feed(one, "go", 2, 20)  # one guess of four accepted
    feed(one, "python", 4, 20)  # three of four
    assert one.decide("go", LOGIC, 0) is SpeculationVerdict.ACCEPTANCE
    assert one.decide("python", LOGIC, 0) is SpeculationVerdict.PAYS
    assert one.languages()["go"].accepted_share == 0.25
    assert one.languages()["python"].accepted_share == 0.75
    assert one.verdicts() == {
        SpeculationVerdict.UNMEASURED: 1,
        SpeculationVerdict.ACCEPTANCE: 1,
        SpeculationVerdict.PATTERN: 0,
        SpeculationVerdict.PAYS: 1,
        SpeculationVerdict.PROBE: 0,
        SpeculationVerdict.BATCH: 0,
    }
    assert [
        verdict.on for verdict in (SpeculationVerdict.PAYS, SpeculationVerdict.ACCEPTANCE, SpeculationVerdict.BATCH)
    ] == [True, False, False]


def test_a_full_batch_has_better_use_for_the_time() -> None:
    one = policy(batch_max=6)
    feed(one, "python", 4, 20)
    assert one.decide("python", LOGIC, 6) is SpeculationVerdict.PAYS
    assert one.decide("python", LOGIC, 7) is SpeculationVerdict.BATCH


def test_what_is_off_is_tried_now_and_then_and_comes_back_above_the_gap() -> None:
    one = policy(probe_every=4)
    feed(one, "c", 2, 50)
    asked = [one.decide("c", LOGIC, 0) for _ in range(12)]
    assert [at for at, verdict in enumerate(asked, start=1) if verdict is SpeculationVerdict.PROBE] == [4, 8, 12]
    feed(one, "c", 3, 10)
    assert not one.languages()["c"].on  # 50 % is enough to stay on, not to come back
    feed(one, "c", 4, 10)
    assert one.languages()["c"].on
    assert one.decide("c", LOGIC, 0) is SpeculationVerdict.PAYS


def test_what_got_better_is_noticed_within_a_few_dozen_requests_however_long_it_was_poor() -> None:
    """Sixteen steps of a request, as measured: half of what is guessed for, or more, while it pays."""
    one = SpeculationPolicy(4)
    for turn in range(3):
        for tokens in (4, 1):
            asked = list[bool]()
            for _ in range(300):
                asked.append(one.decide("go", LOGIC, 0).on)
                feed(one, "go", tokens, 16 if asked[-1] else 0)
            settled = asked[80:]
            if tokens == 4:
                assert all(settled), turn
            else:
                assert sum(settled) <= len(settled) / 8 + 1, turn


def test_a_language_is_judged_from_its_least_number_of_steps_on() -> None:
    one = policy(steps_min=10)
    feed(one, "go", 2, 9)
    assert one.decide("go", LOGIC, 0) is SpeculationVerdict.UNMEASURED
    one.note("go", LOGIC, 2)
    assert one.decide("go", LOGIC, 0) is SpeculationVerdict.ACCEPTANCE


@given(st.lists(st.integers(1, 5), min_size=1, max_size=400))
def test_the_share_is_one_and_the_memory_is_bounded(steps: list[int]) -> None:
    one = policy()
    for tokens in steps:
        one.note("x", LOGIC, tokens)
        standing = one.languages()["x"]
        assert standing.steps <= 101
        assert standing.accepted_share is None or 0 <= standing.accepted_share <= 1


@pytest.mark.parametrize("options", [{"off_below": 0.6, "on_above": 0.5}, {"batch_max": 0}, {"probe_every": 0}])
def test_options_that_cannot_be_meant(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"off_below|must be at least 1"):
        policy(**options)


def test_what_is_forgotten_of_old_steps_leaves_the_share_as_it_was() -> None:
    one = policy(window_steps=100)
    feed(one, "go", 4, 101)
    assert one.languages()["go"].accepted_share == 0.75
    assert one.languages()["go"].steps <= 51


def test_a_pattern_that_is_off_is_off_in_its_language_alone() -> None:
    one = policy()
    feed(one, "python", 5, 40, Pattern.SYNTAX)
    feed(one, "python", 1, 10, Pattern.COMMENT)
    feed(one, "go", 5, 40, Pattern.COMMENT)
    assert one.languages()["python"].on
    assert one.decide("python", Pattern.SYNTAX, 0) is SpeculationVerdict.PAYS
    assert one.decide("python", Pattern.COMMENT, 0) is SpeculationVerdict.PATTERN
    assert one.decide("go", Pattern.COMMENT, 0) is SpeculationVerdict.PAYS
    assert one.patterns()["python", Pattern.COMMENT].accepted_share == 0
    assert not SpeculationVerdict.PATTERN.on


def test_a_language_that_is_off_switches_it_off_for_every_pattern() -> None:
    one = policy()
    feed(one, "c", 1, 40, LOGIC)
    feed(one, "c", 5, 8, Pattern.SYNTAX)
    assert one.patterns()["c", Pattern.SYNTAX].on
    assert one.decide("c", Pattern.SYNTAX, 0) is SpeculationVerdict.ACCEPTANCE


@pytest.mark.parametrize(
    ("line", "language", "pattern"),
    [
        ("    return compute(a, b)", "python", Pattern.SYNTAX),
        ("    }", "go", Pattern.SYNTAX),
        ('    name = "x"', "python", Pattern.SYNTAX),
        ("", "python", Pattern.IDIOM),
        ("    for ", "python", Pattern.IDIOM),
        ("if err ", "go", Pattern.IDIOM),
        ("    total = amo", "python", Pattern.NAME),
        ("    self.", "python", Pattern.NAME),
        ("    total = ", "python", Pattern.LOGIC),
        ("    if x > ", "python", Pattern.LOGIC),
        ("    call(a, ", "python", Pattern.LOGIC),
        ("    # adds ", "python", Pattern.COMMENT),
        ("x = 1 # the ", "python", Pattern.COMMENT),
        ("// Close ends ", "go", Pattern.COMMENT),
        (" * @param ", "java", Pattern.COMMENT),
        ("# a heading ", "no-such-language", Pattern.COMMENT),
    ],
)
def test_the_line_says_what_kind_of_text_is_asked_for(line: str, language: str, pattern: Pattern) -> None:
    assert pattern_of(line, language) is pattern


@given(st.text(max_size=60), st.sampled_from(["python", "go", "sql", ""]))
def test_every_line_is_of_some_kind(line: str, language: str) -> None:
    assert pattern_of(line, language) in Pattern


def test_the_line_ends_at_the_cursor_wherever_the_suffix_stands() -> None:
    def placed(*parts: tuple[Kind, str]) -> list[PlacedSegment]:
        return [
            PlacedSegment(segment=Segment(kind=kind, scope=Scope.FILE, source=Source(), text=text), start=0, end=1)
            for kind, text in parts
        ]

    assert (
        line_at(placed((Kind.SUFFIX, "\nend"), (Kind.PREFIX, "def f():\n"), (Kind.MIDDLE, "    return ")))
        == "    return "
    )
    assert line_at(placed((Kind.PREFIX, "def f():\n  a"), (Kind.SUFFIX, "z"))) == "  a"
    assert line_at([]) == ""
