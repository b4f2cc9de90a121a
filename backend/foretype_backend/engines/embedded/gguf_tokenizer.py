"""The tokenizer that a GGUF file carries, as a `tokenizer.json`: a model that comes as one file needs nothing beside it.

A GGUF file holds the vocabulary and the merges, but of the pre-tokeniser only a name (`tokenizer.ggml.pre`); the patterns
behind the names are those of llama.cpp (`llama-vocab.cpp`) and of the families' own `tokenizer.json`. An unknown name is
refused: a near miss would cut text where the model never saw a cut. SentencePiece vocabularies carry scores instead of
merges; the merges follow from them as in transformers' `SentencePieceExtractor`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_context.templates import GRAMMARS

from foretype_backend.engines.embedded.gguf_header import read_metadata
from foretype_backend.errors import ModelFileError

__all__ = ["tokenizer_of"]

_KEYS: Final = frozenset(
    f"tokenizer.ggml.{name}"
    for name in ("model", "pre", "tokens", "merges", "scores", "token_type", "unknown_token_id")
)
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5

_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    "qwen2": (rf"{_WORDS}\p{{N}}{_REST}",),
    "llama-bpe": (rf"{_WORDS}\p{{N}}{{1,3}}{_REST}",),
    "starcoder": (r"\p{N}",),
    "gpt-2": (),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"),
}
"""Patterns that split before the byte-level step, in order."""

_GPT2_AFTER: Final = frozenset({"starcoder", "gpt-2"})
"""Where the byte-level step splits once more, by GPT-2's pattern."""

_SAME_AS: Final = {
    "deepseek-r1-qwen": "qwen2",
    "stablelm2": "qwen2",
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "refact": "starcoder",
    "smollm": "starcoder",
    "codeshell": "starcoder",
}


def tokenizer_of(path: Path) -> bytes:
    """The bytes of a `tokenizer.json`, the same for the same file at each start.

    Raises:
        ModelFileError: the file carries no tokenizer, or one of a kind that is not known here.
    """
    found = {key.rpartition(".")[2]: value for key, value in read_metadata(path, _KEYS).items()}
    tokens: list[str] = found.get("tokens") or []
    types: list[int] = found.get("token_type") or [_NORMAL] * len(tokens)
    if not tokens or len(types) != len(tokens):
        raise ModelFileError(f"{path}: carries no whole tokenizer; put its tokenizer.json beside it")
    kind = found.get("model")
    if kind == "gpt2":
        parts = _byte_level(path, found.get("pre"), found.get("merges") or [])
    elif kind == "llama":
        parts = _sentence_piece(path, tokens, types, found.get("scores") or [], found.get("unknown_token_id"))
    else:
        raise ModelFileError(
            f"{path}: its tokenizer is of kind {kind!r}, not gpt2 or llama; put tokenizer.json beside it"
        )
    controls = {token for grammar in GRAMMARS.values() for token in grammar.controls()}
    vocabulary: dict[str, int] = {}
    added: list[dict[str, Any]] = []
    for identity, (token, type_) in enumerate(zip(tokens, types, strict=True)):
        if type_ == _UNUSED:
            continue  # rows that pad the matrix; their names must not become tokens of a text
        special = type_ in (_CONTROL, _UNKNOWN) or token in controls
        if special or type_ == _USER_DEFINED:
            added.append(_added(identity, token, special=special))
        if type_ == _UNKNOWN or not (special or type_ == _USER_DEFINED):
            vocabulary[token] = identity
    parts["model"]["vocab"] = vocabulary
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": None}
    return msgspec.json.encode(whole | parts)


def _added(identity: int, token: str, *, special: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": identity, "content": token, "special": special, **flags}


def _byte_level(path: Path, pre: object, merges: list[str]) -> dict[str, Any]:
    name = _SAME_AS.get(str(pre), str(pre))
    if name not in _PATTERNS:
        known = ", ".join(sorted({*_PATTERNS, *_SAME_AS}))
        raise ModelFileError(
            f"{path}: its pre-tokeniser {pre!r} is not known here ({known} are); put its tokenizer.json beside it"
        )
    splits: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in _PATTERNS[name]
    ]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": name in _GPT2_AFTER,
    }
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, byte_level]} if splits else byte_level,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "merges": [merge.split(" ", 1) for merge in merges],
            "ignore_merges": name == "llama-bpe",
        },
    }


def _sentence_piece(
    path: Path, tokens: list[str], types: list[int], scores: list[float], unknown: int | None
) -> dict[str, Any]:
    if len(scores) != len(tokens):
        raise ModelFileError(f"{path}: its vocabulary has no scores; put its tokenizer.json beside it")
    numbers = {token: at for at, token in enumerate(tokens) if types[at] == _NORMAL}
    merges: list[tuple[float, int, int, str, str]] = []
    for token, at in numbers.items():
        halves = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        whole = [half for half in halves if half[0] in numbers and half[1] in numbers]
        merges += [(scores[at], numbers[left], numbers[right], left, right) for left, right in whole]
    merges.sort(key=lambda merge: (-merge[0], merge[1], merge[2]))
    return {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "merges": [(left, right) for *_, left, right in merges],
            "unk_token": tokens[unknown] if unknown is not None and 0 <= unknown < len(tokens) else None,
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }
