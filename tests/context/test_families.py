"""Which family a vocabulary is: every control token that would be emitted, nothing guessed."""

import re

import pytest
from foretype_context.grammars.families import (
    ModelEvidence,
    detect,
    families,
    known_controls,
    names_a_chat_model,
    unserved,
)
from foretype_context.grammars.grammar import GRAMMARS

PIPE_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>")
FIM = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>")
GITHUB = ("<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<commit_before>", "<commit_msg>")
QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *PIPE_FIM, "<|repo_name|>", "<|file_sep|>")
GRANITE_4 = ("<|end_of_text|>", *PIPE_FIM, "<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>")
CODEGEMMA = (
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    *PIPE_FIM[:3],
    "<|file_separator|>",
    "<start_of_turn>",
    "<end_of_turn>",
)
STARCODER = ("<|endoftext|>", *FIM, "<filename>", *GITHUB, "<reponame>")
STARCODER_2 = ("<|endoftext|>", *FIM, "<repo_name>", "<file_sep>", *GITHUB[1:4], "<NAME>", "<EMAIL>")
MELLUM = (
    *STARCODER,
    "<system>",
    "</system>",
    "<assistant>",
    "</assistant>",
    "<user>",
    "</user>",
    "<think>",
    "</think>",
)
CODEQWEN = ("<|endoftext|>", *FIM, "<reponame>", "<file_sep>", "<|im_start|>", "<|im_end|>")
LLAMA_3 = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>")
SMOLLM_2 = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>")
TEKKEN = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]")


@pytest.mark.parametrize(
    ("tokens", "family", "grammar"),
    [
        pytest.param(GRANITE_4, "granite-4", "granite-4", id="granite 4 was qwen2.5-coder"),
        pytest.param(CODEGEMMA, "codegemma", "codegemma", id="codegemma was qwen2.5-coder"),
        pytest.param(MELLUM, "mellum", "mellum", id="mellum was starcoder2"),
        pytest.param(STARCODER, "starcoder", "starcoder", id="refact, granite-code were starcoder2"),
        pytest.param(CODEQWEN, None, None, id="codeqwen was starcoder2"),
        pytest.param(TEKKEN, None, None, id="a tekken chat model was codestral"),
        pytest.param(QWEN, "qwen2.5-coder", "qwen2.5-coder", id="qwen"),
        pytest.param((*QWEN, "<think>", "</think>"), "qwen3-coder", "qwen2.5-coder", id="qwen 3"),
        pytest.param(STARCODER_2, "starcoder2", "starcoder2", id="starcoder 2"),
    ],
)
def test_a_vocabulary_is_the_family_all_of_whose_tokens_it_has(
    tokens: tuple[str, ...], family: str | None, grammar: str | None
) -> None:
    found = detect(ModelEvidence.of(tokens))
    assert (found.family, found.grammar) == (family, grammar)
    assert (found.problem() == "") is (grammar is not None)


@pytest.mark.parametrize("family", [one for one in families() if one.detected], ids=lambda one: one.id)
def test_each_family_is_known_by_its_own_tokens_and_ids(family: object) -> None:
    one = next(known for known in families() if known is family)
    tokens = (*GRAMMARS[one.grammar].controls(), *one.marks)
    ids: dict[str, int | None] = {**dict.fromkeys(tokens), **one.ids}
    found = detect(ModelEvidence(controls=ids, pre=one.pre[0] if one.pre else "", pieces=one.pieces))
    assert found.grammar == one.grammar
    assert found.complete and not found.ambiguous
    if one.ids or one.pre:
        assert found.certain
        assert found.family is not None


@pytest.mark.parametrize("id", sorted(GRAMMARS))
def test_without_any_one_of_the_tokens_that_it_emits_it_is_not_that_family(id: str) -> None:
    one = GRAMMARS[id]
    for token in one.needed():
        found = detect(ModelEvidence.of(one.controls() - {token}))
        assert found.grammar != id, token
        if found.grammar is None and found.nearest == id:
            assert token in found.missing
            assert token in found.problem()


def test_an_end_token_that_can_be_done_without_leaves_it_incomplete() -> None:
    found = detect(ModelEvidence.of(set(QWEN) - {"<|im_end|>"}))
    assert (found.grammar, found.complete, found.missing) == ("qwen2.5-coder", False, ("<|im_end|>",))
    assert detect(ModelEvidence.of(QWEN)).complete


def test_what_fits_two_families_is_asked_about_and_what_is_known_of_the_file_decides() -> None:
    both = ("<|endoftext|>", *FIM, "<filename>", "<reponame>")
    found = detect(ModelEvidence.of(both))
    assert (found.family, found.grammar) == (None, None)
    assert set(found.ambiguous) == {"mellum", "starcoder"}
    assert "mellum" in found.problem() and "starcoder" in found.problem() and "--profile" in found.problem()
    assert detect(ModelEvidence.of(both, pre="mellum")).grammar == "mellum"
    assert detect(ModelEvidence.of(both, pre="refact")).family == "refact"
    ids: dict[str, int | None] = dict(zip(both, (0, 1, 2, 3, 4, 5, 18), strict=True))
    assert detect(ModelEvidence(controls=ids)).grammar == "starcoder"
    assert detect(ModelEvidence.of({*STARCODER, *STARCODER_2})).ambiguous == ("starcoder", "starcoder2")
    assert detect(ModelEvidence.of({*QWEN, *CODEGEMMA})).ambiguous == ("codegemma", "qwen2.5-coder")


