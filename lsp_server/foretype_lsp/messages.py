"""Parameters that editors send, as far as the server reads them itself.

Types are strict where pygls is lenient (it takes the string "5" for a line number), and an error names the field. What is
not listed here stays available to a handler in the raw parameters.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec import Meta

from foretype_lsp.documents.positions import Position
from foretype_lsp.errors import InvalidParamsError

_Unsigned = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]
_MAX_UNSIGNED: Final = 2**31 - 1  # LSP's own limit of `uinteger`

_INVOKED: Final = 1
_AUTOMATIC: Final = 2

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_T = TypeVar("_T")


class Params(msgspec.Struct, frozen=True, rename="camel"):
    """Base: camelCase on the wire, unknown fields ignored."""


class Point(Params, frozen=True):
    """An LSP position. A negative number is an error; one too large (JavaScript's Number.MAX_VALUE) means the end."""

    line: _Unsigned
    character: _Unsigned

    @property
    def position(self) -> Position:
        return Position(int(min(self.line, _MAX_UNSIGNED)), int(min(self.character, _MAX_UNSIGNED)))


class Range(Params, frozen=True):
    start: Point
    end: Point


class Identifier(Params, frozen=True):
    """A document, with the version that Copilot's clients add."""

    uri: str
    version: int | None = None


class TextDocument(Params, frozen=True):
    uri: str
    text: str
    language_id: str = ""
    version: int = 0


class ContentChange(Params, frozen=True):
    """Without a range the text is the whole document."""

    text: str
    range: Range | None = None


class DidOpen(Params, frozen=True):
    text_document: TextDocument


class DidChange(Params, frozen=True):
    text_document: Identifier
    content_changes: list[ContentChange]


class DidClose(Params, frozen=True):
    text_document: Identifier


class DidSave(Params, frozen=True):
    text_document: Identifier


class FileEvent(Params, frozen=True):
    """A file that changed; the kind of change does not matter, since the server looks at the file."""

    uri: str


class WatchedFiles(Params, frozen=True):
    changes: list[FileEvent]


class Selected(Params, frozen=True):
    """What the completion menu has selected; a suggestion must start with it."""

    range: Range
    text: str


class Context(Params, frozen=True):
    trigger_kind: Literal[1, 2]  # invoked, automatic
    selected_completion_info: Selected | None = None


class InlineCompletion(Params, frozen=True):
    text_document: Identifier
    position: Point
    context: Context


class Completion(Params, frozen=True):
    """A request of the ordinary completion menu; why it comes (a word, a character, a key) does not matter here."""

    text_document: Identifier
    position: Point


class CodeActionContext(Params, frozen=True):
    only: list[str] | None = None
    trigger_kind: int | None = None


class CodeAction(Params, frozen=True):
    text_document: Identifier
    range: Range
    context: CodeActionContext

    @property
    def automatic(self) -> bool:
        """The user has not asked: the client wants to know whether to show its light bulb."""
        return self.context.trigger_kind == _AUTOMATIC

    def wants(self, kind: str) -> bool:
        """Whether the client asks for this kind: kinds are hierarchies."""
        only = self.context.only
        return only is None or any(kind == one or kind.startswith(f"{one}.") or not one for one in only)


class ExecuteCommand(Params, frozen=True):
    """Each command reads its own arguments."""

    command: str
    arguments: list[Any] | None = None


class CursorRested(Params, frozen=True):
    """The cursor of a document was moved and nothing was typed."""

    text_document: Identifier
    position: Point


class ShownCommand(Params, frozen=True):
    command: str = ""
    arguments: list[str] = []


class ShownItem(Params, frozen=True):
    command: ShownCommand | None = None

    @property
    def suggestion_id(self) -> str | None:
        return self.command.arguments[0] if self.command and self.command.arguments else None


class Shown(Params, frozen=True):
    item: ShownItem


class PartiallyAccepted(Params, frozen=True):
    """`accepted_length` in UTF-16 units from the start of `insertText`, cumulative (Copilot's convention)."""

    item: ShownItem
    accepted_length: Annotated[int, Meta(ge=0)]


class VersionedIdentifier(Params, frozen=True):
    """A document at a version; the request is about that version alone."""

    uri: str
    version: int


class InlineEditContext(Params, frozen=True):
    trigger_kind: int | None = None


class InlineEdit(Params, frozen=True):
    """A request for the next edit."""

    text_document: VersionedIdentifier
    position: Point
    context: InlineEditContext | None = None

    @property
    def by_hand(self) -> bool:
        """The user asked for it."""
        return self.context is not None and self.context.trigger_kind == _INVOKED


class NextEditJumped(Params, frozen=True):
    """The user jumped to a next edit by a key."""

    id: str


class NextEditEnded(Params, frozen=True):
    """A next edit that was shown is not on the screen any more; `rejected` is the user's own Esc."""

    id: str
    reason: Literal["rejected", "typed", "moved", "replaced", "hidden"]


def read(params: object, type_: type[_Struct]) -> _Struct:
    """Read parameters strictly. Raises InvalidParamsError that names the field."""
    try:
        return msgspec.convert(params, type_)
    except msgspec.ValidationError as error:
        text = str(error)
        raise InvalidParamsError(text.replace("`$", "`params") if "`$" in text else f"params: {text}") from None


def find(data: object, type_: type[_T], *path: str) -> _T | None:
    """What stands at a path of parameters that nobody has read, where it is of that type."""
    for name in path:
        data = cast("dict[str, object]", data).get(name) if isinstance(data, dict) else None
    return data if isinstance(data, type_) else None
