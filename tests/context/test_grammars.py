"""A grammar is data: what is taken over the wire, what is refused, and the bytes that each family gets."""

from typing import Any

import msgspec
import pytest
from context.tiny import raw, tiny
from foretype_context.errors import (
    GrammarError,
    ProfileError,
    SegmentOrderError,
    UnknownControlError,
    UnknownGrammarError,
)
from foretype_context.grammars.grammar import GRAMMARS, MAX_BYTES, announced, described
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.profile import Profile
from foretype_context.prompt.segments import Kind, Scope, Segment, Source
from foretype_context.prompt.templates import Control, Text, encode_prompt, grammar, render
from foretype_context.syntax.document import Document
from foretype_context.tokens.tokenizer import tokenizer_from_bytes

NEW: dict[str, Any] = {
    "id": "martian-1",
    "start": [{"control": "<|born|>"}],
    "file": [{"control": "<|other|>"}, "{path}:\n"],
    "current": ["at {path}\n"],
    "order": ["context", "suffix", "prefix"],
    "fim_prefix": "<|above|>",
    "fim_suffix": "<|below|>",
    "fim_middle": "<|here|>",
    "layouts": ["spm_plain", "spm_plain_growing"],
    "end_tokens": ["<|over|>"],
}

PLAIN_TEXT: dict[str, Any] = {
    "format": 2,
    "order": ["context", "prefix", "suffix"],
    "fim_prefix": "",
    "fim_suffix": "",
    "fim_middle": "",
    "layouts": ["left_to_right"],
}


def seg(kind: Kind, text: str = "", path: str = "") -> Segment:
    return Segment(kind=kind, scope=Scope.FILE, source=Source(path=path), text=text)


CONTEXT = [seg(Kind.REPOSITORY, "shop"), seg(Kind.FILE, "x = 1\n", "lib/a.py"), seg(Kind.PATH, "", "app.py")]
BELOW = [seg(Kind.TAIL, ")\n"), seg(Kind.SUFFIX, "below\n")]
PSM = [*CONTEXT, seg(Kind.PREFIX, "above\n"), *BELOW, seg(Kind.MIDDLE, "typed")]
PLAIN = [*CONTEXT, *BELOW, seg(Kind.PREFIX, "above\n"), seg(Kind.MIDDLE, "typed")]
FIRST = [*BELOW, *CONTEXT, seg(Kind.PREFIX, "above\n"), seg(Kind.MIDDLE, "typed")]


def shown(id: str, segments: list[Segment]) -> str:
    return "".join(piece.token if isinstance(piece, Control) else piece.text for piece in render(grammar(id), segments))


@pytest.mark.parametrize(
    ("id", "segments", "wanted"),
    [
        (
            "starcoder",
            PSM,
            "<reponame>shop<filename>lib/a.py\nx = 1\n<fim_prefix><filename>app.py\nabove\n<fim_suffix>)\nbelow\n<fim_middle>typed",
        ),
        ("granite-4", PSM, "<|fim_prefix|># lib/a.py\nx = 1\nabove\n<|fim_suffix|>)\nbelow\n<|fim_middle|>typed"),
        ("codegemma", PSM, "<bos><|fim_prefix|># lib/a.py\nx = 1\nabove\n<|fim_suffix|>)\nbelow\n<|fim_middle|>typed"),
        (
            "mellum",
            PLAIN,
            "<reponame>shop<filename>lib/a.py\nx = 1\n<filename>app.py\n<fim_suffix>)\nbelow\n<fim_prefix>above\n<fim_middle>typed",
        ),
        (
            "seed-coder",
            FIRST,
            "<[begin▁of▁sentence]><[fim-suffix]>)\nbelow\n<[fim-prefix]># lib/a.py\nx = 1\nabove\n<[fim-middle]>typed",
        ),
        ("mellum", [seg(Kind.MIDDLE)], "<fim_suffix><fim_prefix><fim_middle>"),
        ("seed-coder", CONTEXT[2:], "<[begin▁of▁sentence]><[fim-suffix]><[fim-prefix]><[fim-middle]>"),
    ],
)
def test_each_family_gets_its_bytes(id: str, segments: list[Segment], wanted: str) -> None:
    assert shown(id, segments) == wanted


