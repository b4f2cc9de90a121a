from typing import Any

import msgspec
import pytest
from context.tiny import tiny
from foretype_context.errors import ProfileError
from foretype_context.prompt import layouts
from foretype_context.prompt.assemble import Assembler, Plan, PlanState
from foretype_context.prompt.profile import Budgets, Profile, StopRules
from foretype_context.prompt.segments import Kind, Scope
from foretype_context.prompt.sources import Snippet
from foretype_context.prompt.templates import GRAMMARS, encode_prompt, grammar
from foretype_context.syntax.blocks import SuggestionKind
from foretype_context.syntax.document import Document, Edit, Snapshot
from foretype_context.syntax.languages import language_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SOURCE = "".join(
    f'import mod{i}\n' if i < 5 else
    f'\n\ndef function_{i}(first, second=None):\n    """Doc {i}."""\n    if first:\n        return second + {i}\n\n    for x in range({i}):\n        print(x, first)\n    return None\n'
    for i in range(60)
)  # fmt: skip
ATOMS = [
    *'ab ().:#\n\n\t\r"é🙂',
    "    ",
    "\r\n",
    "def f(x):\n    ",
    "<|fim_middle|>",
    "return x",
    "x" * 300,
    "\ud800",
    "\x00",
]
TEXT = st.lists(st.sampled_from(ATOMS), max_size=12).map("".join)
LAYOUTS = [(name, layout) for name, one in GRAMMARS.items() for layout in one.layouts]


def frozen_clock() -> float:
    return 0.0


def assembler(grammar_id: str = "foretype-1", layout: str = "psm_line_last", **budgets: int) -> Assembler:
    tokenizer = tiny(grammar_id)
    profile = Profile(
        model="m", grammar=grammar_id, tokenizer_digest=tokenizer.digest, layout=layout, budgets=Budgets(**budgets)
    )
    return Assembler(tokenizer, profile, repository="shop", timer=frozen_clock)


def ids_of(one: Assembler, plan: Plan) -> list[int]:
    return encode_prompt(one.tokenizer, one.grammar, [placed.segment for placed in plan.segments]).ids


def planned(one: Assembler, text: str, offset: int, **more: Any) -> Plan:
    """The first plan in a file that holds this text."""
    snapshot = Document("file:///a.py", text, path="a.py").snapshot()
    return one.plan(PlanState.empty(), snapshot, offset, now=0.0, **more)[0]


def check(one: Assembler, plan: Plan, snapshot: Snapshot, offset: int) -> None:
    """Everything that holds for every plan."""
    segments = [placed.segment for placed in plan.segments]
    encoded = encode_prompt(one.tokenizer, one.grammar, segments)
    assert encoded.ranges == [(placed.start, placed.end) for placed in plan.segments]
    assert len(encoded.ids) == plan.prompt_tokens <= plan.budget_tokens <= one.profile.budgets.prompt_tokens
    frozen = {span.text for span in plan.frozen_spans}
    for segment in segments:
        if segment.kind in (Kind.FILE, Kind.REPOSITORY, Kind.PATH):
            continue
        start, end = segment.source.start, segment.source.end
        assert end - start == len(segment.text)
        if segment.kind is Kind.SUFFIX:
            # Below the cursor the live text stands, at the place where the layout has it, unless the plan lists the span.
            tail = "".join(one.text for one in segments if one.kind is Kind.TAIL)
            below = snapshot.next_line_start(snapshot.line_of(offset + (len(tail) if one.grammar.tail_lines else 0)))
            hidden = [
                span.end for span in plan.frozen_spans if not span.text
            ]  # closers, and blanks, that the layout leaves out
            places = [offset, below, offset + len(tail), *hidden]
            if segment.text in frozen:
                assert all(span.start in places and span.end <= len(snapshot.text) for span in plan.frozen_spans)
            else:
                assert any(snapshot.text.startswith(segment.text, place) for place in places)
            continue
        assert segment.source.version == snapshot.version
        assert snapshot.text[start:end] == segment.text
    above = "".join(segment.text for segment in segments if segment.kind is Kind.PREFIX)
    middle = next(segment for segment in segments if segment.kind is Kind.MIDDLE)
    assert middle.text == plan.middle
    # The text left of the cursor, without a gap; a line too long for the budget is shown by its end.
    assert (snapshot.text[:offset]).endswith(middle.text + plan.healed)
    prefix = [segment for segment in segments if segment.kind is Kind.PREFIX]
    if prefix and prefix[-1].source.end == middle.source.start:
        assert snapshot.text[:offset].endswith(above + middle.text + plan.healed)
    # Tokenised apart, the lines above have the ids of the whole; in SPM, where no token parts them, the middle too.
    joined_layout = one.profile.layout in ("spm", "left_to_right")
    whole = above + (middle.text if joined_layout else "")
    parts = [*prefix, middle] if joined_layout else prefix
    assert one.tokenizer.encode(whole) == [found for part in parts for found in one.tokenizer.encode(part.text)]
    tail = "".join(s.text for s in segments if s.kind is Kind.TAIL)
    if tail and not one.grammar.tail:
        suffix = "".join(s.text for s in segments if s.kind is Kind.SUFFIX)
        joined = one.tokenizer.encode(tail) + one.tokenizer.encode(suffix)
        assert one.tokenizer.encode(tail + suffix) == joined or plan.frozen_spans


