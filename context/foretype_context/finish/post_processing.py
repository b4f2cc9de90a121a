"""Post-processing: what of a generated text is shown.

It only trims: nothing is added to what the model wrote, and the document is never rewritten above the cursor. Everything is
compared with the live document, not with the one the prompt showed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from foretype_context.finish.repetition import is_repetitive, without_repeated_lines
from foretype_context.finish.truncate import block_end
from foretype_context.grammars.families import known_controls
from foretype_context.prompt.windows import View
from foretype_context.syntax.blocks import (
    CLOSERS_ONLY,
    SuggestionKind,
    block_indent,
    closes_block,
    indent_columns,
    previous_filled_line,
)
from foretype_context.syntax.brackets import excess_closer, surroundings
from foretype_context.syntax.languages import LanguageSpec, language_spec
from foretype_context.text.document import Snapshot
from foretype_context.text.strings import well_formed

__all__ = ["Finished", "finish", "strip_healed"]

_WORD: Final = re.compile(r"<[a-z]+>|.{1,4}")
"""Control tokens that stand in texts of their own right, `<filename>` in a usage line."""
_ENDING: Final = re.compile(r"\r+\n")
_LOOK_LINES: Final = 40
_MIN_OVERLAP_CHARS: Final = 3


@dataclass(frozen=True, slots=True)
class Finished:
    """A suggestion to show.

    Attributes:
        text: to insert at the cursor; empty where nothing is to be shown.
        replaces: characters right of the cursor that `text` takes the place of.
        reason: why nothing is left, or None.
    """

    text: str
    replaces: int = 0
    reason: str | None = None


def _nothing(reason: str) -> Finished:
    return Finished("", 0, reason)


def strip_healed(text: str, healed: str) -> str | None:
    """Takes off what the prompt left out and the output repeats. None where it does not repeat it.

    While a stream is shorter than `healed` and agrees with it, the answer is empty.
    """
    if text.startswith(healed):
        return text[len(healed) :]
    return "" if healed.startswith(text) else None


def finish(text: str, snapshot: Snapshot, offset: int, *, kind: SuggestionKind, final: bool) -> Finished:
    """Decides what of `text`, generated for `offset`, is shown.

    Args:
        text: everything generated so far behind the cursor (what healing left out already stripped).
        snapshot: the live document.
        offset: the cursor in it.
        kind: as planned.
        final: the model ended by itself. False for a stream that goes on or was cut off by its length: then the last line of
            a multi-line text is not whole, and is dropped.
    """
    view, spec = View.at(snapshot, offset), language_spec(snapshot.language)
    text = _same_endings(_without_controls(well_formed(text), snapshot), view)
    if kind is SuggestionKind.BLOCK or (kind is SuggestionKind.OPENED and not view.tail.strip()):
        shown, reason = _block(text, view, spec, final=final, opened=kind is SuggestionKind.OPENED)
        replaces = 0
    else:
        shown, reason, replaces = *_line(text, view), 0
        if not reason and view.tail.strip():
            shown, replaces = _fitted_to_tail(shown, view, spec)
    if reason:
        return _nothing(reason)
    around = surroundings(snapshot, view.offset, skip_right=replaces)
    excess = excess_closer(shown, around, spec.line_comment)
    if excess is not None:
        shown = shown[:excess]
    shown = shown.rstrip()
    if not shown.strip():
        return _nothing("closes only what is closed already" if excess is not None else "blank")
    if is_repetitive(shown):
        return _nothing("repetitive")
    return Finished(shown, replaces)


@cache
def _control_pattern() -> re.Pattern[str]:
    tokens = [token for token in known_controls() if not _WORD.fullmatch(token) or token == "<EOT>"]
    return re.compile("|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True)))


def _without_controls(text: str, snapshot: Snapshot) -> str:
    """Ends `text` before a control token's text, unless the document itself speaks of that token."""
    for found in _control_pattern().finditer(text):
        if found.group() not in snapshot.text:
            return text[: found.start()]
    return text


def _same_endings(text: str, view: View) -> str:
    """Line endings as on the cursor's line, or where it is the last one as on the line above."""
    snapshot = view.snapshot
    ending = snapshot.text[view.line_end : view.below_start]
    if not ending and view.line:
        ending = snapshot.text[snapshot.line_end(view.line - 1) : view.line_start]
    text = _ENDING.sub("\n", text)
    return text.replace("\n", "\r\n") if ending == "\r\n" else text


def _is_telling(line: str) -> bool:
    """Whether a line says enough that its repetition is no accident (`}`, `pass`, `else:` are)."""
    return sum(character.isalnum() for character in line) > 4


def _below(view: View, count: int = _LOOK_LINES) -> list[str]:
    """The next filled lines below the cursor's line."""
    snapshot = view.snapshot
    last = min(view.line + 1 + count, snapshot.line_count)
    lines = (snapshot.line_text(line).rstrip() for line in range(view.line + 1, last))
    return [line for line in lines if line]


