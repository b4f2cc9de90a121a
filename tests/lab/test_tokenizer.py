import copy
import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from foretype_context.tokens.tokenizer import CutRule, load_tokenizer
from foretype_lab.training import tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

SAMPLES = [
    "def f(x):\n\treturn x  # tab\n",
    "a = 1\r\n\r\n\tb = 2\r\n",
    "s = 'héllo wörld 😀 👩‍👩‍👧 日本語 \u200d'\n",
    "\n\n\n    \n\t \n  x\n",
    "'s 't 're I'll DON'T\n",
    "0123456789 1_000_000 0xFF\n",
    "<|fim_middle|> <|endoftext|> <|file_sep|>",
    "\ufeff\x00\x07é\u0301",
    "",
]


@pytest.fixture(scope="session")
def reference(tokenizer_path: Path) -> Tokenizer:
    made = Tokenizer.from_file(str(tokenizer_path))
    # Without this, text that looks like a control token becomes one: prompt injection by file content.
    made.encode_special_tokens = True
    return made


@pytest.mark.parametrize("text", SAMPLES)
def test_both_libraries_give_the_same_ids_and_the_text_back(
    text: str, reference: Tokenizer, encoding: tiktoken.Encoding
) -> None:
    ids = encoding.encode_ordinary(text)
    assert ids == reference.encode(text, add_special_tokens=False).ids
    assert encoding.decode(ids) == text
    assert all(token < tokenizer.FIRST_SPECIAL for token in ids)


@given(text=st.text(max_size=200) | st.text(alphabet=" \t\r\nab1(_'é😀", max_size=200))
@settings(max_examples=400, deadline=None)
def test_they_agree_on_any_text(text: str, tokenizer_path: Path) -> None:
    reference = _reference(tokenizer_path)
    encoding = _encoding(tokenizer_path)
    assert encoding.encode_ordinary(text) == reference.encode(text, add_special_tokens=False).ids


def test_they_agree_on_real_code(reference: Tokenizer, encoding: tiktoken.Encoding) -> None:
    folder = Path(tokenizer.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        assert encoding.encode_ordinary(text) == reference.encode(text, add_special_tokens=False).ids, path


def test_the_vocabulary_has_its_size_and_the_specials_their_ids(
    reference: Tokenizer, encoding: tiktoken.Encoding
) -> None:
    assert reference.get_vocab_size(with_added_tokens=True) == 16_384
    assert encoding.n_vocab == 16_384
    expected = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>"]
    expected += ["<|file_sep|>", "<|fim_tail|>", "<|end_of_middle|>"]
    assert [reference.token_to_id(token) for token in expected] == list(range(16_375, 16_384))


def test_serving_opens_it_with_exact_cuts_before_lines(tokenizer_path: Path, encoding: tiktoken.Encoding) -> None:
    served = load_tokenizer(tokenizer_path)
    assert served.cut_rule is CutRule.NON_BLANK_LINE
    assert served.control("<|fim_tail|>") == tokenizer.SPECIAL_IDS["<|fim_tail|>"]
    text = "def f():\n    return '<|fim_middle|>'\n"
    assert served.encode(text) == encoding.encode_ordinary(text)


def test_indentation_and_common_words_are_single_tokens(encoding: tiktoken.Encoding) -> None:
    for text in ["    ", "        ", " return", " self", "import", "\n\n", "):\n"]:
        assert len(encoding.encode_ordinary(text)) == 1, text


def _mutations() -> list[Any]:
    def swap_merges(data: dict[str, Any]) -> None:
        merges = data["model"]["merges"]
        merges[5], merges[6] = merges[6], merges[5]

    def move_special(data: dict[str, Any]) -> None:
        first, second = data["added_tokens"][:2]
        first["id"], second["id"] = second["id"], first["id"]

    def hole(data: dict[str, Any]) -> None:
        vocabulary = data["model"]["vocab"]
        vocabulary[next(iter(reversed(vocabulary)))] = 20_000

    return [swap_merges, move_special, hole]


@pytest.mark.parametrize("mutate", _mutations())
def test_a_tokenizer_that_would_convert_wrongly_is_refused(mutate: Any, tokenizer_path: Path) -> None:
    data = json.loads(tokenizer_path.read_text("utf-8"))
    changed = copy.deepcopy(data)
    mutate(changed)
    tokenizer.check_monotone(data)
    with pytest.raises(ValueError):
        tokenizer.check_monotone(changed)


_CACHE: dict[str, Any] = {}


def _reference(path: Path) -> Tokenizer:
    if "reference" not in _CACHE:
        _CACHE["reference"] = Tokenizer.from_file(str(path))
        _CACHE["reference"].encode_special_tokens = True
    return _CACHE["reference"]


def _encoding(path: Path) -> tiktoken.Encoding:
    if "encoding" not in _CACHE:
        _CACHE["encoding"] = tokenizer.to_tiktoken(path)
    return _CACHE["encoding"]
