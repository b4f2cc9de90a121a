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
from foretype_context.syntax.reading import Reading
from foretype_context.text.document import Snapshot

_CHARS_MAX: Final = 8_000
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


def _refused(source: str) -> Refusal | None:
    lines = source.rstrip().split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    margin = last[: len(last) - len(last.lstrip())]
    ends = f"{margin}    pass\n" if last.split("#")[0].rstrip().endswith(":") else ""
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
