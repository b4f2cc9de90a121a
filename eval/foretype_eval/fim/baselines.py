"""Completions that need no model. Every model figure is printed beside these."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from foretype_client.adaptive.candidates import CopyLine
from foretype_context.syntax.document import Document

from foretype_eval.fim.items import Item


class Baseline(StrEnum):
    """Rows that need no model: nothing, the product's own copy-line predictor, and the reference itself."""

    EMPTY = "empty"
    COPY_LINE = "copy-line"
    REFERENCE = "reference"


def baseline(kind: Baseline) -> Callable[[Item], str]:
    """The completion that a baseline gives for an item."""
    match kind:
        case Baseline.EMPTY:
            return lambda _item: ""
        case Baseline.REFERENCE:
            return lambda item: item.reference
        case Baseline.COPY_LINE:
            return _copy_line


def _copy_line(item: Item) -> str:
    text = item.prefix + item.suffix
    snapshot = Document("file:///item", text, language=item.language).snapshot()
    found = CopyLine(typed_chars_min=1).suggest(snapshot, len(item.prefix))
    return found.text if found is not None else _after_a_line_like_the_last(item.prefix)


def _after_a_line_like_the_last(prefix: str) -> str:
    """On an empty line there is nothing to match but the line above: what followed its most recent copy, indented alike."""
    lines = prefix.split("\n")
    if lines[-1].strip() or len(lines) < 3 or not lines[-2].strip():
        return ""
    above = lines[-2]
    for number in range(len(lines) - 3, 0, -1):
        if lines[number - 1].strip() == above.strip() and lines[number].strip():
            shift = len(above) - len(above.lstrip()) - (len(lines[number - 1]) - len(lines[number - 1].lstrip()))
            indent = max(0, len(lines[number]) - len(lines[number].lstrip()) + shift)
            return (" " * indent + lines[number].strip()).removeprefix(lines[-1])
    return ""
