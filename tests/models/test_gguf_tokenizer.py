"""The tokenizer that a GGUF file carries gives the ids of the `tokenizer.json` it was made from."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
from backend.tiny_gguf import byte_level_tokens
from context.tiny import KINDS, raw
from foretype_context.grammars.families import ModelEvidence, detect
from foretype_context.prompt.templates import grammar
from foretype_context.tokens.tokenizer import PROBE, tokenizer_from_bytes
from foretype_models.artifacts import locate
from foretype_models.errors import GgufError
from foretype_models.gguf_tokenizer import tokenizer_of
from gguf_file import add_vocabulary, written
from models.networks import vocabulary, write_base
from tokenizers import Tokenizer

TEXTS = [PROBE, PROBE.upper(), PROBE.replace("\n", "\n    "), "naïve  12345 '''s 漢字\r\n\t\tx", ""]
TYPES = {"normal": 1, "unknown": 2, "control": 3, "user": 4, "unused": 5, "byte": 6}


def write(path: Path, **values: Any) -> Path:
    """A file with metadata alone."""
    writer = gguf.GGUFWriter(path, "llama")
    add_vocabulary(writer, values)
    return written(writer, path, tensors=False)


def as_gguf(path: Path, data: dict[str, Any], pre: str) -> Path:
    """The tokenizer of a `tokenizer.json` in the form of a GGUF file."""
    special = {token["id"]: token for token in data["added_tokens"]}
    by_id = {identity: token for token, identity in data["model"]["vocab"].items()}
    by_id |= {identity: token["content"] for identity, token in special.items()}
    tokens = [by_id.get(identity, f"[PAD{identity}]") for identity in range(max(by_id) + 3)]
    types = [
        TYPES["unused"]
        if identity not in by_id
        else TYPES["control"]
        if identity in special
        else TYPES["byte"]
        if len(token) == 6 and token.startswith("<0x")
        else TYPES["normal"]
        for identity, token in enumerate(tokens)
    ]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
    if data["model"].get("byte_fallback"):
        order = {merge.replace(" ", ""): -float(rank) for rank, merge in reversed(list(enumerate(merges)))}
        scores = [order.get(token, -1e6) for token in tokens]
        unknown = tokens.index("<unk>")
        types[unknown] = TYPES["unknown"]
        return write(
            path, model="llama", tokens=tokens, scores=scores, token_type=types, unknown_token_id=unknown, pre="default"
        )
    return write(path, model="gpt2", pre=pre, tokens=tokens, merges=merges, token_type=types)


@pytest.mark.parametrize(
    ("grammar_id", "kind", "pre"),
    [
        ("qwen2.5-coder", "qwen2", "qwen2"),
        ("starcoder2", "starcoder", "starcoder"),
        ("starcoder2", "starcoder", "smollm"),
        ("deepseek-coder", "gpt2", "gpt-2"),
        ("starcoder2", "starcoder", "mellum2"),
        ("mellum", "gpt2", "mellum"),
        ("codellama", "sentencepiece", ""),
        ("codestral", "sentencepiece", ""),
    ],
)
def test_the_ids_are_those_of_the_file_it_was_made_from(tmp_path: Path, grammar_id: str, kind: str, pre: str) -> None:
    assert kind == KINDS[grammar_id]
    original = raw(kind, grammar(grammar_id).controls())
    expected = tokenizer_from_bytes(original)
    carried = tokenizer_from_bytes(tokenizer_of(as_gguf(tmp_path / "m.gguf", json.loads(original), pre)))
    for text in TEXTS:
        assert carried.encode(text) == expected.encode(text)
        assert carried.decode(carried.encode(text)) == expected.decode(expected.encode(text))
    assert carried.controls() == expected.controls()
    assert {name: carried.control(name) for name in carried.controls()} == {
        name: expected.control(name) for name in expected.controls()
    }
    assert detect(ModelEvidence.of(carried.controls(), pre=pre)).grammar == grammar_id
    assert carried.vocabulary_tokens == expected.vocabulary_tokens
    assert type(carried) is type(expected)  # tiktoken where the original has it


def test_a_text_that_merges_make_is_no_control_token_though_another_family_calls_it_one(tmp_path: Path) -> None:
    """Qwen's vocabulary has `<s>` as text; without it the merges name a token that is not there, and nothing opens."""
    bytes_, _ = byte_level_tokens(257, ("<|fim_prefix|>",))
    tokens = [*bytes_[:257], "<s", "<s>"]
    path = write(
        tmp_path / "m.gguf",
        model="gpt2",
        pre="gpt-2",
        tokens=tokens,
        merges=["< s", "<s >"],
        token_type=[1] * len(tokens),
    )
    carried = tokenizer_from_bytes(tokenizer_of(path))
    assert carried.decode([tokens.index("<s>")]) == b"<s>"
    assert carried.controls() == {"<|fim_prefix|>"}


