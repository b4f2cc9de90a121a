"""What goes wrong between an editor and the language server.

::

    ForetypeError                       (foretype_context.errors)
    └── LanguageServerError             of this package
        ├── InvalidParamsError          parameters of another shape than the method asks for
        ├── ImpossibleError             a command has nothing to do at this place
        └── CommandRefusedError         (JsonRpcException) the answer to a command is an error
            └── DocumentChangedError    what it was about is not there any more
"""

from __future__ import annotations

from typing import Final

from foretype_context.errors import ForetypeError
from pygls.exceptions import JsonRpcException

_REQUEST_FAILED: Final = -32803
CONTENT_MODIFIED: Final = -32801


class LanguageServerError(ForetypeError):
    """What `foretype_lsp` raises."""


class InvalidParamsError(LanguageServerError):
    """Parameters that do not have the shape that the method asks for; the message names the field."""


class ImpossibleError(LanguageServerError):
    """It cannot be done here; the message says why, to a person."""


class CommandRefusedError(LanguageServerError, JsonRpcException):
    """An answer that is an error of LSP (3.17: RequestFailed, ContentModified), with what a person needs to know."""

    def __init__(self, message: str, code: int = _REQUEST_FAILED) -> None:
        super().__init__(message, code)


class DocumentChangedError(CommandRefusedError):
    """What was asked about is not what the editor has now."""

    def __init__(self) -> None:
        super().__init__("the document changed meanwhile; nothing was applied, ask again", CONTENT_MODIFIED)