@pytest.mark.parametrize(("grammar_id", "layout"), LAYOUTS)
def test_a_cursor_in_the_middle_is_laid_out(grammar_id: str, layout: str) -> None:
    one = assembler(grammar_id, layout, prompt_tokens=600)
    snapshot = Document("file:///a.py", SOURCE, path="a.py").snapshot()
    offset = SOURCE.index("return second + 30") + 10
    plan, _ = one.plan(PlanState.empty(), snapshot, offset, now=0.0)
    check(one, plan, snapshot, offset)
    kinds = [placed.segment.kind for placed in plan.segments]
    assert kinds[-1] is Kind.MIDDLE and Kind.PREFIX in kinds and Kind.PATH in kinds
    assert plan.prompt_tokens > 300
    text = encode_prompt(one.tokenizer, one.grammar, [placed.segment for placed in plan.segments]).text
    assert (
        text.endswith(
            snapshot.text[snapshot.line_start(snapshot.line_of(offset)) : offset][: -len(plan.healed) or None]
        )
        or layout == "psm_classic"
    )
    assert ("for x in range(30)" in text) is one.grammar.sees_below and "def function_30" in text


@st.composite
def sessions(draw: st.DrawFn) -> tuple[str, list[tuple[float, float, str, float, float]]]:
    start = draw(st.sampled_from(["", SOURCE, SOURCE.replace("\n", "\r\n"), SOURCE[:300], "x = 1", "a" * 30_000]))
    spot = st.floats(0, 1)
    steps = st.lists(
        st.tuples(spot, st.sampled_from([0.0, 0.0, 0.001, 0.1]), TEXT, spot, st.sampled_from([0.1, 0.1, 5.0])),
        max_size=6,
    )
    return draw(st.just(start)), draw(steps)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(LAYOUTS), sessions(), st.sampled_from([64, 100, 300, 1200]), st.booleans())
def test_any_session_keeps_budget_ranges_and_text(
    which: tuple[str, str],
    session: tuple[str, list[tuple[float, float, str, float, float]]],
    budget: int,
    with_context: bool,
) -> None:
    one = assembler(*which, prompt_tokens=budget)
    text, steps = session
    document = Document("file:///a.py", text, path="a.py")
    state, now = PlanState.empty(), 0.0
    snippets = [
        Snippet(path=f"lib/{i}.py", text=f"def helper_{i}():\n    return {i}" * (i + 1), score=i, scope=Scope.REPOSITORY if i % 2 else Scope.SESSION)
        for i in range(4 if with_context else 0)
    ]  # fmt: skip
    for version, (where, share, new, cursor, pause) in enumerate(steps, 1):
        at = round(where * len(document.text))
        end = min(len(document.text), at + round(share * len(document.text)))
        document.apply([Edit(at, end, new)], version)
        near = at + len(new) if cursor < 0.7 else round(cursor * len(document.text))
        snapshot = document.snapshot()
        offset = min(near, snapshot.line_end(snapshot.line_of(near)))
        now += pause
        plan, after = one.plan(state, snapshot, offset, snippets=snippets[version % 3 :], now=now)
        again, after_again = one.plan(state, snapshot, offset, snippets=snippets[version % 3 :], now=now)
        assert (plan, after) == (again, after_again)
        check(one, plan, snapshot, offset)
        state = after