def test_a_merge_that_is_there_twice_counts_where_it_stands_first(tmp_path: Path) -> None:
    """As in llama.cpp, which the file is made for; `tokenizers` takes the last place."""
    bytes_, _ = byte_level_tokens(257, ("<|fim_prefix|>",))
    tokens = [*bytes_[:257], "ab", "bc", "abc"]
    merges = ["a b", "b c", "ab c", "a b"]
    types = [1] * len(tokens)
    path = write(tmp_path / "m.gguf", model="gpt2", pre="gpt-2", tokens=tokens, merges=merges, token_type=types)
    carried = tokenizer_from_bytes(tokenizer_of(path))
    assert carried.encode("abc") == [tokens.index("abc")]
    assert tokenizer_from_bytes(tokenizer_of(path), convert=False).encode("abc") == [tokens.index("abc")]


def as_sentencepiece_would(spaces: int, lengths: set[int]) -> list[int]:
    """Lengths of the tokens of a run: of all pairs that make a token the leftmost goes first, again and again."""
    run = [1] * spaces
    while True:
        at = next((at for at in range(len(run) - 1) if run[at] + run[at + 1] in lengths), None)
        if at is None:
            return run
        run[at : at + 2] = [run[at] + run[at + 1]]


@pytest.mark.parametrize("lengths", [set(range(2, 17)), {*range(2, 15), 16}, {2, 4, 8, 16}, {2, 3, 4}])
def test_a_run_of_spaces_becomes_what_sentencepiece_makes_of_it(tmp_path: Path, lengths: set[int]) -> None:
    """Their tokens all rank equal there; Mistral's own encoder and ours differed in files with wide gaps."""
    tokens = ["<unk>", "a", "▁", *("▁" * length for length in lengths), *(f"<0x{byte:02X}>" for byte in range(256))]
    scores = [0.0, -1.0, -1e9, *(-1e9 for _ in lengths), *(0.0 for _ in range(256))]
    types = [
        TYPES["unknown"],
        *(TYPES["normal"] for _ in range(2 + len(lengths))),
        *(TYPES["byte"] for _ in range(256)),
    ]
    path = write(tmp_path / "m.gguf", model="llama", tokens=tokens, scores=scores, token_type=types, unknown_token_id=0)
    carried = tokenizer_from_bytes(tokenizer_of(path))
    for spaces in range(1, 70):
        found = [len(carried.decode([id])) for id in carried.encode("a" + " " * spaces)[1:]]
        assert found == as_sentencepiece_would(spaces, lengths), spaces


def test_the_shipped_model_carries_the_tokenizer_that_lies_beside_it() -> None:
    artifact = locate()
    beside = tokenizer_from_bytes(artifact.tokenizer_path.read_bytes())
    carried = tokenizer_from_bytes(tokenizer_of(artifact.path))
    for text in [*TEXTS, Path(__file__).read_text("utf-8")]:
        assert carried.encode(text) == beside.encode(text)
    assert carried.controls() == beside.controls()
    assert carried.cut_rule == beside.cut_rule


def test_controls_at_the_beginning_of_a_vocabulary_keep_their_ids_in_the_library_that_reads_the_file(
    tmp_path: Path,
) -> None:
    """Other engines read it with `tokenizers`, which gave them the ids of the last words."""
    made = Tokenizer.from_buffer(tokenizer_of(write_base(tmp_path / "base.gguf")))
    tokens, _ = vocabulary()
    assert [made.id_to_token(identity) for identity in range(len(tokens))] == tokens
    assert (
        made.decode(made.encode("def f(self):\n    return", add_special_tokens=False).ids) == "def f(self):\n    return"
    )


def test_the_digest_is_the_same_at_each_start() -> None:
    path = locate().path
    assert tokenizer_of(path) == tokenizer_of(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "gpt2", "pre": "viking", "tokens": ["a"], "token_type": [1]}, "pre-tokeniser 'viking' is not known"),
        ({"model": "gpt2", "tokens": ["a"], "token_type": [1]}, "pre-tokeniser None is not known"),
        ({"model": "bert", "tokens": ["a"], "token_type": [1]}, "of kind 'bert'"),
        ({"model": "llama", "tokens": ["a"], "token_type": [1]}, "has no scores"),
        ({"model": "gpt2", "pre": "qwen2"}, "carries no whole tokenizer"),
        ({"model": "gpt2", "pre": "qwen2", "tokens": ["a", "b"], "token_type": [1]}, "carries no whole tokenizer"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_remedy(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "m.gguf", **values)
    with pytest.raises(GgufError, match=message) as caught:
        tokenizer_of(path)
    assert "tokenizer.json beside it" in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_cut_off_inside_its_vocabulary_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", model="gpt2", pre="qwen2", tokens=["abc"] * 50, token_type=[1] * 50)
    path.write_bytes(path.read_bytes()[:-120])
    with pytest.raises(GgufError, match="cut off"):
        tokenizer_of(path)
