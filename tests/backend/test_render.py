import gc

import pytest
from backend.world import TOKENIZER, segment, segments
from foretype_backend.doors.http import fim_segments
from foretype_backend.serving.render import Renderer, Resolved, check_order, resolve
from foretype_context.prompt.segments import STABLE_KINDS, Kind, digest_of
from foretype_context.prompt.templates import GRAMMARS, encode_prompt, grammar
from foretype_wire.errors import InvalidRequestError
from foretype_wire.messages import WireSegment
from foretype_wire.segment_cache import SegmentCache
from hypothesis import given
from hypothesis import strategies as st

FORETYPE = grammar("foretype-1")


def renderer(limit: int = 2048) -> Renderer:
    return Renderer(TOKENIZER, FORETYPE, context_limit_tokens=limit)


TEXTS = st.text("ab\n", max_size=30)
CALLS = st.lists(st.lists(st.tuples(st.sampled_from([Kind.PREFIX, Kind.MIDDLE]), TEXTS), max_size=4), max_size=12)


@given(CALLS)
def test_gateway_and_client_caches_run_by_one_rule(calls: list[list[tuple[Kind, str]]]) -> None:
    """The client's half decides what travels as digest; the gateway's half never misses one, whatever it refuses."""
    sender, receiver, former = SegmentCache(60), SegmentCache(60), Resolved()
    for call in calls:
        wires: list[WireSegment] = []
        for kind, text in call:
            digest = sender.send(kind, text)
            wires.append(segment(kind, digest=digest) if digest is not None else segment(kind, text))
        try:
            former = resolve(receiver, wires, FORETYPE, max_segments=10, former=former)
        except InvalidRequestError:  # out of order or empty: refused, but the cache moved all the same
            pass
        else:
            assert not former.missing and [one.text for one in former.segments] == [text for _, text in call]
        assert receiver.digests() == sender.digests()


def test_missing_digests_are_named_once_in_order() -> None:
    one, two = digest_of("one"), digest_of("two")
    parts = [segment(Kind.PREFIX, digest=digest) for digest in (one, two, one)]
    assert resolve(SegmentCache(), parts, FORETYPE, max_segments=10).missing == [one, two]


def test_what_left_the_cache_is_asked_for_though_the_prompt_before_had_it() -> None:
    cache, text = SegmentCache(), [segment(Kind.PREFIX, "one")]
    resolve(cache, text, FORETYPE, max_segments=10)
    short = [segment(Kind.PREFIX, digest=digest_of("one"))]
    former = resolve(cache, short, FORETYPE, max_segments=10)
    cache.clear()
    assert resolve(cache, short, FORETYPE, max_segments=10, former=former).missing == [digest_of("one")]


def test_the_prompt_before_was_checked_for_its_own_grammar_alone() -> None:
    cache, parts = SegmentCache(), [segment(Kind.PREFIX, "one"), segment(Kind.SUFFIX, "two")]
    former = resolve(cache, parts, FORETYPE, max_segments=10)
    with pytest.raises(InvalidRequestError):
        resolve(cache, parts, grammar("codestral"), max_segments=10, former=former)


def test_volatile_kinds_are_never_cached() -> None:
    cache = SegmentCache()
    resolve(cache, segments(), FORETYPE, max_segments=10)
    assert cache.digests() == [digest_of(s.text or "") for s in segments() if s.kind in STABLE_KINDS]


P, S, T, M, F = Kind.PREFIX, Kind.SUFFIX, Kind.TAIL, Kind.MIDDLE, Kind.FILE


@pytest.mark.parametrize(
    ("id", "good"),
    [
        ("foretype-1", [Kind.REPOSITORY, F, F, Kind.PATH, P, P, S, T, M]),
        ("foretype-1", [S, P]),
        ("foretype-1", [Kind.PATH, S, P, M]),
        ("qwen2.5-coder", [F, Kind.PATH, P, T, S, M]),
        ("codestral", [S, F, Kind.PATH, P]),
        ("codestral", [S, P, M]),
    ],
)
def test_orders_that_layouts_use_are_accepted(id: str, good: list[Kind]) -> None:
    check_order(good, grammar(id))


