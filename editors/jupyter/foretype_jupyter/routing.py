"""Which message goes where: several pages speak with one language server as if each had its own. Without I/O.

A page's request gets an id of ours on its way and its own again on the way back. What a page leaves behind is told for it: its
questions are cancelled and its notebooks closed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar, cast

Message = dict[str, Any]

_Page = TypeVar("_Page", bound=Hashable)

_REQUESTS: Final = frozenset(
    {
        "textDocument/inlineCompletion",
        "textDocument/copilotInlineEdit",
        "workspace/executeCommand",
        "foretype/status",
    }
)
_NOTIFICATIONS: Final = frozenset(
    {
        "notebookDocument/didOpen",
        "notebookDocument/didChange",
        "notebookDocument/didClose",
        "textDocument/didShowCompletion",
        "textDocument/didPartiallyAcceptCompletion",
        "textDocument/didShowInlineEdit",
        "foretype/nextEditJumped",
        "foretype/nextEditEnded",
        "foretype/cursorRested",
        "workspace/didChangeConfiguration",
    }
)
_METHOD_NOT_FOUND: Final = -32601
_INVALID_REQUEST: Final = -32600


class Routing(Generic[_Page]):
    """Pages are whatever can be a key of a dictionary."""

    def __init__(self) -> None:
        self._notebooks: dict[_Page, set[str]] = {}
        self._asked: dict[int, tuple[_Page, int | str]] = {}
        self._last = 0

    @property
    def pages(self) -> list[_Page]:
        return list(self._notebooks)

    def join(self, page: _Page) -> None:
        self._notebooks[page] = set()

    def leave(self, page: _Page) -> list[Message]:
        """What the language server is told for a page that is gone."""
        asked = [id for id, (asker, _) in self._asked.items() if asker is page]
        for id in asked:
            del self._asked[id]
        return [
            *(_message("$/cancelRequest", {"id": id}) for id in asked),
            *(_closed(uri) for uri in sorted(self._notebooks.pop(page, ()))),
        ]

    def from_page(self, page: _Page, message: object) -> tuple[Message | None, Message | None]:
        """What goes on to the language server, and what goes back to the page."""
        given = cast("Message", message) if isinstance(message, dict) else {"params": None}
        if not isinstance(params := given.get("params", {}), dict):
            return None, _error(
                None, _INVALID_REQUEST, "expected an object with a `method`, and `params` that are an object"
            )
        method, id, params = given.get("method"), given.get("id"), cast("Message", params)
        if method == "$/cancelRequest":
            ours = (ours for ours, theirs in self._asked.items() if theirs == (page, params.get("id")))
            found = next(ours, None)
            return (None if found is None else _message(method, {"id": found})), None
        if id is not None:
            if not isinstance(id, int | str) or isinstance(id, bool) or method not in _REQUESTS:
                return None, _error(id, _METHOD_NOT_FOUND, f"not a request of a page: {method!r}")
            self._last += 1
            self._asked[self._last] = (page, id)
            return {**_message(method, params), "id": self._last}, None
        if method not in _NOTIFICATIONS:
            return None, None
        uri = _uri(params.get("notebookDocument"))
        if uri is not None and page in self._notebooks:
            if method == "notebookDocument/didOpen":
                self._notebooks[page].add(uri)
            elif method == "notebookDocument/didClose":
                self._notebooks[page].discard(uri)
        return _message(method, params), None

    def from_server(self, message: Message) -> tuple[list[tuple[_Page, Message]], Message | None]:
        """What goes to which pages, and what goes back to the language server."""
        method, id = message.get("method"), message.get("id")
        if method is None:
            asker = self._asked.pop(id, None) if isinstance(id, int) else None
            return ([] if asker is None else [(asker[0], {**message, "id": asker[1]})]), None
        if id is not None:
            return [], _error(id, _METHOD_NOT_FOUND, f"pages know no {method}")
        params = message.get("params")
        uri = _uri(cast("Message", params).get("textDocument")) if isinstance(params, dict) else None
        notebook = None if uri is None else uri.partition("#")[0]
        return [(page, message) for page, open in self._notebooks.items() if notebook is None or notebook in open], None


def _message(method: object, params: Message) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def _closed(uri: str) -> Message:
    return _message("notebookDocument/didClose", {"notebookDocument": {"uri": uri}, "cellTextDocuments": []})


def _error(id: object, code: int, message: str) -> Message:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


def _uri(document: object) -> str | None:
    uri = cast("Message", document).get("uri") if isinstance(document, dict) else None
    return uri if isinstance(uri, str) else None