def common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@pytest.mark.parametrize("layout", ["psm_line_last", "psm_growing", "spm"])
def test_typing_on_a_line_only_appends(layout: str) -> None:
    one = assembler(layout=layout, prompt_tokens=1200)
    text = SOURCE
    at = text.index("    for x in range(30)")
    document = Document("file:///a.py", text[:at] + "    \n" + text[at:], path="a.py")
    at += 4
    state = PlanState.empty()
    before: list[int] = []
    for version, character in enumerate("value = compute(first, 3)  # why\t", 1):
        plan, state = one.plan(state, document.snapshot(), at, now=version * 0.2)
        ids = ids_of(one, plan)
        middle = plan.segments[-1].tokens
        if before:
            assert common(before, ids) >= len(ids) - middle - 1
        before = ids
        document.apply([Edit(at, at, character)], version)
        at += 1


def window_of(plan: Plan) -> int:
    return min(placed.segment.source.start for placed in plan.segments if placed.segment.kind is Kind.PREFIX)


@pytest.mark.parametrize("prompt_tokens", range(300, 1500, 100))
def test_the_first_key_on_an_empty_line_moves_no_window(prompt_tokens: int) -> None:
    one = assembler("foretype-1", "psm_line_last", prompt_tokens=prompt_tokens)
    document = Document("file:///a.py", SOURCE, path="a.py")
    offset = SOURCE.index("\n\ndef function_50") + 1
    empty, state = one.plan(PlanState.empty(), document.snapshot(), offset, now=0.0)
    assert empty.middle == "" and window_of(empty) > 0
    document.apply([Edit(offset, offset, "x")], 2)
    typed, _ = one.plan(state, document.snapshot(), offset + 1, now=0.1)
    afresh, _ = one.plan(PlanState.empty(), document.snapshot(), offset + 1, now=0.1)
    assert window_of(empty) == window_of(typed) == window_of(afresh)


def test_a_window_is_kept_while_it_fits_to_the_token() -> None:
    """Set aside are a step for the middle and the token of a tail; where a line ends at the cursor no tail is counted."""
    text = SOURCE[: SOURCE.index("\n\ndef function_12") + 1]
    snapshot = Document("file:///a.py", text, path="a.py").snapshot()
    whole, state = assembler().plan(PlanState.empty(), snapshot, len(text), now=0.0)
    assert window_of(whole) == 0 and not any(placed.segment.kind is Kind.TAIL for placed in whole.segments)
    exact = whole.prompt_tokens + layouts._MIDDLE_QUANTUM_TOKENS + 1
    for tokens, fits in ((exact, True), (exact - 1, False)):
        plan, _ = assembler(prompt_tokens=tokens).plan(state, snapshot, len(text), now=0.1)
        assert (window_of(plan) == 0) is fits


def test_enter_appends_in_psm_growing_and_recomputes_from_the_lines_above_in_psm_line_last() -> None:
    lost: dict[str, int] = {}
    for layout in ("psm_growing", "psm_line_last"):
        one = assembler(layout=layout, prompt_tokens=1200)
        at = SOURCE.index("\n    for x in range(30)")
        document = Document("file:///a.py", SOURCE, path="a.py")
        state = PlanState.empty()
        plan, state = one.plan(state, document.snapshot(), at, now=0.0)
        document.apply([Edit(at, at, "\n    y = 1")], 1)
        after, _ = one.plan(state, document.snapshot(), at + 10, now=1.0)
        old, new = ids_of(one, plan), ids_of(one, after)
        lost[layout] = len(new) - common(old, new)
    assert lost["psm_growing"] <= 12
    assert lost["psm_line_last"] > 100


