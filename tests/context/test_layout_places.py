"""A file's earlier places: who comes back finds the prompt that is cached, and nothing stale in it."""

from context.tiny import tiny
from foretype_context.prompt.assemble import Assembler, Plan, PlanState
from foretype_context.prompt.profile import Budgets, Profile
from foretype_context.prompt.segments import Kind
from foretype_context.prompt.templates import encode_prompt
from foretype_context.syntax.document import Document, Edit

SOURCE = "".join(f"def function_{n}(value):\n    return value * {n} + offset_{n}\n\n\n" for n in range(40))


def assembler(layout: str = "psm_growing", **budgets: int) -> Assembler:
    tokenizer = tiny("foretype-1")
    profile = Profile(
        model="m",
        grammar="foretype-1",
        tokenizer_digest=tokenizer.digest,
        layout=layout,
        budgets=Budgets(**{"prompt_tokens": 4000, "suffix_tokens": 300, **budgets}),
    )
    return Assembler(tokenizer, profile, timer=lambda: 0.0)


def opened(text: str = SOURCE) -> Document:
    return Document("file:///a.py", text, language="plaintext", path="a.py")


def text_of(plan: Plan, kind: Kind) -> str:
    return "".join(placed.segment.text for placed in plan.segments if placed.segment.kind is kind)


def ids_of(one: Assembler, plan: Plan) -> list[int]:
    return encode_prompt(one.tokenizer, one.grammar, [placed.segment for placed in plan.segments]).ids


def shared(a: list[int], b: list[int]) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def grown(one: Assembler, document: Document, at: int, text: str) -> tuple[Plan, PlanState, int]:
    """Plans at `at`, types `text` there, plans behind it."""
    _, state = one.plan(PlanState.empty(), document.snapshot(), at, now=0.0)
    document.apply([Edit(at, at, text)], document.version + 1)
    plan, state = one.plan(state, document.snapshot(), at + len(text), now=1.0)
    assert plan.middle.endswith(text)
    return plan, state, at + len(text)


def test_coming_back_to_a_grown_hole_appends_again() -> None:
    one, document = assembler(), opened()
    before, state, at = grown(one, document, SOURCE.index("\n\n\ndef function_10"), "\n    one = 1\n    two = 2")
    far = document.text.index("return value * 35")
    away, state = one.plan(state, document.snapshot(), far, now=2.0)
    assert shared(ids_of(one, before), ids_of(one, away)) < away.prompt_tokens - 20
    document.apply([Edit(far, far, "x = 1\n    ")], document.version + 1)
    _, state = one.plan(state, document.snapshot(), far + 10, now=3.0)
    back, _ = one.plan(state, document.snapshot(), at, now=4.0)
    assert ids_of(one, back) == ids_of(one, before)


def test_a_small_prompt_holds_text_in_the_place_of_a_middle_that_may_grow() -> None:
    for layout in ("psm_classic", "spm"):
        one, document = assembler(layout, prompt_tokens=100, suffix_tokens=10, context_tokens=0), opened()
        plan, _ = one.plan(PlanState.empty(), document.snapshot(), SOURCE.index("value * 20"), now=0.0)
        assert plan.prompt_tokens > 60, layout


def test_a_suffix_that_changed_meanwhile_is_shown_as_it_is_now() -> None:
    one, document = assembler(), opened()
    _, state, at = grown(one, document, SOURCE.index("\n\n\ndef function_10"), "\n    one = 1")
    near = document.text.index("return value * 13")
    _, state = one.plan(state, document.snapshot(), near, now=2.0)
    # As many characters go as come: the count of what stands below tells nothing.
    document.apply([Edit(near, near + len("return value"), "yield  value")], document.version + 1)
    _, state = one.plan(state, document.snapshot(), near, now=2.5)
    back, _ = one.plan(state, document.snapshot(), at, now=3.0)
    assert "yield  value * 13" in text_of(back, Kind.SUFFIX) and not back.frozen_spans


def test_a_pause_moves_no_hole() -> None:
    one, document = assembler(), opened()
    before, state, at = grown(one, document, SOURCE.index("\n\n\ndef function_10"), "\n    one = 1\n    two = 2")
    document.apply([Edit(at, at, "\n")], document.version + 1)
    after, _ = one.plan(state, document.snapshot(), at + 1, now=600.0)
    assert after.middle == before.middle + "\n"
    assert shared(ids_of(one, before), ids_of(one, after)) >= before.prompt_tokens - 1


def test_a_line_added_above_the_window_keeps_the_hole() -> None:
    one, document = assembler(prompt_tokens=900), opened()
    before, state, at = grown(one, document, SOURCE.index("\n\n\ndef function_30"), "\n    one = 1\n    two = 2")
    assert not text_of(before, Kind.PREFIX).startswith("def function_0")
    document.apply([Edit(0, 0, "import os\n")], document.version + 1)
    after, _ = one.plan(state, document.snapshot(), at + 10, now=2.0)
    assert ids_of(one, after) == ids_of(one, before)


def test_memories_of_a_file_are_few_and_hold_no_memories_of_their_own() -> None:
    one, document = assembler(), opened()
    state = PlanState.empty()
    for number in range(0, 40, 2):
        _, state = one.plan(state, document.snapshot(), SOURCE.index(f"return value * {number} "), now=number)
    memory = state.files[document.uri]
    assert 1 <= len(memory.earlier) <= 4
    assert all(not place.earlier for place in memory.earlier)
    assert len({(place.above, place.below) for place in (memory, *memory.earlier)}) == 1 + len(memory.earlier)
