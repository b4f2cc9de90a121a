"""Post-processing: what of a generated text is shown.

It only trims: nothing is added to what the model wrote, and the document is never rewritten above the cursor. Everything is
compared with the live document, not with the one the prompt showed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

from foretype_context.finish.indentation import INDENTED, Begins, as_in_file
from foretype_context.finish.overlap import fitted_to_tail, is_telling, without_beginning, without_lines_below
from foretype_context.finish.repetition import CLOSERS, is_repetitive, without_repeated_lines
from foretype_context.finish.surroundings import Surroundings, in_text
from foretype_context.finish.truncate import block_end, within_block
from foretype_context.grammars.families import known_controls
from foretype_context.prompt.windows import View
from foretype_context.syntax.blocks import SuggestionKind, previous_filled_line
from foretype_context.syntax.document import Snapshot
from foretype_context.syntax.languages import LanguageSpec, language_spec
from foretype_context.syntax.plain_reading import QUOTES
from foretype_context.text.openers import opens
from foretype_context.text.strings import well_formed

_WORD: Final = re.compile(r"<[a-z]+>|.{1,4}")
"""Control tokens that stand in texts of their own right, `<filename>` in a usage line."""
_ENDING: Final = re.compile(r"\r+\n")
_FENCE: Final = re.compile(r"^[ \t]*```", re.MULTILINE)
_FENCED: Final = frozenset(
    {"markdown", "mdx", "rmd", "quarto", "restructuredtext", "asciidoc", "plaintext", "git-commit", "scminput"}
)
"""Languages of prose, whose files have fences of their own; everywhere else one is talk, whether we know the language or not."""
_DOCSTRING: Final = re.compile(r"\s*[rRuU]?(\"\"\"|''')")
_IS_ITEM: Final = re.compile(r"\w+,")
"""Of a list, where the same may stand twice."""
_LOOK_LINES: Final = 40
_BELOW: Final = "repeats the line below"


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


DOES_NOT_CONTINUE: Final = Finished("", 0, "does not continue the line")
"""Of an answer that does not repeat what its prompt left out (:mod:`foretype_context.prompt.healing`)."""


def _nothing(reason: str) -> Finished:
    return Finished("", 0, reason)


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
    text = _without_fence(_without_controls(well_formed(text), snapshot), snapshot)
    around = Surroundings(view)
    text = without_beginning(_ENDING.sub("\n", text), view.typed, around)
    text = _as_in_file(text, view, spec, around)
    replaces, is_block = 0, kind is SuggestionKind.BLOCK or (kind is SuggestionKind.OPENED and not view.tail.strip())
    if is_block:
        shown, reason = _block(text, view, spec, around, final=final, opened=kind is SuggestionKind.OPENED)
    else:
        shown, reason = _line(text, view)
        if not reason and view.tail.strip():
            shown, replaces = fitted_to_tail(shown, view, around)
    if reason:
        return _nothing(reason)
    kept = around.without_faults(shown, replaces).rstrip()
    if not kept.strip():
        return _nothing("closes only what is closed already" if shown.strip() else "blank")
    if is_repetitive(kept) and _is_loop(kept, text, view.tail[replaces:].lstrip()[:1], around, final=final):
        return _nothing("repetitive")
    return Finished(_same_endings(kept, view), replaces)


def _is_loop(kept: str, said: str, tail: str, around: Surroundings, *, final: bool) -> bool:
    """Whether what is left of `said` runs on even with the closer that it ends before: one of its own, which stands there already, or the tail's."""
    if not said.startswith(kept):
        return True
    behind = said[len(kept) :].lstrip()[:1]
    if behind in CLOSERS:
        return is_repetitive(kept + behind)
    state = around.state_behind(kept)
    ends_string = in_text(state) and state.stack[-1].closer.startswith(tail)
    is_row = final and not behind and tail in CLOSERS and (tail not in QUOTES or ends_string)
    return not is_row or is_repetitive(kept, closed_behind=True)


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
    return text.replace("\n", "\r\n") if ending == "\r\n" else text


def _without_fence(text: str, snapshot: Snapshot) -> str:
    """Ends `text` before a fence of Markdown, which is a model's talk about code, unless it may be the document's own."""
    if snapshot.language in _FENCED or "```" in snapshot.text:
        return text
    found = _FENCE.search(text)
    return text if found is None else text[: found.start()]


def _as_in_file(text: str, view: View, spec: LanguageSpec, around: Surroundings) -> str:
    lines = text.split("\n")
    if len(lines) == 1 and spec.id not in INDENTED:
        return text
    begins, written, depth = [Begins.STATEMENT], lines[0], len(around.state_behind("").stack)
    for number, line in enumerate(lines[1:]):
        written += "\n"
        state = around.state_behind(written)
        if not in_text(state):
            closes = line.lstrip()[:1] in (")", "]", "}")
            begins.append(Begins.STATEMENT if len(state.stack) - closes <= depth else Begins.CODE)
        elif begins[-1] is Begins.TEXT or not _DOCSTRING.match(lines[number]):
            begins.append(begins[-1] if begins[-1] is Begins.DOCSTRING else Begins.TEXT)
        else:
            begins.append(Begins.DOCSTRING)
        written += line
    return "\n".join(as_in_file(lines, view, spec.id, begins))


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
    if view.tail.strip() or not is_telling(line) or _IS_ITEM.fullmatch(line.strip()):
        return ""
    above = previous_filled_line(view.snapshot, view.line)
    if next(iter(_below(view)), None) == line.rstrip():
        reason = _BELOW
    elif above is not None and above.rstrip() == line.rstrip():
        reason = "repeats the line above"
    else:
        return ""
    return "" if _has_twins(view) else reason


def _has_twins(view: View) -> bool:
    """Whether two equal lines that say something follow one another near the cursor: then such a line is no accident."""
    snapshot, near = view.snapshot, range(max(0, view.line - _LOOK_LINES), view.line)
    lines = [snapshot.line_text(line).strip() for line in near]
    return any(
        first == second and is_telling(first)
        for side in ([line for line in lines if line], [line.strip() for line in _below(view)])
        for first, second in pairwise(side)
    )


def _block(
    text: str, view: View, spec: LanguageSpec, around: Surroundings, *, final: bool, opened: bool
) -> tuple[str, str]:
    """Whole lines up to the end of the block, and why nothing is shown.

    `opened`: the first line of `text` opens the block, unless the cursor has moved behind that line since.
    """
    opened = opened and opens(text.partition("\n")[0], spec.opens_block, spec.comment_marks)
    lines = text.split("\n")
    if not final:
        lines.pop()
        if not any(line.strip() for line in lines):
            return "", "no whole line yet"
    # The tree knows of the block around the cursor, not of one that is not written yet.
    end = None if opened else block_end(view.snapshot, view.offset, "\n".join(lines))
    if end is not None:
        whole = "\n".join(lines)
        lines = (whole[:end] + whole[end:].partition("\n")[0]).split("\n")  # `done <<EOF`, `end.join`
    lines = without_repeated_lines(within_block(lines, view, spec, opened=opened), file_repeats=_has_twins(view))
    below = _below(view)
    if not view.typed.strip() or lines[:1] != [""]:
        reason = _repeats(view.typed + lines[0].rstrip() if lines else "", view)
        # A line may stand twice where the text goes on otherwise.
        if reason and (reason == _BELOW or len(lines) < 2 or lines[1].strip() == lines[0].strip()):
            return "", reason
    shown = "\n".join(without_lines_below(lines, below)).rstrip()
    return shown, "" if shown.strip() else "blank"
