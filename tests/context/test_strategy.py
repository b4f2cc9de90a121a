"""Strategies: data decides which snippets a prompt holds; an unknown one is replaced, and said."""

import msgspec
import pytest
from context.tiny import tiny
from foretype_context.prompt.assemble import Assembler, Plan, PlanState
from foretype_context.prompt.profile import Budgets, Profile
from foretype_context.prompt.segments import Kind, Scope
from foretype_context.prompt.sources import Snippet
from foretype_context.prompt.strategy import DEFAULT_STRATEGY, STRATEGIES, Strategy, strategy_named
from foretype_context.syntax.document import Document
from hypothesis import given, settings
from hypothesis import strategies as st

SOURCE = "import shop\n\n\ndef total(order):\n    return sum(order)\n"


def assembler(strategy: str = "default-1", rules: Strategy | None = None, **budgets: int) -> Assembler:
    tokenizer = tiny()
    profile = Profile(
        model="m",
        grammar="foretype-2",
        tokenizer_digest=tokenizer.digest,
        layout="psm_growing",
        strategy=strategy,
        strategy_rules=rules,
        budgets=Budgets(**{"prompt_tokens": 1600, "context_tokens": 600, **budgets}),
    )
    return Assembler(tokenizer, profile, timer=lambda: 0.0)


def found(name: str, *, lines: int = 6, score: float = 0.0, scope: Scope = Scope.SESSION) -> Snippet:
    text = "".join(f"def {name}_{n}(value_{n}):\n" for n in range(lines))
    return Snippet(path=f"{name}.py", text=text, source_name=name, score=score, scope=scope)


def planned(one: Assembler, *snippets: Snippet) -> Plan:
    snapshot = Document("file:///a.py", SOURCE, path="a.py").snapshot()
    return one.plan(PlanState.empty(), snapshot, len(SOURCE), snippets=snippets, now=0.0)[0]


def files_of(plan: Plan) -> list[str]:
    return [placed.segment.source.path for placed in plan.segments if placed.segment.kind is Kind.FILE]


def took_by(name: str) -> int:
    """Tokens that a snippet takes in a prompt, its header included."""
    plan = planned(assembler(), found(name))
    return next(placed.tokens for placed in plan.segments if placed.segment.kind is Kind.FILE)


def test_what_the_imports_name_is_kept_before_edits_and_edits_before_what_was_found() -> None:
    candidates = [found("retrieval", score=9.0), found("recent", score=5.0), found("imports")]
    took = {name: took_by(name) for name in ("imports", "recent", "retrieval")}
    limits = (took["imports"], took["imports"] + took["recent"], sum(took.values()))
    kept = [files_of(planned(assembler(context_tokens=tokens), *candidates)) for tokens in limits]
    assert kept == [["imports.py"], ["imports.py", "recent.py"], ["imports.py", "recent.py", "retrieval.py"]]
    one = assembler(context_tokens=limits[1])
    assert files_of(planned(one, *candidates)) == files_of(planned(one, *candidates[::-1]))


def test_another_strategy_keeps_others_and_says_its_name() -> None:
    candidates = [found("retrieval"), found("imports")]
    plan = planned(assembler("retrieved-first-1", context_tokens=took_by("retrieval")), *candidates)
    assert (files_of(plan), plan.strategy, plan.notes) == (["retrieval.py"], "retrieved-first-1", ())
    assert files_of(planned(assembler("file-only-1"), *candidates)) == []


def test_an_unknown_name_falls_back_and_says_so() -> None:
    plan = planned(assembler("moonshot-7"), found("imports"))
    assert plan.strategy == DEFAULT_STRATEGY.id and files_of(plan) == ["imports.py"]
    assert "moonshot-7" in plan.notes[0] and "default-1" in plan.notes[0]