def test_the_window_does_not_slide_with_every_enter() -> None:
    one = assembler(prompt_tokens=1200)
    at = SOURCE.index("\n    for x in range(40)")
    document = Document("file:///a.py", SOURCE, path="a.py")
    state = PlanState.empty()
    starts: list[int] = []
    for version in range(1, 40):
        plan, state = one.plan(state, document.snapshot(), at, now=version * 0.5)
        starts.append(
            min(placed.segment.source.start for placed in plan.segments if placed.segment.kind is Kind.PREFIX)
        )
        document.apply([Edit(at, at, "\n    y = 1")], version)
        at += 10
    assert len(set(starts)) <= 3


def test_an_edit_far_above_leaves_the_window_where_it_was_in_the_text() -> None:
    one = assembler(prompt_tokens=600)
    at = SOURCE.index("return second + 40")
    document = Document("file:///a.py", SOURCE, path="a.py")
    plan, state = one.plan(PlanState.empty(), document.snapshot(), at, now=0.0)
    document.apply([Edit(0, 0, "import more\nimport yet_more\n")], 1)
    after, _ = one.plan(state, document.snapshot(), at + 28, now=1.0)
    assert ids_of(one, plan) == ids_of(one, after)


def test_a_stale_suffix_is_not_shown_when_its_first_token_changed() -> None:
    # vscode#295450: an opener typed before existing text must not be hidden by a frozen suffix.
    one = assembler(prompt_tokens=1200)
    at = SOURCE.index("\n\ndef function_30")
    document = Document("file:///a.py", SOURCE, path="a.py")
    _, state = one.plan(PlanState.empty(), document.snapshot(), at, now=0.0)
    below = document.snapshot().next_line_start(document.snapshot().line_of(at))
    document.apply([Edit(below, below, "/**\n")], 1)
    plan, _ = one.plan(state, document.snapshot(), at, now=1.0)
    suffix = next(placed.segment.text for placed in plan.segments if placed.segment.kind is Kind.SUFFIX)
    assert suffix.startswith("/**") and not plan.frozen_spans


def test_a_small_change_far_below_leaves_the_suffix_frozen_and_says_so() -> None:
    one = assembler(prompt_tokens=1200)
    at = SOURCE.index("\n    for x in range(30)")
    document = Document("file:///a.py", SOURCE, path="a.py")
    plan, state = one.plan(PlanState.empty(), document.snapshot(), at, now=0.0)
    far = SOURCE.index("return second + 31")
    document.apply([Edit(far, far, "1 + ")], 1)
    after, _ = one.plan(state, document.snapshot(), at, now=1.0)
    assert ids_of(one, plan) == ids_of(one, after)
    assert [span.text for span in after.frozen_spans] == [
        placed.segment.text for placed in plan.segments if placed.segment.kind is Kind.SUFFIX
    ]
    idle, _ = one.plan(state, document.snapshot(), at, now=9.0)
    assert not idle.frozen_spans and ids_of(one, idle) != ids_of(one, plan)


def test_a_deletion_below_refreshes_the_suffix() -> None:
    one = assembler(prompt_tokens=1200)
    at = SOURCE.index("\n    for x in range(30)")
    document = Document("file:///a.py", SOURCE, path="a.py")
    _, state = one.plan(PlanState.empty(), document.snapshot(), at, now=0.0)
    far = SOURCE.index("return second + 31")
    document.apply([Edit(far, far + 2, "")], 1)
    plan, _ = one.plan(state, document.snapshot(), at, now=1.0)
    assert not plan.frozen_spans


def test_an_edit_above_rebases_a_growing_hole() -> None:
    one = assembler(layout="psm_growing", prompt_tokens=1200)
    at = SOURCE.index("\n    for x in range(30)")
    document = Document("file:///a.py", SOURCE, path="a.py")
    _, state = one.plan(PlanState.empty(), document.snapshot(), at, now=0.0)
    document.apply([Edit(at, at, "\n    y = 1")], 1)
    plan, state = one.plan(state, document.snapshot(), at + 10, now=1.0)
    assert plan.middle == "    if first:\n        return second + 30\n\n    y = 1"
    document.apply([Edit(at - 3, at - 2, "4")], 2)
    plan, state = one.plan(state, document.snapshot(), at + 10, now=2.0)
    assert plan.middle == "    if first:\n        return second + 40\n\n    y = 1", "inside the hole"
    above = at - len("    if first:\n        return second + 30\n") - 3
    document.apply([Edit(above, above + 1, "z")], 3)
    plan, _ = one.plan(state, document.snapshot(), at + 10, now=3.0)
    assert plan.middle == "        return second + 40\n\n    y = 1"


