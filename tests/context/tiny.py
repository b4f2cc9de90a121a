"""Tiny tokenizers, trained while the tests run, one per kind that a model family uses."""

import json
from functools import lru_cache
from typing import Any

from foretype_context.prompt.templates import grammar
from foretype_context.tokens.tokenizer import Tokenizer, tokenizer_from_bytes
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Inner

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SAMPLE = [
    'def fetch(self, url: str) -> bytes:\n    """Get it."""\n\n    return self.session.get(url)\n\n\n',
    "class Session:\n    def __init__(self, name):\n        self.name = name\n\n    def close(self):\n        pass\n",
    "import os\nimport sys\n\n\nfor i in range(10):\n    print(i, i + 1)\n        x = {'a': [1, 2, 3]}\n)\n\n)\n    \n\t\t\n",
] * 20


def raw(kind: str, controls: frozenset[str]) -> bytes:
    """`kind`: qwen2, gpt2, starcoder and smollm (digits split off, in two ways), sentencepiece (BPE with a space put first), unigram."""
    specials = sorted(controls)
    inner: Any
    if kind == "unigram":
        inner = Inner(models.Unigram())
        inner.pre_tokenizer = pre_tokenizers.Metaspace()
        inner.decoder = decoders.Metaspace()
        trainer: Any = trainers.UnigramTrainer(
            vocab_size=300, special_tokens=["<unk>", *specials], unk_token="<unk>", show_progress=False
        )
    elif kind == "sentencepiece":
        inner = Inner(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n"), "isolated")
        bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", *specials, *bytes_], show_progress=False)
    else:
        inner = Inner(models.BPE())
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind != "qwen2")
        before: dict[str, list[Any]] = {
            "qwen2": [pre_tokenizers.Split(Regex(QWEN2), "isolated")],
            "gpt2": [],
            "starcoder": [pre_tokenizers.Digits(individual_digits=True)],
            "smollm": [pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")],
        }
        inner.pre_tokenizer = pre_tokenizers.Sequence([*before[kind], byte_level]) if before[kind] else byte_level
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=600,
            special_tokens=specials,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    inner.train_from_iterator(SAMPLE, trainer)
    data = json.loads(inner.to_str())
    if kind == "sentencepiece":
        # As Llama's file has it: no pre-tokeniser at all, newlines fall back to bytes.
        data["pre_tokenizer"] = None
        bytes_ids = {f"<0x{byte:02X}>" for byte in range(256)}
        data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] not in bytes_ids]
    return json.dumps(data).encode()


KINDS = {
    "foretype-1": "qwen2",
    "foretype-2": "qwen2",
    "foretype-3": "qwen2",
    "qwen2.5-coder": "qwen2",
    "starcoder": "starcoder",
    "starcoder2": "starcoder",
    "granite-4": "qwen2",
    "codegemma": "sentencepiece",
    "mellum": "gpt2",
    "seed-coder": "qwen2",
    "codellama": "sentencepiece",
    "deepseek-coder": "gpt2",
    "codestral": "sentencepiece",
    "left-to-right": "qwen2",
}


@lru_cache
def tiny(grammar_id: str = "foretype-1", kind: str = "", *, convert: bool = True) -> Tokenizer:
    controls = grammar(grammar_id).controls()
    return tokenizer_from_bytes(raw(kind or KINDS[grammar_id], controls), convert=convert)