def test_a_family_that_is_known_and_not_served_says_why() -> None:
    for one in unserved():
        assert len(one.reason) > 20 and one.source
        found = detect(ModelEvidence.of(one.tokens))
        assert (found.family, found.unserved) == (None, one.id)
        assert one.reason in found.problem()
    assert {"aixcoder"} <= {one.id for one in unserved()}
    assert detect(ModelEvidence.of(("<s>", "</s>", "<unk>"))).nearest is None


def test_ids_make_it_certain_and_other_ids_do_not() -> None:
    qwen = next(one for one in families() if one.id == "qwen2.5-coder")
    assert detect(ModelEvidence(controls=dict(qwen.ids))).certain
    moved = {token: at + 1 for token, at in qwen.ids.items()}
    assert not detect(ModelEvidence(controls=moved)).certain
    assert not detect(ModelEvidence.of(qwen.ids)).certain


def test_chat_vocabularies_are_told() -> None:
    qwen3 = detect(ModelEvidence.of((*QWEN, "<think>", "</think>")))
    assert qwen3.chat and "never learned" in qwen3.warning()
    assert not detect(ModelEvidence.of(QWEN)).chat
    assert detect(ModelEvidence.of(QWEN, name="Qwen2.5-Coder-7B-Instruct")).chat
    # Base models have the tokens of a chat too: beside the families that are known to talk, the name alone says it.
    assert not detect(ModelEvidence.of(LLAMA_3)).chat
    assert not detect(ModelEvidence.of(TEKKEN)).chat
    assert detect(ModelEvidence.of(LLAMA_3, name="Llama-3.2-1B-Instruct")).chat


def test_a_vocabulary_without_any_hole_token_is_asked_left_to_right_and_told_so() -> None:
    for tokens in (LLAMA_3, ("<s>", "</s>", "<unk>"), SMOLLM_2, ("<|endoftext|>",)):
        found = detect(ModelEvidence.of(tokens))
        assert (found.grammar, found.problem()) == ("left-to-right", "")
        assert "sees nothing below" in found.warning() and "chat" not in found.warning()
    talks = detect(ModelEvidence.of(SMOLLM_2, name="SmolLM2-135M-Instruct"))
    assert talks.grammar == "left-to-right" and "trained to chat, by its name" in talks.warning()
    for tokens in ((), CODEQWEN, TEKKEN, set(QWEN) - {"<|fim_middle|>"}, ("<|endoftext|>", "<fim_prefix>")):
        found = detect(ModelEvidence.of(tokens))
        assert found.grammar is None and found.problem()


@pytest.mark.parametrize(
    ("name", "chat"),
    [
        ("Qwen2.5-Coder-7B-Instruct-Q8_0", True),
        ("codegemma-7b-it", True),
        ("deepseek-llm-7b-chat", True),
        ("Devstral-Small-2505", True),
        ("Qwen2.5-Coder-1.5B", False),
        ("bit-size-editor", False),
        ("", False),
    ],
)
def test_a_name_says_that_a_model_is_trained_to_talk(name: str, chat: bool) -> None:
    assert names_a_chat_model(name) is chat


def test_a_sentencepiece_family_is_no_byte_level_vocabulary() -> None:
    tokens = GRAMMARS["codestral"].controls()
    assert detect(ModelEvidence.of(tokens, pieces=True)).grammar == "codestral"
    assert detect(ModelEvidence.of(tokens, pieces=False)).grammar is None


def test_every_entry_names_its_source_and_ids_are_of_its_own_tokens() -> None:
    assert len({one.id for one in families()}) == len(families())
    assert {one.id: one.grammar for one in families()}.items() >= {
        ("foretype-1", "foretype-1"),
        ("foretype-2", "foretype-2"),
    }
    for one in families():
        assert one.models and len(one.source) > 10, one.id
        assert all(re.fullmatch(r"▁?<\S+>|\[[A-Z]+\]", token) for token in one.ids), one.id
        assert len(set(one.ids.values())) == len(one.ids)
        if one.ids:
            known = GRAMMARS[one.grammar].controls() | set(one.marks) | known_controls() | {"[MIDDLE]", "<gh_stars>"}
            assert set(one.ids) <= known, one.id
    assert {
        *("qwen2.5-coder", "qwen3-coder", "starcoder", "starcoder2", "refact", "granite-4", "granite-code"),
        *("deepseek-coder", "deepseek-coder-v2", "codellama", "codestral", "codegemma"),
        *("mellum", "mellum2", "seed-coder"),
    } <= {one.id for one in families()}