def test_a_profile_may_carry_a_strategy_that_no_client_knows() -> None:
    rules = Strategy(id="moonshot-7", priorities={"retrieval": 1.0}, snippet_tokens=20)
    profile = Profile(model="m", grammar="foretype-2", tokenizer_digest="", strategy="moonshot-7", strategy_rules=rules)
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(profile), type=Profile)
    assert strategy_named(sent.strategy, sent.strategy_rules) == (rules, "")
    plan = planned(assembler("moonshot-7", rules, context_tokens=50), found("imports"), found("retrieval"))
    assert files_of(plan) == ["retrieval.py"] and not plan.notes
    # Rules of another name do not count.
    assert strategy_named("default-1", rules) == (DEFAULT_STRATEGY, "")


def test_a_snippet_is_cut_to_whole_lines_and_a_pinned_one_is_not() -> None:
    rules = Strategy(id="x", snippet_tokens=40, shares={})
    plan = planned(assembler("x", rules), found("imports", lines=20), found("repository", lines=20))
    texts = {placed.segment.source.path: placed.segment.text for placed in plan.segments}
    assert 0 < texts["imports.py"].count("\n") < 20 and texts["imports.py"].endswith("):\n")
    assert texts["repository.py"].count("\n") == 20
    assert tiny().count(texts["imports.py"]) <= 40


def test_a_source_takes_no_more_than_its_share() -> None:
    rules = Strategy(id="x", shares={"imports": 0.2})
    one = Snippet(path="b.py", text="def other(a):\n", source_name="imports")
    plan = planned(assembler("x", rules), one, found("imports", lines=14))
    assert files_of(plan) == ["b.py"]
    assert [drop.reason for drop in plan.dropped] == ["over the share of imports (120 tokens)"]


def test_what_everybody_shares_is_first_and_may_repeat_the_text_at_the_cursor() -> None:
    shared = Snippet(path="shop", text=SOURCE, source_name="repository", scope=Scope.REPOSITORY)
    plan = planned(assembler(), found("imports"), shared)
    assert files_of(plan) == ["shop", "imports.py"]


def test_a_long_first_line_is_left_out_with_its_reason() -> None:
    rules = Strategy(id="x", snippet_tokens=16)
    plan = planned(assembler("x", rules), Snippet(path="b.py", text="x = " + "1 + " * 80, source_name="recent"))
    assert [drop.reason for drop in plan.dropped] == ["its first line is longer than a snippet may be"]


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_names_are_versioned_and_stand_for_their_own_rules(name: str) -> None:
    assert STRATEGIES[name].id == name and name.rsplit("-", 1)[1].isdigit()
    assert strategy_named(name) == (STRATEGIES[name], "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"context_share": 1.5},
        {"snippet_tokens": 3},
        {"growing_share": 0.9},
        {"places": 400},
        {"priorities": ["imports"]},
    ],
)
def test_rules_out_of_range_name_their_field(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError, match=next(iter(wrong))):
        msgspec.convert({"id": "x", **wrong}, Strategy)


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        Strategy,
        id=st.just("x"),
        context_share=st.floats(0, 1),
        snippet_tokens=st.integers(16, 400),
        echo=st.floats(0, 1),
        double=st.floats(0, 1),
        expired_max=st.integers(0, 4),
        places=st.integers(0, 8),
    ),
    st.lists(
        st.tuples(st.sampled_from(["imports", "recent", "repository", "retrieval", "é\ud800"]), st.integers(0, 40)),
        max_size=8,
    ),
    st.sampled_from([64, 200, 900]),
)
def test_no_strategy_exceeds_a_budget_or_assembles_differently_twice(
    rules: Strategy, wanted: list[tuple[str, int]], tokens: int
) -> None:
    one = assembler("x", rules, prompt_tokens=tokens)
    snippets = [found(name, lines=lines, score=at) for at, (name, lines) in enumerate(wanted)]
    snapshot = Document("file:///a.py", SOURCE, path="a.py").snapshot()
    state = PlanState.empty()
    for kept in (snippets, snippets[::2]):
        plan, after = one.plan(state, snapshot, 20, snippets=kept, now=0.0)
        assert (plan, after) == one.plan(state, snapshot, 20, snippets=kept, now=0.0)
        assert plan.prompt_tokens <= plan.budget_tokens
        context = sum(placed.tokens for placed in plan.segments if placed.segment.kind is Kind.FILE)
        assert context <= tokens * rules.context_share
        state = after