def _line(text: str, view: View) -> tuple[str, str]:
    """The rest of one line, and why it is not shown."""
    shown = text.split("\n", 1)[0].rstrip()
    if not shown.strip():
        return "", "blank"
    return shown, _repeats(view.typed + shown, view)


def _repeats(line: str, view: View) -> str:
    """Why a whole first line is not shown; empty where it may be."""
    if view.tail.strip() or not _is_telling(line):
        return ""
    if next(iter(_below(view)), None) == line.rstrip():
        return "repeats the line below"
    above = previous_filled_line(view.snapshot, view.line)
    return "repeats the line above" if above is not None and above.rstrip() == line.rstrip() else ""


def _fitted_to_tail(shown: str, view: View, spec: LanguageSpec) -> tuple[str, int]:
    """Trims what the rest of the line has already, or replaces that rest where the text goes on behind it."""
    tail = view.tail.rstrip()
    with_tail = surroundings(view.snapshot, view.offset)
    if CLOSERS_ONLY.match(tail) and excess_closer(shown, with_tail, spec.line_comment) is not None:
        inner = tail.strip()
        trimmed = shown[: -len(inner)]
        if shown.endswith(inner) and trimmed and excess_closer(trimmed, with_tail, spec.line_comment) is None:
            return trimmed, 0
        # `f(|)` and `x) + g(y)`: the text closes what the tail closes, then goes on, so it takes the tail's place.
        without_tail = surroundings(view.snapshot, view.offset, skip_right=len(tail))
        goes_on = shown.strip() != inner and _in_order(inner, shown)
        if goes_on and excess_closer(shown, without_tail, spec.line_comment) is None:
            return shown, len(tail)
    for length in range(min(len(tail), len(shown)), 0, -1):
        overlap = tail[:length]
        if shown.endswith(overlap) and (
            length == len(tail) or length >= _MIN_OVERLAP_CHARS or (overlap in "\"'`" and _closes_quote(shown, view))
        ):
            # A closing bracket alone may be needed twice; where brackets can be counted, the count decides afterwards.
            counted = all(character in ")]}" for character in overlap) and with_tail.known
            return (shown, 0) if counted else (shown[:-length], 0)
    return shown, 0


def _in_order(characters: str, text: str) -> bool:
    rest = iter(text)
    return all(character in rest for character in characters if not character.isspace())


def _closes_quote(shown: str, view: View) -> bool:
    """Whether the quote at the end of `shown` closes a string that was open at the cursor."""
    quote = shown[-1]
    return view.typed.count(quote) % 2 == 1 and shown.count(quote) == 1


def _block(text: str, view: View, spec: LanguageSpec, *, final: bool, opened: bool) -> tuple[str, str]:
    """Whole lines up to the end of the block, and why nothing is shown.

    `opened`: the first line of `text` opens the block, unless the cursor has moved behind that line since.
    """
    opened = opened and text.partition("\n")[0].rstrip().endswith(spec.opens_block)
    lines = text.split("\n")
    if not final:
        lines.pop()
        if not any(line.strip() for line in lines):
            return "", "no whole line yet"
    # The tree knows of the block around the cursor, not of one that is not written yet.
    end = None if opened else block_end(view.snapshot, view.offset, "\n".join(lines))
    if end is not None:
        lines = "\n".join(lines)[:end].split("\n")
    lines = _within_block(lines, view, spec, opened=opened)
    lines = without_repeated_lines(lines)
    below = _below(view)
    if not view.typed.strip() or lines[:1] != [""]:
        reason = _repeats(view.typed + lines[0].rstrip() if lines else "", view)
        if reason:
            return "", reason
    if below and _is_telling(below[0]):
        for at, line in enumerate(lines[1:], 1):
            if line.rstrip() == below[0]:
                lines = lines[:at]
                break
    lines = _without_end(lines, below)
    shown = "\n".join(lines).rstrip()
    return shown, "" if shown.strip() else "blank"


def _within_block(lines: list[str], view: View, spec: LanguageSpec, *, opened: bool) -> list[str]:
    """Ends before the first line that is indented by less than the block; a line that closes the block belongs to it."""
    if opened:
        opener = indent_columns(view.typed + lines[0])
        indent = opener + 1
    else:
        indent = block_indent(view.snapshot, view.offset)
        opener = indent_columns(view.typed) if view.typed.strip() else None
    if indent == 0:
        return lines
    kept = lines[:1]
    for line in lines[1:]:
        if line.strip() and indent_columns(line) < indent:
            if opener is not None and indent_columns(line) == opener and closes_block(spec, line):
                kept.append(line)
            break
        kept.append(line)
    return kept


def _without_end(lines: list[str], below: list[str]) -> list[str]:
    """Takes off the last lines where they are the first ones below the cursor."""
    filled = [at for at, line in enumerate(lines) if at and line.strip()]
    for count in range(min(len(filled), len(below)), 0, -1):
        first = filled[-count]
        if [lines[at].rstrip() for at in filled[-count:]] == below[:count]:
            return lines[:first]
    return lines