@pytest.mark.parametrize("id", ["mellum", "seed-coder"])
def test_a_family_that_shows_the_suffix_first_takes_no_other_order(id: str) -> None:
    with pytest.raises(SegmentOrderError, match="suffix first"):
        render(grammar(id), [seg(Kind.PREFIX, "a\n"), seg(Kind.SUFFIX, "b\n")])
    with pytest.raises(SegmentOrderError):
        render(grammar("mellum"), [seg(Kind.SUFFIX, "b\n"), seg(Kind.FILE, "x\n", "a.py")])


@pytest.mark.parametrize(
    ("id", "segments", "with_space"),
    [
        ("codestral", FIRST, ["+++++ lib/a.py\nx = 1\n"]),
        ("codestral", [seg(Kind.SUFFIX, "s"), seg(Kind.PREFIX, "def f("), seg(Kind.MIDDLE, "a")], ["def f("]),
        ("codestral", [seg(Kind.SUFFIX, "s"), seg(Kind.PREFIX, ""), seg(Kind.MIDDLE, "a")], ["a"]),
        ("codellama", PSM, ["# lib/a.py\nx = 1\n"]),
        ("codellama", [seg(Kind.PREFIX, ""), seg(Kind.SUFFIX, "s"), seg(Kind.MIDDLE, "a")], []),
        ("codegemma", PSM, []),
        ("starcoder2", PSM, []),
    ],
)
def test_the_first_text_behind_the_prefix_token_has_the_space_of_sentencepiece(
    id: str, segments: list[Segment], with_space: list[str]
) -> None:
    pieces = render(grammar(id), segments)
    assert [piece.text for piece in pieces if isinstance(piece, Text) and piece.dummy_space] == with_space
    tokenizer = tiny(id)
    wanted: list[int] = []
    for piece in pieces:
        if isinstance(piece, Control):
            wanted.append(tokenizer.control(piece.token))
        else:
            wanted += tokenizer.encode(" " * piece.dummy_space + piece.text)
    encoded = encode_prompt(tokenizer, grammar(id), segments)
    assert encoded.ids.tolist() == wanted
    assert " def f(" not in encoded.text  # servers that take text add it


@pytest.mark.parametrize("id", ["starcoder", "starcoder2", "deepseek-coder", "codestral", "granite-4", "mellum"])
def test_a_header_and_an_indented_text_behind_it_are_encoded_as_one(id: str) -> None:
    """GPT-2's pattern takes a newline and the blanks behind it together: apart they would be other ids."""
    one, tokenizer = grammar(id), tiny(id)
    parts = [seg(Kind.FILE, "        a = 1\n", "b.py"), seg(Kind.PATH, "", "app.py")]
    above, below = seg(Kind.PREFIX, "    return x\n"), seg(Kind.SUFFIX, "below\n")
    segments = {
        "prefix": [*parts, above, below, seg(Kind.MIDDLE, "t")],
        "suffix": [below, *parts, above, seg(Kind.MIDDLE, "t")],
        "context": [*parts, below, above, seg(Kind.MIDDLE, "t")],
    }["suffix" if one.suffix_first else "context" if one.plain else "prefix"]
    wanted: list[int] = []
    text, space = "", False
    for piece in [*render(one, segments), Control(one.end_tokens[0])]:
        if isinstance(piece, Text):
            space = space or piece.dummy_space
            text += piece.text
        else:
            wanted += [*tokenizer.encode(" " * space + text), tokenizer.control(piece.token)]
            text, space = "", False
    assert encode_prompt(tokenizer, one, segments).ids.tolist() == wanted[:-1]


def test_qwen_stops_on_what_its_example_stops_on() -> None:
    assert {"<|endoftext|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>"} < set(
        grammar("qwen2.5-coder").end_tokens
    )
    assert "<fim_prefix>" in grammar("starcoder2").end_tokens
    assert grammar("codestral").stops == ("\n+++++ ",)


