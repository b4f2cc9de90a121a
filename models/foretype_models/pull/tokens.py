"""The tokenizer of a pulled model: checked, its prompt grammar found, and its part of the GGUF header."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from foretype_context.errors import TokenizerError, UnknownGrammarError
from foretype_context.grammars.families import ModelEvidence, detect, known_controls
from foretype_context.grammars.grammar import GRAMMARS, Grammar, grammar
from foretype_context.tokens.tokenizer import Tokenizer, tokenizer_from_bytes

from foretype_models.errors import PullError
from foretype_models.pull.checkpoint import read_json

_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PRE = {rf"{_WORDS}\p{{N}}{_REST}": "qwen2", rf"{_WORDS}\p{{N}}{{1,3}}{_REST}": "llama-bpe"}


@dataclass(frozen=True)
class Vocabulary:
    """What the GGUF header needs, one entry per row of the embedding.

    Attributes:
        pieces: a SentencePiece vocabulary. The engine opens byte-level vocabularies only, so it is written as one; that
            is right for ids, which is all that the engine gets, and wrong for text: other programs must not open the file.
    """

    pre: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    pieces: bool


def load(folder: Path, rows: int) -> tuple[Tokenizer, Vocabulary]:
    """Reads ``tokenizer.json``.

    Args:
        folder: the checkpoint.
        rows: of the embedding.

    Raises:
        PullError: there is none, it is of a kind that is not read, or it does not belong to these weights.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        slow = next((folder / name for name in ("tokenizer.model", "vocab.json") if (folder / name).exists()), None)
        if slow is not None:
            raise PullError(
                f"{path} is missing and {slow.name} alone is not read; write it once with transformers: "
                "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            )
        raise PullError(f"{path} is missing; fetch the model again")
    data = read_json(path)
    try:
        tokenizer = tokenizer_from_bytes(path.read_bytes(), name=str(path))
    except TokenizerError as error:
        raise PullError(str(error)) from error
    try:
        return tokenizer, _vocabulary(data, rows, path)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise PullError(f"{path} does not match the weights ({error}); fetch both again, of one model") from error


def _vocabulary(data: dict[str, Any], rows: int, path: Path) -> Vocabulary:
    model = cast("dict[str, Any]", data["model"])
    if model.get("type", "BPE") != "BPE":
        raise PullError(f"{path} is of type {model['type']}; only BPE is read")
    tokens = [f"<unused_{number}>" for number in range(rows)]
    types = [_UNUSED] * rows
    entries = {int(number): (str(token), _NORMAL) for token, number in model["vocab"].items()}
    controls = known_controls()
    for item in data.get("added_tokens") or ():
        special = bool(item["special"]) or str(item["content"]) in controls
        entries[int(item["id"])] = (str(item["content"]), _CONTROL if special else _USER)
    if max(entries) >= rows:
        raise ValueError(f"its ids go up to {max(entries)}, the embedding has {rows} rows")
    pieces = bool(model.get("byte_fallback"))
    for number, (token, kind) in entries.items():
        is_byte = pieces and len(token) == 6 and token.startswith("<0x") and token.endswith(">")
        tokens[number], types[number] = token, _BYTE if is_byte else kind
    if pieces and model.get("unk_token") in tokens:
        types[tokens.index(str(model["unk_token"]))] = _UNKNOWN
    merges = [item if isinstance(item, str) else " ".join(item) for item in model["merges"]]
    return Vocabulary(_pre_tokeniser(data), tokens, types, merges, pieces)


def _pre_tokeniser(data: dict[str, Any]) -> str:
    """llama.cpp's name of the pattern; engines here get ids, so an unknown one is no reason to refuse."""
    whole = cast("dict[str, Any]", data.get("pre_tokenizer") or {})
    steps = cast("list[dict[str, Any]]", whole.get("pretokenizers") or [whole])
    patterns = [step["pattern"]["Regex"] for step in steps if "Regex" in step.get("pattern", {})]
    if len(patterns) == 1:
        return _PRE.get(patterns[0], "default")
    if any(step.get("type") == "Digits" for step in steps):
        return "starcoder"
    return "deepseek-coder" if len(patterns) > 3 else "default"


def find_grammar(tokenizer: Tokenizer, name: str, named: str | None = None) -> Grammar:
    """The prompt grammar: the one that is `named`, else known by the control tokens.

    Raises:
        PullError: no fill-in-the-middle tokens, none of a known family, or not those of the one that is named.
    """
    controls = {token: tokenizer.control(token) for token in tokenizer.controls()}
    if named is not None:
        try:
            chosen = grammar(named)
        except UnknownGrammarError as error:
            raise PullError(f"--grammar: {error}") from error
        if missing := sorted(chosen.needed() - controls.keys()):
            raise PullError(f"--grammar: {name} lacks {', '.join(missing)} of {named}; pull the base model")
        return chosen
    found = detect(ModelEvidence(controls=controls, name=name))
    if found.grammar is not None:
        return GRAMMARS[found.grammar]
    if found.nearest is not None:
        raise PullError(
            f"{name}: it looks like {found.nearest} but lacks {', '.join(found.missing)}; pull the base model"
        )
    if found.ambiguous:
        raise PullError(f"{name}: its control tokens fit {' and '.join(found.ambiguous)}; say which with --grammar")
    alike = sorted(token for token in controls if any(mark in token.lower() for mark in _MARKS))
    seen = f"its control tokens that look like it are {alike[:8]}" if alike else "it has no such control tokens"
    raise PullError(
        f"{name}: no fill-in-the-middle template is known for it ({seen}; known are {', '.join(GRAMMARS)}); "
        "pull a base model of one of these families, not a chat model"
    )


_MARKS = ("fim", "prefix", "suffix", "middle", "pre>", "suf>")
