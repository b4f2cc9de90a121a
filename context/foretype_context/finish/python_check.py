"""Whether Python takes a suggestion: its own compiler is asked, which knows of indentation what a grammar does not.

Only the statement at the margin around the cursor is compiled, to a tree and no further, and nothing that is long. What stands open
where a text ends is unknown here: a compiler takes no half of an expression.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Final

from foretype_context.syntax.blocks import indent_columns, statement_start
from foretype_context.syntax.document import Snapshot
from foretype_context.syntax.reading import LexicalState, Reading

_CHARS_MAX: Final = 8_000
_LOOK_LINES: Final = 20
_TRY: Final = re.compile(r"\s*(?:async\s+)?try\s*:")
_HANDLER: Final = re.compile(r"\s*(?:except\b|finally\s*:)")


class Refusal(str):
    """Why Python does not take it.

    Attributes:
        indentation: it is the indentation alone.
    """

    indentation = False


class _OfIndentation(Refusal):
    indentation = True


def refused_by_python(snapshot: Snapshot, offset: int, text: str, replaces: int = 0) -> Refusal | None:
    """Why Python refuses what stands above with `text` at `offset`; None where it takes it, or cannot tell."""
    start = statement_start(snapshot, offset)
    line = snapshot.line_start(snapshot.line_of(offset))
    tail = snapshot.text[offset + replaces : snapshot.line_end(snapshot.line_of(offset))]
    above, written = snapshot.text[start:line], snapshot.text[line:offset] + text + tail
    if len(above) + len(written) > _CHARS_MAX:
        return None
    state = snapshot.lexical_at(snapshot.line_of(start))
    reading = Reading(snapshot.language, state)
    reading.read(above + written, 0, len(above) + len(written))
    if state.stack or reading.state.stack or written.rstrip().endswith("\\"):
        return None
    refusal = _refused(above + written)
    if refusal is None:
        return None
    # What is refused without the text's own lines is the file's affair.
    typed = snapshot.text[line:offset]
    margin = typed[: len(typed) - len(typed.lstrip())]
    before = f"{above}{margin}pass" if typed.strip() else above
    return refusal if not before.strip() or _refused(before) is None else None


def breaks_below(snapshot: Snapshot, offset: int, text: str, rest: str, replaces: int = 0) -> bool:
    """Whether Python cannot take what stands below any more, or not yet: a string that ends too early, a line that is too deep.

    Args:
        rest: what closes all that `text` leaves open.
    """
    line = snapshot.line_of(offset)
    begin, end = snapshot.line_start(line), snapshot.line_end(line)
    first = snapshot.line_of(statement_start(snapshot, offset))
    while snapshot.lexical_at(first).stack and begin - snapshot.line_start(first) < _CHARS_MAX:
        first -= 1  # lines of a string stand at the margin, too
    start = snapshot.line_start(first)
    above, typed, tail = snapshot.text[start:begin], snapshot.text[begin:offset], snapshot.text[offset + replaces : end]
    written = [f"{typed}{text}{closers}{tail}" for closers in dict.fromkeys(("", rest))]
    if (
        line + 1 >= snapshot.line_count
        or len(above) + len(written[-1]) > _CHARS_MAX
        or snapshot.text.endswith("\\", 0, end)
    ):
        return False
    if snapshot.lexical_at(line + 1).stack:
        below = _up_to_its_end(snapshot, line + 1)
        if below is None or len(above) + len(below) > _CHARS_MAX:
            return False
        if any(_refused(f"{above}{lines}{comma}\n{below}") is None for lines in written for comma in ("", ",")):
            return False
        # What is refused as it is, and without its line as well, is the file's affair.
        now = f"{above}{snapshot.text[begin:end]}\n{below}", f"{above}\n{below}"
        return any(_refused(lines) is None for lines in now)
    deeper = _deeper_line(snapshot, line, written[-1])
    if deeper is None or (rest and _is_closed_below(snapshot, above + written[0], line + 1)):
        return False
    margin = deeper[: len(deeper) - len(deeper.lstrip())]
    refused = [_refused(f"{above}{lines}\n{margin}pass") for lines in written]
    return None not in refused and refused[-1] == "unexpected indent" and (not above.strip() or _refused(above) is None)


def _up_to_its_end(snapshot: Snapshot, first: int) -> str | None:
    """The lines from `first` on up to the one that ends what stands open there; None where that is far."""
    start = snapshot.line_start(first)
    for line in range(first, snapshot.line_count):
        end = snapshot.line_end(line)
        if end - start > _CHARS_MAX or line + 1 == snapshot.line_count:
            return None
        if not snapshot.lexical_at(line + 1).stack:
            return snapshot.text[start:end]
    return None


def _deeper_line(snapshot: Snapshot, line: int, written: str) -> str | None:
    """The next line of code below, if it is deeper than some of what is written."""
    lines = [line for line in written.split("\n") if line.strip()]
    if not lines or lines[-1].lstrip().startswith("#"):
        return None
    least = min(map(indent_columns, lines))
    for below in range(line + 1, min(line + 1 + _LOOK_LINES, snapshot.line_count)):
        found = snapshot.line_text(below)
        if found.strip() and not found.lstrip().startswith("#"):
            return found if indent_columns(found) > least else None
    return None


def _is_closed_below(snapshot: Snapshot, written: str, first: int) -> bool:
    """Whether lines below close what is left open, or may."""
    reading = Reading(snapshot.language, LexicalState())
    reading.read(written, 0, len(written))
    if not reading.depth:
        return False
    start = snapshot.line_start(first)
    below = snapshot.text[start : start + _CHARS_MAX // 2]
    reading.floor = reading.depth
    reading.read("\n" + below, 0, 1 + len(below))
    return bool(reading.lows)


def _refused(source: str) -> Refusal | None:
    lines = source.rstrip().split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    margin = last[: len(last) - len(last.lstrip())]
    code = Reading("python", LexicalState()).code(last, 0, len(last))
    ends = f"{margin}    pass\n" if code.rstrip().endswith(":") else ""
    if ends and "\t" in margin:
        ends = f"{margin}\tpass\n"
    if last.lstrip().startswith("@"):
        ends = f"{margin}def _(): pass\n"
    ends += "".join(f"{margin}finally: pass\n" for margin in _open_tries(lines))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile("\n".join(lines) + "\n" + ends, "a.py", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except IndentationError as error:
        return _OfIndentation(error.msg)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return Refusal(error)
    return None


def _open_tries(lines: list[str]) -> list[str]:
    """The margins of `try:` around the last line that have no handler yet, innermost first."""
    found, least = list[str](), None
    handled = set[int]()
    for line in reversed(lines):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        columns = indent_columns(line)
        if least is not None and columns > least:
            continue
        if _HANDLER.match(line):
            handled.add(columns)
        elif _TRY.match(line):
            if columns not in handled:
                found.append(line[: len(line) - len(line.lstrip())])
            handled.discard(columns)
        least = columns if least is None else min(least, columns)
    return found