def test_most_lines_above_keep_their_segments_after_an_edit_among_them() -> None:
    one = assembler(prompt_tokens=3000)
    at = SOURCE.index("\n    for x in range(50)")
    document = Document("file:///a.py", SOURCE, path="a.py")
    plan, state = one.plan(PlanState.empty(), document.snapshot(), at, now=0.0)
    edit = SOURCE.index("print(x, first)", at - 1200)
    document.apply([Edit(edit, edit, "\n        more = 1\n        ")], 1)
    after, _ = one.plan(state, document.snapshot(), at + 27, now=1.0)
    old = {placed.segment.text for placed in plan.segments if placed.segment.kind is Kind.PREFIX}
    new = [placed.segment.text for placed in after.segments if placed.segment.kind is Kind.PREFIX]
    assert len(new) > 5
    assert sum(text not in old for text in new) <= 2


def snippet(number: int, score: float = 0.0, **rest: object) -> Snippet:
    text = "".join(f"def helper_{number}_{i}(a{number}):\n    return a{number} * {i}\n" for i in range(3))
    return Snippet(**{"path": f"lib/{number}.py", "text": text, "score": score, **rest})  # pyright: ignore[reportArgumentType]


def files_of(plan: Plan) -> list[str]:
    return [placed.segment.source.path for placed in plan.segments if placed.segment.kind is Kind.FILE]


def test_new_context_is_appended_whatever_its_score() -> None:
    one = assembler(prompt_tokens=2000)
    snapshot = Document("file:///a.py", SOURCE, path="a.py").snapshot()
    first, state = one.plan(PlanState.empty(), snapshot, 400, snippets=[snippet(2), snippet(1)], now=0.0)
    assert files_of(first) == ["lib/1.py", "lib/2.py"]
    second, state = one.plan(state, snapshot, 400, snippets=[snippet(0, 9.0), snippet(2, 5.0), snippet(1)], now=1.0)
    assert files_of(second) == ["lib/1.py", "lib/2.py", "lib/0.py"]
    third, state = one.plan(state, snapshot, 400, snippets=[snippet(0)], now=2.0)
    assert files_of(third) == ["lib/1.py", "lib/2.py", "lib/0.py"]
    fourth, _ = one.plan(state, snapshot, 400, snippets=[snippet(0)], now=20.0)
    assert files_of(fourth) == ["lib/0.py"]
    assert {drop.reason for drop in fourth.dropped} == {"expired"}


def test_several_expired_snippets_rebuild_the_order() -> None:
    one = assembler(prompt_tokens=2000)
    snapshot = Document("file:///a.py", SOURCE, path="a.py").snapshot()
    _, state = one.plan(PlanState.empty(), snapshot, 400, snippets=[snippet(i) for i in range(4)], now=0.0)
    plan, _ = one.plan(state, snapshot, 400, snippets=[snippet(3), snippet(9, scope=Scope.REPOSITORY)], now=1.0)
    assert files_of(plan) == ["lib/9.py", "lib/3.py"]


def test_every_snippet_left_out_has_its_reason() -> None:
    one = assembler(prompt_tokens=2000, context_tokens=150)
    snapshot = Document("file:///a.py", SOURCE, path="a.py").snapshot()
    around = SOURCE[300:700]
    candidates = [
        snippet(1, 9.0),
        snippet(2, 8.0, text=snippet(1).text + "\n"),
        snippet(3, 7.0, path="a.py"),
        snippet(4, 6.0, text=around),
        snippet(5, 5.0, text=" \n\n"),
        snippet(6, 4.0, text="".join(f"other_{n} = call({n})\n" for n in range(90))),
    ]
    plan, _ = one.plan(PlanState.empty(), snapshot, 400, snippets=candidates, now=0.0)
    assert files_of(plan) == ["lib/1.py"]
    reasons = {drop.source.path: drop.reason for drop in plan.dropped}
    assert reasons == {
        "lib/2.py": "repeats another snippet",
        "a.py": "a part of the file being edited",
        "lib/4.py": "repeats the text around the cursor",
        "lib/5.py": "blank",
        "lib/6.py": "over the context budget",
    }