def test_a_model_without_holes_is_begun_as_its_vocabulary_begins_a_text_and_shown_nothing_below() -> None:
    one = grammar("left-to-right")
    assert one.for_vocabulary({"</s>", "<s>", "<unk>"}).start == (Control("<s>"),)
    assert one.for_vocabulary({"<|im_start|>", "<|im_end|>", "<|endoftext|>"}).start == (Control("<|endoftext|>"),)
    with pytest.raises(UnknownControlError):
        one.for_vocabulary({"<|fim_pad|>"})
    served = one.for_vocabulary({"<s>", "</s>"})
    assert served.needed() == {"<s>"} and not served.sees_below
    assert served.for_vocabulary(()) is served
    pieces = render(served, [*CONTEXT, seg(Kind.PREFIX, "above\n"), seg(Kind.MIDDLE, "typed")])
    assert pieces[0] == Control("<s>")
    assert "".join(piece.text for piece in pieces if isinstance(piece, Text)) == "# lib/a.py\nx = 1\nabove\ntyped"
    for below in BELOW:
        with pytest.raises(SegmentOrderError, match="nothing below the cursor"):
            render(served, [seg(Kind.PREFIX, "above\n"), below])


@pytest.mark.parametrize("id", list(GRAMMARS))
def test_a_grammar_survives_the_wire(id: str) -> None:
    rules = msgspec.to_builtins(GRAMMARS[id])
    assert described(msgspec.json.decode(msgspec.json.encode(rules))) == GRAMMARS[id]
    assert described(msgspec.msgpack.decode(msgspec.msgpack.encode(rules))) == GRAMMARS[id]
    assert len(msgspec.json.encode(rules)) < MAX_BYTES / 4


def test_a_client_makes_prompts_for_a_family_that_it_has_never_heard_of() -> None:
    one = described(NEW)
    tokenizer = tokenizer_from_bytes(raw("gpt2", one.controls()))
    with pytest.raises(UnknownGrammarError, match="martian-1"):
        announced("martian-1")
    profile = Profile(
        model="m", grammar="martian-1", tokenizer_digest=tokenizer.digest, layout="spm_plain", grammar_rules=NEW
    )
    assembler = Assembler(tokenizer, profile)
    text = "def f(x):\n    return x\n"
    snapshot = Document("file:///a.py", text, path="a.py", language="python").snapshot()
    plan, _ = assembler.plan(PlanState.empty(), snapshot, text.index("return") + 3, now=0.0)
    encoded = encode_prompt(tokenizer, one, [placed.segment for placed in plan.segments])
    assert encoded.text == "at a.py\n<|below|>urn x\n<|above|>def f(x):\n<|here|>    ret"
    assert encoded.ids[0] == tokenizer.control("<|born|>")
    assert plan.prompt_tokens == len(encoded.ids)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"format": 4}, r"grammar\.format: 4 .*update foretype"),
        ({"fim_prefix": "", "fim_suffix": "", "fim_middle": ""}, r"grammar\.format: .* since 2"),
        ({"format": 2, "fim_prefix": "", "fim_suffix": ""}, r"grammar\.fim_suffix: is missing"),
        ({"format": 2, "fim_prefix": "", "fim_suffix": "", "fim_middle": ""}, r"grammar\.order"),
        ({**PLAIN_TEXT, "layouts": ["spm"]}, r"grammar\.layouts: spm do not go with prompts without a suffix"),
        ({"layouts": ["left_to_right"]}, r"grammar\.layouts: left_to_right"),
        ({"format": "1"}, r"grammar\.format"),
        ({"format": True, "id": "X"}, r"grammar\.id"),
        ({"language": "lua"}, r"grammar: .*unknown field `language`"),
        ({"id": "../../etc"}, r"grammar\.id"),
        ({"fim_prefix": ""}, r"grammar\.fim_prefix"),
        ({"fim_prefix": "two words"}, r"grammar\.fim_prefix"),
        ({"fim_prefix": "<" + "x" * 200}, r"grammar\.fim_prefix"),
        ({"fim_prefix": "<|below|>"}, r"grammar\.fim_prefix: .*differ"),
        ({"fim_middle": None}, r"grammar\.fim_middle"),
        (
            {"fim_middle": "", "order": ["context", "prefix", "suffix"], "layouts": ["psm_classic"]},
            r"fim_middle: is mis",
        ),
        ({"order": ["prefix", "context", "suffix"]}, r"grammar\.order"),
        ({"order": ["context", "prefix", "suffix"]}, r"grammar\.layouts: spm_plain"),
        ({"layouts": ["psm_growing"]}, r"grammar\.layouts: psm_growing"),
        ({"fim_middle": "", "layouts": ["spm_plain"]}, r"grammar\.layouts: spm_plain"),
        ({"layouts": []}, r"grammar\.layouts"),
        ({"tail": "<|tail|>"}, r"grammar\.tail"),
        ({"tail_lines": 3}, r"grammar\.tail_lines"),
        ({"tail_lines": 99}, r"grammar\.tail_lines"),
        ({"end_tokens": []}, r"grammar\.end_tokens"),
        ({"end_tokens": [f"<|{at}|>" for at in range(40)]}, r"grammar\.end_tokens"),
        ({"file": ["{path}{path}"]}, r"grammar\.file"),
        ({"file": ["{name}"]}, r"grammar\.file"),
        ({"repository": ["{path}"]}, r"grammar\.repository"),
        ({"current": ["<|here|>{path}\n"]}, r"grammar\.current: has a control token as text"),
        ({"current": ["\x00{path}\n"]}, r"grammar\.current: has a control character"),
        ({"current": [{"control": "<|x|>", "also": 1}]}, r"grammar\.current"),
        ({"file": ["x"] * 9}, r"grammar\.file"),
        ({"file": ["x" * 121]}, r"grammar\.file"),
        ({"stops": ["x" * 121]}, r"grammar\.stops"),
        ({"instead": ["x"] * 17}, r"grammar\.instead"),
        ({"start": "<s>"}, r"grammar\.start"),
    ],
)
def test_what_is_not_known_or_not_safe_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(GrammarError, match=field):
        described(NEW | changes)


