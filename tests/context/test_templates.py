import re
from pathlib import Path

import pytest
from context.tiny import tiny
from foretype_context.errors import SegmentOrderError, UnknownControlError, UnknownGrammarError
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_context.prompt.templates import (
    GRAMMARS,
    Control,
    PromptEncoder,
    Text,
    count_prompt,
    encode_prompt,
    grammar,
    render,
)
from foretype_context.tokens.tokenizer import load_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

SHIPPED = Path(__file__).parents[2] / "models/foretype_models/artifacts/tokenizer.json"


def seg(kind: Kind, text: str = "", path: str = "") -> Segment:
    return Segment(kind=kind, scope=Scope.FILE, source=Source(path=path), text=text)


CONTEXT = [seg(Kind.REPOSITORY, "shop"), seg(Kind.FILE, "x = 1\n", "lib/a.py"), seg(Kind.PATH, "", "app.py")]
HOLE = [seg(Kind.PREFIX, "above\n"), seg(Kind.SUFFIX, "below\n"), seg(Kind.TAIL, ")"), seg(Kind.MIDDLE, "typed")]
LLAMA = [seg(Kind.PREFIX, "above\n"), seg(Kind.TAIL, ")\n"), seg(Kind.SUFFIX, "below\n"), seg(Kind.MIDDLE, "typed")]
SPM = [seg(Kind.SUFFIX, "below\n"), seg(Kind.PREFIX, "above\n"), seg(Kind.MIDDLE, "typed")]


def shown(grammar_id: str, segments: list[Segment]) -> str:
    return "".join(p.token if isinstance(p, Control) else p.text for p in render(grammar(grammar_id), segments))


@pytest.mark.parametrize("id", GRAMMARS)
def test_a_path_with_braces_is_shown_as_it_is(id: str) -> None:
    def told(path: str) -> str:
        return shown(id, [seg(Kind.PATH, "", path), seg(Kind.PREFIX, "above\n"), seg(Kind.MIDDLE, "typed")])

    path = "templates/{{name}}/{path}.ts"
    assert told(path) == told("app.py").replace("app.py", path)


def test_ours_byte_for_byte() -> None:
    head = "<|repo_name|>shop\n<|file_sep|>lib/a.py\nx = 1\n<|file_sep|>app.py\n<|fim_prefix|>"
    assert shown("foretype-1", [*CONTEXT, *HOLE]) == (
        head + "above\n<|fim_suffix|>below\n<|fim_tail|>)<|fim_middle|>typed"
    )
    assert shown("foretype-1", [*CONTEXT, *SPM]) == head + "<|fim_suffix|>below\n<|fim_middle|>above\ntyped"
    assert shown("foretype-1", [seg(Kind.SUFFIX, "s"), seg(Kind.TAIL), seg(Kind.MIDDLE)]) == (
        "<|fim_prefix|><|fim_suffix|>s<|fim_middle|>"
    )


def test_qwen_as_its_readme_has_it() -> None:
    assert shown("qwen2.5-coder", [*CONTEXT, *LLAMA]) == (
        "<|repo_name|>shop\n<|file_sep|>lib/a.py\nx = 1\n<|file_sep|>app.py\n"
        "<|fim_prefix|>above\n<|fim_suffix|>)\nbelow\n<|fim_middle|>typed"
    )


def test_starcoder_has_its_path_behind_the_prefix_token() -> None:
    assert shown("starcoder2", [*CONTEXT, *LLAMA]) == (
        "<repo_name>shop<file_sep>lib/a.py\nx = 1\n<file_sep><fim_prefix>app.py\n"
        "above\n<fim_suffix>)\nbelow\n<fim_middle>typed"
    )


def test_code_llama_has_context_inside_the_prefix() -> None:
    assert shown("codellama", [*CONTEXT, *LLAMA]) == "<s>▁<PRE># lib/a.py\nx = 1\nabove\n▁<SUF>)\nbelow\n▁<MID>typed"


def test_deepseek_names_files_by_a_hash() -> None:
    assert shown("deepseek-coder", [*CONTEXT, *LLAMA]) == (
        "<｜begin▁of▁sentence｜><｜fim▁begin｜>#lib/a.py\nx = 1\n#app.py\n"
        "above\n<｜fim▁hole｜>)\nbelow\n<｜fim▁end｜>typed"
    )


def test_codestral_has_its_suffix_first() -> None:
    assert shown("codestral", [SPM[0], *CONTEXT, *SPM[1:]]) == (
        "<s>[SUFFIX]below\n[PREFIX]+++++ lib/a.py\nx = 1\n+++++ app.py\nabove\ntyped"
    )
    with pytest.raises(SegmentOrderError, match="suffix first"):
        render(grammar("codestral"), HOLE)


def test_context_behind_the_hole_is_refused() -> None:
    with pytest.raises(SegmentOrderError, match="before the hole"):
        render(grammar("foretype-1"), [seg(Kind.SUFFIX, "s"), seg(Kind.FILE, "x\n", "a")])
    with pytest.raises(SegmentOrderError):
        render(grammar("foretype-1"), [seg(Kind.MIDDLE, "m"), seg(Kind.SUFFIX, "s")])