def test_context_is_dropped_when_time_runs_out() -> None:
    tokenizer = tiny()
    ticks = iter(range(10_000))
    profile = Profile(model="m", grammar="foretype-1", tokenizer_digest="")
    one = Assembler(tokenizer, profile, timer=lambda: next(ticks) * 0.004)
    plan = planned(one, SOURCE, 400, snippets=[snippet(1), snippet(2)])
    assert files_of(plan) == [] and {drop.reason for drop in plan.dropped} == {"assembly ran out of time"}
    assert plan.prompt_tokens > 100


def test_a_repository_stands_before_the_files_and_they_before_the_path() -> None:
    one = assembler(prompt_tokens=2000)
    plan = planned(one, SOURCE, 400, snippets=[snippet(1)])
    assert [placed.segment.kind for placed in plan.segments][:3] == [Kind.REPOSITORY, Kind.FILE, Kind.PATH]


def test_kind_decides_stop_and_length() -> None:
    one = assembler()
    document = Document("file:///a.py", "def f(x):\n    \n", path="a.py")
    block, _ = one.plan(PlanState.empty(), document.snapshot(), 14, now=0.0)
    line, _ = one.plan(PlanState.empty(), document.snapshot(), 14, block=False, now=0.0)
    assert (block.kind, block.stop.min_indent, block.stop.max_lines, block.max_tokens) == (
        SuggestionKind.BLOCK,
        4,
        12,
        128,
    )
    assert (line.kind, line.stop.min_indent, line.stop.max_lines, line.max_tokens) == (SuggestionKind.LINE, None, 1, 48)


@pytest.mark.parametrize(
    ("marked", "path", "indent"),
    [
        ("x = 1\n|\n", "a.py", 1),
        ("def f():\n    x = 1\n    whi|\n", "a.py", 5),
        ("function f() {\n    whi|\n}\n", "a.js", 4),
        ("def f():\n    whi|\n        x = 1\n", "a.py", None),  # its body is there already
        ("def f():\n    # whi|\n", "a.py", None),
        ("f(|)\n", "a.py", None),
    ],
)
def test_a_line_may_open_a_block_where_there_is_room_for_one(marked: str, path: str, indent: int | None) -> None:
    offset = marked.index("|")
    snapshot = Document("file:///x", marked.replace("|", ""), path=path, language=language_of(path)).snapshot()
    plan, _ = assembler().plan(PlanState.empty(), snapshot, offset, now=0.0)
    opened = plan.stop.opened
    assert (plan.kind, plan.stop.max_lines) == (SuggestionKind.LINE, 1)
    assert (None if opened is None else opened.min_indent) == indent
    if opened is not None:
        assert (opened.max_lines, opened.max_tokens) == (12, 128)
        opens = "le x:" if path == "a.py" else "le (x) {"
        assert plan.kind_of(opens + "\n") is SuggestionKind.OPENED
        assert plan.kind_of(opens) is plan.kind_of("x = 1\n") is SuggestionKind.LINE


def test_a_profile_may_keep_lines_to_themselves() -> None:
    snapshot = Document("file:///a.py", "x = 1\n", path="a.py").snapshot()
    one = assembler()
    kept = msgspec.structs.replace(one.profile, stop=StopRules(first_line_decides=False))
    plan, _ = Assembler(one.tokenizer, kept).plan(PlanState.empty(), snapshot, 6, now=0.0)
    assert plan.stop.opened is None


@pytest.mark.parametrize("text", ["x = 1\n", "def f():\n    |\n"])
def test_lines_and_blocks_end_where_the_profile_says_that_they_are_unlikely(text: str) -> None:
    offset = text.find("|") if "|" in text else 5
    snapshot = Document("file:///a.py", text.replace("|", ""), path="a.py").snapshot()
    one = assembler()
    told = msgspec.structs.replace(one.profile, stop=StopRules(least_chance=0.02))
    for profile, chance in ((one.profile, 0.001), (told, 0.02)):
        plan, _ = Assembler(one.tokenizer, profile).plan(PlanState.empty(), snapshot, offset, now=0.0)
        assert plan.stop.least_chance == chance


