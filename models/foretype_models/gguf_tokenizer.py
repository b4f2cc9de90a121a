"""The tokenizer that a GGUF file carries, as a `tokenizer.json`: a model that comes as one file needs nothing beside it.

A GGUF file holds the vocabulary and the merges, but of the pre-tokeniser only a name (`tokenizer.ggml.pre`); the patterns
behind the names are those of llama.cpp (`llama-vocab.cpp`) and of the families' own `tokenizer.json`. An unknown name is
refused: a near miss would cut text where the model never saw a cut. SentencePiece vocabularies carry scores instead of
merges; the merges follow from them as in transformers' `SentencePieceExtractor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from foretype_context.grammars.families import known_controls

from foretype_models.errors import GgufError
from foretype_models.gguf_metadata import read_metadata

_KEYS: Final = frozenset(
    f"tokenizer.ggml.{name}"
    for name in ("model", "pre", "tokens", "merges", "scores", "token_type", "unknown_token_id")
)
_SPACE: Final = "▁"
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5

_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_DEEPSEEK_LETTERS: Final = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
"""Letters of scripts with two cases, as DeepSeek-LLM's own tokenizer lists them."""
_PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    "qwen2": (rf"{_WORDS}\p{{N}}{_REST}",),
    "llama-bpe": (rf"{_WORDS}\p{{N}}{{1,3}}{_REST}",),
    "dbrx": (rf"{_WORDS}\p{{N}}{{1,3}}{_REST}",),
    "seed-coder": (rf"{_WORDS}\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",),
    "qwen35": (
        (
            rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+"
        ),
    ),
    "tekken": (
        (
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
            r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
    ),
    "deepseek-llm": (
        r"[\r\n]",
        rf"\s?[{_DEEPSEEK_LETTERS}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
        r"\p{N}+",
    ),
    "starcoder": (r"\p{N}",),
    "gpt-2": (),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"),
}
"""Patterns that split before the byte-level step, in order."""

_GPT2_AFTER: Final = frozenset({"starcoder", "gpt-2"})
"""Where the byte-level step splits once more, by GPT-2's pattern."""

_WHOLE_FIRST: Final = frozenset({"llama-bpe", "tekken"})
"""Where a piece that is a token is one, whatever its merges would give."""

_SAME_AS: Final = {
    "deepseek-r1-qwen": "qwen2",
    "stablelm2": "qwen2",
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "refact": "starcoder",
    "mellum2": "starcoder",
    "mellum": "gpt-2",
    "smollm": "starcoder",
    "codeshell": "starcoder",
}


def tokenizer_of(path: Path) -> bytes:
    """The bytes of a `tokenizer.json`, the same for the same file at each start.

    Raises:
        GgufError: the file carries no tokenizer, or one of a kind that is not known here.
    """
    return tokenizer_from(read_metadata(path, _KEYS), path)


def tokenizer_from(metadata: Mapping[str, Any], path: Path | str) -> bytes:
    """As :func:`tokenizer_of`, from metadata by the names that they have in a file; `path` says where they come from."""
    found = {key.rpartition(".")[2]: value for key, value in metadata.items() if key in _KEYS}
    tokens: list[str] = found.get("tokens") or []
    types: list[int] = found.get("token_type") or [_NORMAL] * len(tokens)
    merges: list[str] = found.get("merges") or []
    if not tokens or len(types) != len(tokens):
        raise GgufError(f"{path}: carries no whole tokenizer; put its tokenizer.json beside it")
    kind = found.get("model")
    if kind == "gpt2":
        parts = _byte_level(path, found.get("pre"), merges)
    elif kind == "llama":
        parts = _sentence_piece(path, tokens, types, found.get("scores") or [], found.get("unknown_token_id"))
    else:
        raise GgufError(f"{path}: its tokenizer is of kind {kind!r}, not gpt2 or llama; put tokenizer.json beside it")
    # Some converters call control tokens normal; but `<s>` that merges make is a text like any other (Qwen has it).
    made = {merge.replace(" ", "", 1) for merge in merges}
    controls = known_controls() - made
    vocabulary: dict[str, int] = {}
    added: list[dict[str, Any]] = []
    for identity, (token, type_) in enumerate(zip(tokens, types, strict=True)):
        if type_ == _UNUSED:
            continue  # rows that pad the matrix; their names must not become tokens of a text
        special = type_ in (_CONTROL, _UNKNOWN) or token in controls
        if special or type_ == _USER_DEFINED:
            added.append(_added(identity, token, special=special))
        # Those that are added too: the library numbers what it does not find here anew, from the vocabulary's length on.
        vocabulary[token] = identity
    parts["model"]["vocab"] = vocabulary
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": None}
    return msgspec.json.encode(whole | parts)


def _added(identity: int, token: str, *, special: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": identity, "content": token, "special": special, **flags}


def _byte_level(path: Path | str, pre: object, merges: list[str]) -> dict[str, Any]:
    name = _SAME_AS.get(str(pre), str(pre))
    if name not in _PATTERNS:
        known = ", ".join(sorted({*_PATTERNS, *_SAME_AS}))
        raise GgufError(
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
            # Of a merge that stands there twice llama.cpp takes the first place, the library that reads this the last.
            "merges": [merge.split(" ", 1) for merge in dict.fromkeys(merges)],
            "ignore_merges": name in _WHOLE_FIRST,
        },
    }


def _sentence_piece(
    path: Path | str, tokens: list[str], types: list[int], scores: list[float], unknown: int | None
) -> dict[str, Any]:
    if len(scores) != len(tokens):
        raise GgufError(f"{path}: its vocabulary has no scores; put its tokenizer.json beside it")
    numbers = {token: at for at, token in enumerate(tokens) if types[at] == _NORMAL}
    merges: list[tuple[float, int, int, str, str]] = []
    runs = _runs_of_spaces(numbers, scores)
    for token, at in numbers.items():
        if len(token) in runs and set(token) == {_SPACE}:
            continue
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
            "merges": [*((left, right) for *_, left, right in merges), *_run_merges(runs)],
            "unk_token": tokens[unknown] if unknown is not None and 0 <= unknown < len(tokens) else None,
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


def _runs_of_spaces(numbers: dict[str, int], scores: list[float]) -> frozenset[int]:
    """Lengths of the tokens that are runs of spaces, where they have the lowest score of all, as in Llama and Mistral."""
    runs = {len(token): scores[at] for token, at in numbers.items() if len(token) > 1 and set(token) == {_SPACE}}
    lowest = min((scores[at] for at in numbers.values()), default=0.0)
    return frozenset(runs) if set(runs.values()) == {lowest} else frozenset()


def _run_merges(lengths: frozenset[int]) -> list[tuple[str, str]]:
    """Merges that make of a run of spaces what SentencePiece makes of it.

    There all these tokens rank equal, and the leftmost pair goes first: a run becomes the longest tokens from the left. Merges
    cannot rank equal. Doubling first, then the parts of the binary number from the left, comes to the same.
    """
    pairs: list[tuple[int, int]] = []
    for length in lengths:
        low = length & -length
        pairs.append((length // 2, length // 2) if low == length else (length - low, low))
    whole = [pair for pair in pairs if all(half == 1 or half in lengths for half in pair)]
    whole.sort(key=lambda pair: (pair[0] != pair[1], -pair[1] if pair[0] != pair[1] else pair[1], pair[0]))
    return [(_SPACE * left, _SPACE * right) for left, right in whole]
