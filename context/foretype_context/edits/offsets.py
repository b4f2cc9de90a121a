"""Characters of a text and bytes of its source. Free in a text of ASCII alone, which most code is."""

from __future__ import annotations


def byte_of(text: str, at: int) -> int:
    """The byte of the character `at`."""
    return at if text.isascii() else len(text[:at].encode("utf-8", "surrogatepass"))


def char_of(text: str, source: bytes, at: int) -> int:
    """The character that begins at byte `at` of `source`, which is that of `text`."""
    return at if text.isascii() else len(source[:at].decode("utf-8", "surrogatepass"))