KINDS = st.sampled_from([Kind.PREFIX, Kind.FILE, Kind.PATH, Kind.REPOSITORY])
SEGMENTS = st.lists(
    st.builds(seg, KINDS, st.sampled_from(["", "x = 1\n", "def f():\n    pass\n"]), st.just("p.py")), max_size=6
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(GRAMMARS)), SEGMENTS, st.booleans())
def test_ranges_cover_all_ids_and_equal_the_counted_ones(
    grammar_id: str, segments: list[Segment], middle: bool
) -> None:
    family, tokenizer = grammar(grammar_id), tiny(grammar_id)
    if middle:
        segments = [*segments, seg(Kind.MIDDLE, "typed")]
    try:
        encoded = encode_prompt(tokenizer, family, segments)
    except SegmentOrderError:
        assert family.plain and not family.suffix_first  # context behind a prefix that has begun
        return
    assert encoded.ranges == count_prompt(tokenizer, family, segments)
    at = 0
    for start, end in encoded.ranges:
        assert start == at and end >= start
        at = end
    assert at == (len(encoded.ids) if segments else 0)


def test_the_text_of_a_prompt_leaves_the_start_token_to_the_server() -> None:
    assert (
        encode_prompt(tiny("codellama"), grammar("codellama"), LLAMA).text == " <PRE>above\n <SUF>)\nbelow\n <MID>typed"
    )


def test_source_that_looks_like_a_token_stays_text() -> None:
    tokenizer, family = tiny(), grammar("foretype-1")
    encoded = encode_prompt(
        tokenizer, family, [seg(Kind.PREFIX, "<|fim_middle|>\n"), seg(Kind.MIDDLE, "<|endoftext|>")]
    )
    assert encoded.ids.count(tokenizer.control("<|fim_middle|>")) == 1
    assert tokenizer.control("<|endoftext|>") not in encoded.ids


@pytest.mark.parametrize("grammar_id", list(GRAMMARS))
def test_every_token_of_a_grammar_is_one_id(grammar_id: str) -> None:
    family, tokenizer = grammar(grammar_id), tiny(grammar_id)
    ids = {tokenizer.control(token) for token in family.controls()}
    assert len(ids) == len(family.controls())
    assert set(family.end_tokens) <= family.controls()


def test_no_two_tokens_of_the_table_run_into_one() -> None:
    """A comma that is missing between two of them would make one that no tokenizer has, and nothing would stop."""
    for family in GRAMMARS.values():
        for token in family.controls():
            assert re.fullmatch(r"▁?<[^<>]+>|\[[A-Z]+\]", token), token
    assert grammar("codellama").end_tokens == ("▁<EOT>", "</s>")
    assert set(grammar("foretype-1").controls()) <= load_tokenizer(SHIPPED).controls()


def test_an_unknown_family_is_told() -> None:
    with pytest.raises(UnknownGrammarError, match="foretype-1"):
        grammar("nope")
    with pytest.raises(UnknownControlError):
        encode_prompt(tiny("codellama"), grammar("foretype-1"), HOLE)


def test_pieces_know_their_segments() -> None:
    pieces = render(grammar("foretype-1"), [*CONTEXT, *HOLE])
    assert [piece.segment_index for piece in pieces if isinstance(piece, Text)] == [
        0,
        1,
        2,
        3,
        4,
        5,
        6,
    ]  # a header and its text are one


@settings(deadline=None)
@given(
    st.sampled_from(sorted(GRAMMARS)),
    st.lists(
        st.lists(st.tuples(st.sampled_from(list(Kind)), st.sampled_from(["", "a", "b\n", "ü"]), st.sampled_from("pq"))),
        min_size=1,
        max_size=6,
    ),
)
def test_an_encoder_that_remembers_gives_what_one_gives_that_does_not(
    id: str, prompts: list[list[tuple[Kind, str, str]]]
) -> None:
    remembering = PromptEncoder(tiny(id), grammar(id))
    for prompt in prompts:
        segments = [seg(kind, text, path) for kind, text, path in prompt]
        try:
            wanted = encode_prompt(tiny(id), grammar(id), segments)
        except SegmentOrderError:
            with pytest.raises(SegmentOrderError):
                remembering.encode(segments)
        else:
            assert remembering.encode(segments) == wanted


def test_an_encoder_that_remembers_encodes_what_is_new_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, encoded = tiny("foretype-1"), list[str]()
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda text: encoded.append(text) or encode(text))
    remembering = PromptEncoder(tokenizer, grammar("foretype-1"))
    above, below = seg(Kind.PREFIX, "a\n"), seg(Kind.SUFFIX, "z\n")
    for typed in ("b", "bc", "bcd"):
        remembering.encode([above, below, seg(Kind.MIDDLE, typed)])
    assert encoded == ["a\n", "z\n", "b", "bc", "bcd"]