def test_nonsense_and_too_much_are_refused() -> None:
    others: list[object] = [None, [], "grammar", 3]
    for nonsense in others:
        with pytest.raises(GrammarError, match="no table"):
            described(nonsense)
    nested: Any = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(GrammarError):
        described(NEW | {"file": nested})
    big = {f"end-{at}": "x" * 100 for at in range(100)}
    with pytest.raises(GrammarError):
        described(NEW | big)
    with pytest.raises(GrammarError, match="fim_prefix"):
        described({key: value for key, value in NEW.items() if key != "fim_prefix"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grammar_rules": NEW | {"format": 7}}, r"grammar_rules: grammar\.format: 7"),
        ({"grammar_rules": NEW | {"id": "venus-1"}}, r"grammar_rules: grammar\.id: 'venus-1'"),
        ({"layout": "spiral"}, r"layout: 'spiral' is not one of spm_plain"),
        (
            {"layout": "spiral", "grammar_rules": NEW | {"layouts": ["spiral"]}},
            r"layout: 'spiral' is not known here; update",
        ),
        ({"grammar_rules": NEW | {"fim_middle": "<|elsewhere|>"}}, r"grammar: .*<\|elsewhere\|>"),
        ({"grammar_rules": NEW | {"end_tokens": ["<|done|>"]}}, r"grammar: .*<\|done\|>"),
    ],
)
def test_a_profile_that_cannot_be_used_is_told_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    tokenizer = tokenizer_from_bytes(raw("gpt2", described(NEW).controls()))
    fields: dict[str, Any] = {"layout": "spm_plain", "grammar_rules": NEW} | changes
    with pytest.raises(ProfileError, match=words):
        Assembler(tokenizer, Profile(model="m", grammar="martian-1", tokenizer_digest="", **fields))


def test_an_end_token_that_can_be_done_without_may_be_missing() -> None:
    rules = NEW | {"end_tokens": ["<|over|>", "<|and_out|>"]}
    tokenizer = tokenizer_from_bytes(raw("gpt2", described(NEW).controls()))
    profile = Profile(model="m", grammar="martian-1", tokenizer_digest="", layout="spm_plain", grammar_rules=rules)
    assert Assembler(tokenizer, profile).grammar.end_tokens == ("<|over|>", "<|and_out|>")


def test_an_older_client_reads_a_profile_that_describes_its_grammar_and_a_newer_one_that_does_not() -> None:
    class Older(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="profile"):
        model: str
        grammar: str
        tokenizer_digest: str

    sent = msgspec.msgpack.encode(Profile(model="m", grammar="martian-1", tokenizer_digest="0", grammar_rules=NEW))
    assert msgspec.msgpack.decode(sent, type=Older).grammar == "martian-1"
    before = msgspec.msgpack.encode(Older(model="m", grammar="starcoder2", tokenizer_digest="0"))
    assert msgspec.msgpack.decode(before, type=Profile).grammar_rules is None
    assert announced("starcoder2") is grammar("starcoder2")