def test_offsets_outside_the_text_are_clamped() -> None:
    one = assembler()
    snapshot = Document("file:///a.py", "x = 1\r\n", path="a.py").snapshot()
    for offset in (-5, 6, 99):
        plan, _ = one.plan(PlanState.empty(), snapshot, offset, now=0.0)
        assert plan.middle in ("", "x = 1")


def test_one_huge_line_costs_its_neighbourhood() -> None:
    one = assembler(prompt_tokens=300)
    text = "x = [" + "1, " * 1_000_000 + "]\n"
    plan = planned(one, text, 1_500_000)
    assert plan.prompt_tokens <= 300 and len(plan.middle) > 100
    assert text[:1_500_000].endswith(plan.middle)


def test_unusable_profiles_name_the_field() -> None:
    with pytest.raises(ProfileError, match="layout"):
        assembler("codestral", "psm_line_last")
    with pytest.raises(ProfileError, match="prompt_tokens"):
        assembler(prompt_tokens=10)
    with pytest.raises(ProfileError, match="grammar"):
        Assembler(tiny("codellama"), Profile(model="m", grammar="foretype-1", tokenizer_digest=""))


def test_a_closed_file_is_forgotten_and_old_ones_too() -> None:
    one = assembler()
    state = PlanState.empty()
    for number in range(40):
        snapshot = Document(f"file:///{number}.py", "x = 1\n", path="a.py").snapshot()
        _, state = one.plan(state, snapshot, 3, now=0.0)
    assert len(state.files) == 32 and "file:///39.py" in state.files
    assert "file:///39.py" not in state.without("file:///39.py").files


def test_healed_characters_are_left_out_of_the_prompt() -> None:
    one = assembler("qwen2.5-coder")
    plan = planned(one, "def f():\n    retu\n", 17)
    assert (plan.middle, plan.healed, plan.stop.repeats) == ("   ", " retu", " retu")
    assert grammar("foretype-1").heals is False


@pytest.mark.parametrize("layout", ["spm", "psm_growing", "psm_line_last"])
@pytest.mark.parametrize(
    ("before", "ends", "healed"),
    [
        ("import os\ndef f(x):\n    retu", "\n   ", " retu"),
        ("import os\ndef f(x):\n    ", "\n   ", " "),
        ("import os\nx = a1", "x = a", "1"),
    ],
)
def test_holes_of_our_adapter_end_where_its_vocabulary_cuts(before: str, ends: str, healed: str, layout: str) -> None:
    one = assembler("foretype-3", layout)
    plan = planned(one, before + "\nBELOW = 1\n", len(before))
    encoded = encode_prompt(one.tokenizer, one.grammar, [placed.segment for placed in plan.segments])
    assert (plan.healed, plan.stop.repeats) == (healed, healed)
    assert encoded.text.endswith(ends.lstrip("\n") if layout == "psm_line_last" else ends) and "BELOW" in encoded.text


def test_a_prompt_ends_before_a_line_break_that_a_token_would_hold_with_the_indentation() -> None:
    before = "import os\ndef f(x):\n"
    plan = planned(assembler("foretype-3", "spm"), before + "\nBELOW = 1\n", len(before))
    assert plan.healed == "\n"


@pytest.mark.parametrize(
    ("before", "ends", "healed"),
    [
        ("def f(x):\n", "def f(x):", "\n"),
        ("def f(x):\n    ", "def f(x):\n   ", " "),
        ("def f(x):\n    y = 1\n\n", "    y = 1", "\n\n"),
    ],
)
def test_left_to_right_shows_the_text_above_alone_and_ends_where_the_vocabulary_cuts(
    before: str, ends: str, healed: str
) -> None:
    one = assembler("left-to-right", "left_to_right")
    plan = planned(one, before + "\nBELOW = 1\n", len(before))
    encoded = encode_prompt(one.tokenizer, one.grammar, [placed.segment for placed in plan.segments])
    assert encoded.text.endswith(ends) and "BELOW" not in encoded.text
    assert (plan.healed, plan.stop.repeats) == (healed, healed)
    assert encoded.ids[0] == one.tokenizer.control("<|begin_of_text|>")
