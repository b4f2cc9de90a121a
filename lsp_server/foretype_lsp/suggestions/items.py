"""From a suggestion at a character offset to the item that an editor gets.

The range of an item runs from the first non-blank of the line to the end of what is replaced, and its text starts with what
is there already. A client that typed on meanwhile sees that the text no longer starts with its line,
and drops the item instead of inserting it at the wrong place (neovim #36529, vscode #295450).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lsprotocol import types

from foretype_lsp.documents.positions import Encoding, Lines, index_at, units

ACCEPT_COMMAND: Final = "foretype.didAcceptCompletionItem"
EXPLAIN_COMMAND: Final = "foretype.explain"

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BLANK: Final = re.compile(r"[^\S\r\n]*")


class CursorLine(NamedTuple):
    """Where a request was made, by value: the document moves on while the answer is awaited.

    Attributes:
        line: zero-based.
        text: the line without its end.
        column: characters of it left of the cursor.
    """

    line: int
    text: str
    column: int
    encoding: Encoding

    @property
    def range_start(self) -> int:
        """Characters left of an item's range: the indentation, but never more than what is left of the cursor.

        A lone surrogate is left out, with all before it: the client would get it back as something else.
        """
        blank = _BLANK.match(self.text)
        start = min(blank.end() if blank else 0, self.column)
        broken = [match.end() for match in _SURROGATE.finditer(self.text, 0, self.column)]
        return max(start, broken[-1] if broken else 0)


def cursor_line(lines: Lines, offset: int) -> CursorLine:
    line = lines.position_at(offset).line
    return CursorLine(line, lines.line(line), offset - lines.start_of(line), lines.encoding)


def item(at: CursorLine, suggestion_id: str, text: str, replaces: int) -> dict[str, Any]:
    """An LSP `InlineCompletionItem`.

    Args:
        text: to insert at the cursor.
        replaces: characters right of the cursor that it takes the place of; clamped to the line.
    """
    start = at.range_start
    end = min(at.column + replaces, len(at.text))
    return {
        "insertText": at.text[start : at.column] + text,
        "range": {
            "start": {"line": at.line, "character": units(at.text[:start], at.encoding)},
            "end": {"line": at.line, "character": units(at.text[:end], at.encoding)},
        },
        "command": {"title": "Accepted", "command": ACCEPT_COMMAND, "arguments": [suggestion_id]},
    }


def menu_item(inline: dict[str, Any], ended: Callable[[str], str]) -> dict[str, Any]:
    """The `CompletionItem` for an ordinary completion menu that does what an inline item does.

    The menu filters by what the range holds up to the cursor (VS Code) or by the word there (Helix): the text starts with
    the one and contains the other. It stands first, and is asked for again with each key, because it follows what is typed.

    Args:
        ended: gives a text the line ends of the document: such a menu may put in what it is given as it is (Helix), where
            editors that draw suggestions have no line ends but their own, or show them (Neovim).
    """
    text: str = inline["insertText"]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return {
        "label": lines[0] if lines else text,
        "kind": types.CompletionItemKind.Text.value,
        "detail": "Foretype" if len(lines) < 2 else f"Foretype, {len(lines)} lines",
        "documentation": text,
        "sortText": "\x00",
        "filterText": text.partition("\n")[0],
        "preselect": True,
        "insertTextFormat": types.InsertTextFormat.PlainText.value,
        "insertTextMode": types.InsertTextMode.AsIs.value,
        "textEdit": {"range": inline["range"], "newText": ended(text)},
        "command": inline["command"],
    }


def accepted_characters(insert_text: str, typed: int, accepted_utf16: int) -> int:
    """Characters of a suggestion that were accepted.

    Args:
        insert_text: as it was sent.
        typed: characters at its start that were in the document before.
        accepted_utf16: Copilot's `acceptedLength`: UTF-16 units from the start of `insertText`, cumulative.
    """
    return max(0, index_at(insert_text, accepted_utf16, Encoding.UTF16) - typed)