@pytest.mark.parametrize(
    ("id", "bad", "field"),
    [
        ("foretype-1", [M, P], "segments[1].kind"),
        ("foretype-1", [P, T, S], "segments[2].kind"),
        ("foretype-1", [Kind.PATH, Kind.PATH], "segments[1].kind"),
        ("foretype-1", [P, F], "segments[1].kind"),
        ("codestral", [P, S], "segments[1].kind"),
        ("qwen2.5-coder", [P, S, T], "segments[2].kind"),
        ("left-to-right", [P, S], "segments[1].kind"),
        ("left-to-right", [T, S, P, M], "segments[0].kind"),
    ],
)
def test_other_orders_name_the_segment(id: str, bad: list[Kind], field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_order(bad, grammar(id))
    assert caught.value.field == field


@given(st.permutations([Kind.PATH, P, S, T, M, F]), st.sampled_from(sorted(GRAMMARS)))
def test_whatever_order_passes_can_be_rendered(kinds: list[Kind], id: str) -> None:
    from context.tiny import tiny
    from foretype_context.prompt.segments import Scope, Segment, Source

    try:
        check_order(kinds, grammar(id))
    except InvalidRequestError:
        return
    parts = [Segment(kind=kind, scope=Scope.FILE, source=Source(path="a"), text="x") for kind in kinds]
    assert encode_prompt(tiny(id), grammar(id), parts).ids


async def test_a_prompt_that_fills_the_context_is_refused() -> None:
    parts = fim_segments(FORETYPE, "x = 1\n" * 10, "")
    size = len((await renderer().encode(parts)).ids)
    await renderer(size + 1).encode(parts)
    with pytest.raises(InvalidRequestError) as caught:
        await renderer(size).encode(parts)
    assert caught.value.field == "segments"


async def test_a_long_prompt_is_encoded_off_the_loop_to_the_same_ids() -> None:
    parts = fim_segments(FORETYPE, "value = compute(1)\n" * 5000, "")
    far = await renderer(10**6).encode(parts)
    assert far == renderer(10**6).encode_now(parts)


def test_raw_prompts_parse_control_tokens_and_nothing_else() -> None:
    prompt = renderer().raw_now("<|fim_prefix|>a<|fim_midd|><|fim_middle|>")
    assert prompt.ids[0] == TOKENIZER.control("<|fim_prefix|>")
    assert prompt.ids[-1] == TOKENIZER.control("<|fim_middle|>")
    assert TOKENIZER.decode(prompt.ids) == b"a<|fim_midd|>"


def test_every_control_token_of_the_grammar_ends_a_generation() -> None:
    ends = renderer().end_token_ids
    assert {TOKENIZER.control(token) for token in FORETYPE.end_tokens} <= ends
    assert TOKENIZER.control("<|fim_suffix|>") in ends


async def test_the_collector_has_no_id_of_a_prompt_to_look_at() -> None:
    segments = fim_segments(FORETYPE, "x = 1\n" * 10, "")
    prompts = [
        await renderer().encode(segments),
        await renderer().encode(segments, encoder=renderer().remembering()),
        renderer().raw_now("x = 1"),
    ]
    for prompt in prompts:
        assert len(prompt.ids) > 1
        assert not any(isinstance(one, int) for one in gc.get_referents(prompt.ids))


@pytest.mark.parametrize(
    "text, above, middle",
    [
        ("a\nb\nc\nd", "a\n", "b\nc\nd"),
        ("a\nb\nc\n", "a\n", "b\nc\n"),
        ("a\r\nb\r\nc", "", "a\r\nb\r\nc"),
        ("a", "", "a"),
        ("", "", ""),
    ],
)
def test_who_has_no_session_gets_a_fresh_hole_of_the_family(text: str, above: str, middle: str) -> None:
    def parts(id: str, layout: str) -> dict[Kind, str]:
        return {one.kind: one.text for one in fim_segments(grammar(id), text, "rest\nbelow", layout=layout)}

    for id in ("foretype-1", "foretype-2"):
        grown = parts(id, "psm_growing")
        assert (grown[Kind.PREFIX], grown[Kind.MIDDLE]) == (above, middle)
    for id, layout in (("foretype-2", "psm_line_last"), ("qwen2.5-coder", "psm_growing")):
        fresh = parts(id, layout)
        assert (fresh[Kind.PREFIX] + fresh[Kind.MIDDLE], fresh[Kind.MIDDLE].count("\n")) == (text, 0)


def test_a_grammar_that_sees_nothing_below_gets_no_suffix_from_whom_has_no_session() -> None:
    parts = fim_segments(grammar("left-to-right"), "a\n", "rest\nbelow", typed="b", files=[("x.py", "c\n")])
    assert [(one.kind, one.text) for one in parts] == [(Kind.FILE, "c\n"), (Kind.PATH, ""), (Kind.PREFIX, "a\nb")]
