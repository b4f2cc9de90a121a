"""How a cell of a notebook stands in the text that the notebook's cells are joined to.

A code cell of the notebook's language stands there as it is, character for character, except for lines that only
IPython understands: the sign that they begin with becomes a comment's, and nothing moves. Everything else is a comment.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from foretype_context.syntax.languages import language_spec
from foretype_context.text.strings import well_formed

from foretype_lsp.documents.positions import split_lines

_CELL_MAGIC: Final = re.compile(r"\s*%%(\w[\w.-]*)")
_RUNS_PYTHON: Final = frozenset(
    [
        "capture",
        "debug",
        "heat",
        "lprun",
        "memit",
        "mprun",
        "mypy",
        "prun",
        "pyinstrument",
        "scalene",
        "snakeviz",
        "time",
        "timeit",
    ]
)
"""Magics of a whole cell whose body stays Python."""

# `% b` goes on with an expression of the line before, and `!=` begins nothing that IPython would run.
_LINE_MAGIC: Final = re.compile(r"[^\S\r\n]*(?:[^\W\d][\w.,*\[\]'\" ]*=[^\S\r\n]*)?(?P<sign>%%?(?=[A-Za-z_])|!(?!=))")
_HELP: Final = re.compile(r"[^\S\r\n]*(?P<sign>\?(?=\??[\w%*])|[\w.%*](?=[\w.%*]*\?\??\s*$))")


class CellKind(StrEnum):
    """What a cell is to suggestions; all but `CODE` say why it gets none."""

    CODE = ""
    MARKUP = "a cell of text"
    LANGUAGE = "a cell of another language than its notebook"
    MAGIC = "a cell that another program runs"


def kind_of(text: str, language: str, *, notebook_language: str, markup: bool) -> CellKind:
    """What a cell is in a notebook of that language."""
    if markup:
        return CellKind.MARKUP
    if language != notebook_language:
        return CellKind.LANGUAGE
    magic = _CELL_MAGIC.match(text) if language == "python" else None
    return CellKind.CODE if magic is None or magic[1] in _RUNS_PYTHON else CellKind.MAGIC


def shown(text: str, kind: CellKind, language: str) -> str:
    """A cell's text as it stands in the joined text."""
    text = well_formed(text)
    if kind is not CellKind.CODE:
        return "".join(commented(language) + line for line in split_lines(text))
    if language != "python" or not any(sign in text for sign in "%!?"):
        return text
    return "".join(map(_without_magic, split_lines(text)))


def commented(language: str) -> str:
    """What each line of a cell begins with that is no code of the notebook's language."""
    return f"{language_spec(language).line_comment or '#'} "


def masked(line: str, language: str) -> bool:
    """Whether a line is IPython's and not the language's."""
    return language == "python" and (_LINE_MAGIC.match(line) or _HELP.match(line)) is not None


def header(kind: CellKind, language: str) -> str:
    """The line above a cell, by which editors and models tell where cells begin (jupytext's `percent` format)."""
    return f"{commented(language)}%%{' [markdown]' if kind is CellKind.MARKUP else ''}\n"


def without_headers(text: str, before: str, language: str) -> str:
    """What of a suggestion belongs to its own cell: all above the first header of a next one.

    Args:
        before: the line left of the cursor, which the suggestion goes on with.
    """
    mark = commented(language) + "%%"
    lines = split_lines(text)
    for index, line in enumerate(lines):
        whole = (line if index else before + line).strip()
        begun = index == len(lines) - 1 and len(whole) > len(mark) - 2 and mark.startswith(whole)
        if begun or re.fullmatch(rf"{re.escape(mark)}(\s.*)?", whole):
            return "".join(lines[:index]).rstrip()
    return text


def _without_magic(line: str) -> str:
    found = _LINE_MAGIC.match(line) or _HELP.match(line)
    return line if found is None else f"{line[: found.start('sign')]}#{line[found.start('sign') + 1 :]}"
