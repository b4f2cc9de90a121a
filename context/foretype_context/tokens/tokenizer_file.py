"""Reading the parts of a Hugging Face `tokenizer.json` that decide how it can be served."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, cast

GPT2_PATTERN: Final = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

_NUMBERS_APART: Final = r"""\p{N}|'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"""
"""GPT-2's pattern on what lies between numbers, each of which stands for itself: a number ends a text as its end does."""


def is_control(token: dict[str, Any]) -> bool:
    content = str(token["content"])
    bracketed = content[:1] + content[-1:] in ("<>", "[]") or (content.startswith("▁<") and content.endswith(">"))
    return bool(token.get("special")) or (bracketed and not content.isspace() and len(content) > 2)


def without_prefix(part: Any) -> Any:
    """Removes the space that SentencePiece puts before a text: a segment in the middle of a prompt has none."""
    if not isinstance(part, dict):
        return part
    found = cast("dict[str, Any]", part)
    kind = found.get("type")
    if kind == "Prepend":
        return None
    if kind == "Metaspace":
        return {key: value for key, value in found.items() if key != "add_prefix_space"} | {"prepend_scheme": "never"}
    if kind == "ByteLevel":
        return {**found, "add_prefix_space": False}
    if kind == "Sequence":
        key = "normalizers" if "normalizers" in found else "pretokenizers"
        inner = [without_prefix(one) for one in found[key]]
        return {**found, key: [one for one in inner if one is not None]}
    return found


def split_pattern(part: Any) -> str | None:
    """The one pattern that splits as a byte-level pre-tokeniser does, or None where none is known."""
    if not isinstance(part, dict):
        return None
    found = cast("dict[str, Any]", part)
    if found.get("type") == "ByteLevel":
        return GPT2_PATTERN if found.get("use_regex", True) else None
    if found.get("type") != "Sequence" or len(found["pretokenizers"]) != 2:
        return None
    split, byte_level = cast("list[dict[str, Any]]", found["pretokenizers"])
    if byte_level.get("type") != "ByteLevel":
        return None
    twice = byte_level.get("use_regex", True)
    if split.get("type") == "Digits" and split.get("individual_digits"):
        return _NUMBERS_APART if twice else None
    if split.get("type") != "Split" or split.get("behavior") != "Isolated" or split.get("invert"):
        return None
    pattern = cast("dict[str, str]", split["pattern"]).get("Regex")
    if twice:
        return _NUMBERS_APART if pattern == r"\p{N}" else None
    return pattern


def characters_of(absent: Iterable[int]) -> re.Pattern[str] | None:
    """Finds a character that begins in UTF-8 with one of these bytes, none of which goes on with a character; None where no text has one."""
    ranges: list[str] = []
    for byte in absent:
        if byte < 0x80:
            first, last = byte, byte
        elif 0xC2 <= byte < 0xE0:
            first, last = (byte & 0x1F) << 6, ((byte & 0x1F) << 6) + 0x3F
        elif 0xE0 <= byte < 0xF0:
            first, last = max(0x800, (byte & 0xF) << 12), ((byte & 0xF) << 12) + 0xFFF
        elif 0xF0 <= byte < 0xF5:
            first, last = max(0x10000, (byte & 7) << 18), min(((byte & 7) << 18) + 0x3FFFF, 0x10FFFF)
        else:  # of no character
            continue
        ranges.append(f"\\U{first:08x}-\\U{last:08x}")
    return re.compile(f"[{''.join(ranges)}]") if ranges else None


def _byte_table() -> dict[int, str]:
    """GPT-2's table from the characters that stand for bytes to the characters of these numbers; any other below 256 becomes one above."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in kept]
    table = dict.fromkeys(others, "\uffff") | {byte: chr(byte) for byte in kept}
    return table | {256 + at: chr(byte) for at, byte in enumerate(others)}


def bytes_by_id(
    ids: dict[str, int], kept: list[dict[str, Any]], control_ids: dict[str, int], *, byte_level: bool
) -> list[bytes]:
    size = max([*ids.values(), *control_ids.values(), *(int(token["id"]) for token in kept)], default=-1) + 1
    result = [b""] * size
    table = _byte_table()
    for token, identity in ids.items():
        if token in control_ids:
            continue
        if byte_level:
            try:
                result[identity] = token.translate(table).encode("latin-1")
                continue
            except UnicodeEncodeError:
                pass  # not written in that table
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            result[identity] = bytes([int(token[3:5], 16)])
        else:
            result[identity] = token.replace("▁", " ").encode("utf-8", "replace")
    for token in kept:
        result[int(token["id"])] = str(token["content"]).encode("utf-8", "replace")
    return result
