"""The JSON-RPC side of the server: pygls' protocol where every request gets exactly one answer.

What differs from pygls 2.1, and why (each was met with a real editor):

- parameters of the wrong shape are answered with -32602; pygls logs them and the client waits for ever
- a handler is called as soon as its message is read, and only its awaiting part becomes a task; pygls starts the whole
  handler later, when changes that came after the request may already be in the document
- a fault in a handler is logged by type and place, and answered `null`; pygls sends the traceback, which may hold source
- an answer is written in the turn that made it; pygls writes it in the next one, when a change may have been handled before it
- before `initialize` and after `shutdown` requests are refused with their codes; pygls leaves the latter unanswered
- documents are not kept by pygls, which splits lines where LSP does not, and copies a file at each change
- unknown fields stay available as `raw_params`
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Generator
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from typing import Any, ClassVar, Final, cast

from foretype_wire.redaction import log_fault
from foretype_wire.subscriptions import Subscribers
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcMethodNotFound, JsonRpcRequestCancelled
from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, LanguageServerProtocol, lsp_method

from foretype_lsp.errors import InvalidParamsError
from foretype_lsp.messages import find
from foretype_lsp.transport.framing import frame

_log: Final = logging.getLogger(__name__)

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
SERVER_NOT_INITIALIZED: Final = -32002

_ANSWERED: Final = object()

_OWN_HANDLERS: Final = (
    types.EXIT,
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
    types.NOTEBOOK_DOCUMENT_DID_OPEN,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE,
    types.WORKSPACE_EXECUTE_COMMAND,  # pygls cannot cancel one
)


class Protocol(LanguageServerProtocol):
    """pygls' protocol with the differences above. Bodies come in by `receive`, answers go out by the writer."""

    raw_methods: ClassVar[frozenset[str]] = frozenset(
        {
            types.TEXT_DOCUMENT_DID_OPEN,
            types.TEXT_DOCUMENT_DID_CHANGE,
            types.TEXT_DOCUMENT_DID_CLOSE,
            types.TEXT_DOCUMENT_DID_SAVE,
            types.NOTEBOOK_DOCUMENT_DID_OPEN,
            types.NOTEBOOK_DOCUMENT_DID_CHANGE,
            types.NOTEBOOK_DOCUMENT_DID_SAVE,
            types.NOTEBOOK_DOCUMENT_DID_CLOSE,
            types.TEXT_DOCUMENT_INLINE_COMPLETION,
            types.TEXT_DOCUMENT_COMPLETION,
            types.TEXT_DOCUMENT_CODE_ACTION,
            types.WORKSPACE_DID_CHANGE_CONFIGURATION,
            types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
            types.WORKSPACE_EXECUTE_COMMAND,
        }
    )
    """Methods whose handlers read the raw parameters themselves, strictly."""

    def __init__(self, server: Any, converter: Any) -> None:
        self._raw: ContextVar[dict[str, Any]] = ContextVar("raw")
        super().__init__(server, converter)  # looks at every attribute, properties too
        self._initialized = False
        self.disconnected: Subscribers[[]] = Subscribers()
        self.experimental: dict[str, Any] = {}
        """What the server says of itself beside the standard's capabilities."""
        builtin = cast("dict[str, object]", self.fm.builtin_features)  # pyright: ignore[reportUnknownMemberType]
        for method in _OWN_HANDLERS:  # the server's features take the place of pygls' own
            builtin.pop(method, None)

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        """The answer of pygls, and what it has no place for."""
        result = yield from super().lsp_initialize(params)
        result.capabilities.experimental = self.experimental or None
        return result

    @property
    def shut_down(self) -> bool:
        """Whether `shutdown` was asked for, which decides the exit code (LSP 3.17, Exit Notification)."""
        return self._shutdown

    @property
    def raw_params(self) -> dict[str, Any]:
        """Parameters of the current message as the client sent them, unknown fields included."""
        return self._raw.get({})

    def receive(self, body: bytes) -> None:
        """Handle one message body. Never raises."""
        try:
            # A byte that is not UTF-8 must cost at most its own character, or the document would be out of step.
            data: Any = json.loads(body.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            _log.warning("message is not JSON: %s", type(error).__name__)
            self._refuse(None, PARSE_ERROR, "not JSON")
            return
        if not isinstance(data, dict):
            self._refuse(None, INVALID_REQUEST, "expected an object; batches are not part of LSP")
            return
        copy_context().run(self._dispatch, cast("dict[str, Any]", data))

    def _dispatch(self, data: dict[str, Any]) -> None:
        method, msg_id = data.get("method"), data.get("id")
        if method is None and ("result" in data or "error" in data) and isinstance(msg_id, str | int):
            self._dispatch_response(data)
            return
        if not isinstance(method, str) or not isinstance(msg_id, str | int | None) or isinstance(msg_id, bool):
            self._refuse(None, INVALID_REQUEST, "expected a string `method` and an `id` that is a string or an integer")
            return
        raw = data.get("params")
        if isinstance(raw, dict):
            self._raw.set(cast("dict[str, Any]", raw))
        if msg_id is None:
            self._dispatch_notification(method, data)
        elif not self._initialized and method != types.INITIALIZE:
            self._refuse(msg_id, SERVER_NOT_INITIALIZED, "initialize first")
        elif self._shutdown:
            self._refuse(msg_id, INVALID_REQUEST, "the server is shutting down")
        elif self._initialized and method == types.INITIALIZE:
            self._refuse(msg_id, INVALID_REQUEST, "initialized already")
        else:
            self._dispatch_request(msg_id, method, data)

    def _dispatch_notification(self, method: str, data: dict[str, Any]) -> None:
        if method != types.EXIT and (self._shutdown or not self._initialized):
            return
        try:
            message = self._structure(method, data)
        except InvalidParamsError as error:
            _log.warning("%s ignored: %s", method, error)
            return
        params: Any = getattr(message, "params", None)
        if method != types.CANCEL_REQUEST:
            self._handle_notification(method, params)
        elif isinstance(params.id, str | int):
            self._handle_cancel_notification(params.id)

    def _dispatch_request(self, msg_id: str | int, method: str, data: dict[str, Any]) -> None:
        try:
            message = self._structure(method, data)
        except InvalidParamsError as error:
            _log.warning("%s refused: %s", method, error)
            self._refuse(msg_id, INVALID_PARAMS, str(error))
            return
        self._initialized = self._initialized or method == types.INITIALIZE
        self._handle_request(msg_id, method, getattr(message, "params", None))

    def _dispatch_response(self, data: dict[str, Any]) -> None:
        try:
            message: Any = super().structure_message(data)
        except JsonRpcException as error:
            _log.warning("answer of the client ignored: %s", type(error).__name__)
            if future := self._request_futures.pop(cast("Any", data.get("id")), None):
                future.cancel()
            return
        if "error" in data:
            self._handle_response(message.id, None, message.error)
        else:
            self._handle_response(message.id, message.result)

    def _structure(self, method: str, data: dict[str, Any]) -> object:
        """The message as its type. Raises InvalidParamsError."""
        type_: type[Any] | None = self.get_message_type(method)
        if method in self.raw_methods or type_ is None:
            if "id" in data:
                return JsonRPCRequestMessage(data["id"], method, self.VERSION, data.get("params"))
            return JsonRPCNotification(method, self.VERSION, data.get("params"))
        try:
            return cast("object", self._converter.structure({**data, "jsonrpc": self.VERSION}, type_))
        except Exception as error:  # noqa: BLE001 - cattrs lets anything out that a hook raises; it all means the same
            if (
                method == types.INITIALIZE and "id" in data
            ):  # no editor may be locked out by a capability that lsprotocol cannot read
                _log.warning("initialize: capabilities not understood, going on with the essential ones")
                return self._converter.structure(_essential(data), types.InitializeRequest)
            raise InvalidParamsError(f"{method}: {_innermost(error)}") from None

    def _execute_handler(
        self,
        msg_id: Any,
        handler: Any,
        callback: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        if inspect.isgeneratorfunction(handler):  # pygls' own
            super()._execute_handler(msg_id, handler, callback, args, kwargs)
            return
        future: Any
        try:
            result = handler(*(args or ()), **(kwargs or {}))
        except Exception as error:  # noqa: BLE001 - becomes the answer, see `_send_handler_result`
            future = Future[Any]()
            future.set_exception(error)
        else:
            if inspect.iscoroutine(result):
                future = asyncio.ensure_future(result)
                self._request_futures[msg_id] = future
            else:
                future = Future[Any]()
                future.set_result(result)
        future.add_done_callback(callback)

    def _send_handler_result(self, future: Any, *, msg_id: Any) -> None:
        if self._request_futures.get(msg_id) is future:
            del self._request_futures[msg_id]
        if future.cancelled():
            self._refuse(msg_id, JsonRpcRequestCancelled.CODE, "cancelled")
            return
        error: BaseException | None = future.exception()
        if error is None:
            if future.result() is not _ANSWERED:
                self._send_response(msg_id, result=future.result())
        elif isinstance(error, InvalidParamsError):
            _log.warning("request refused: %s", error)
            self._refuse(msg_id, INVALID_PARAMS, str(error))
        elif isinstance(error, JsonRpcException):
            self._refuse(msg_id, error.code, error.message)
        else:
            log_fault(_log, "request failed", error)
            self._send_response(msg_id, result=None)

    def _check_handler_result(self, future: Any) -> None:
        if future.cancelled() or (error := future.exception()) is None:
            return
        if isinstance(error, InvalidParamsError):
            _log.warning("notification ignored: %s", error)
        else:
            log_fault(_log, "notification failed", error)

    def _handle_request(self, msg_id: Any, method_name: str, params: Any) -> None:
        try:
            handler = self._get_handler(method_name)
        except JsonRpcMethodNotFound:
            self._refuse(msg_id, METHOD_NOT_FOUND, f"unknown method {method_name}")
            return
        self._ctx_msg_id.set(msg_id)

        result: Any = None

        def begin(params: Any) -> Any:
            nonlocal result
            result = handler(params)
            return answered() if inspect.iscoroutine(result) else result

        async def answered() -> object:
            self._send_response(msg_id, result=await result)
            return _ANSWERED

        def answer(future: Any) -> None:
            if inspect.iscoroutine(result):
                result.close()  # it may have been cancelled before it began
            self._send_handler_result(future, msg_id=msg_id)

        self._execute_handler(msg_id, handler if inspect.isgeneratorfunction(handler) else begin, answer, (params,))

    def _send_data(self, data: Any) -> None:
        if self.writer is None:
            return
        body = json.dumps(data, default=self._serialize_message, separators=(",", ":"))
        try:
            self.writer.write(frame(body.encode("ascii")))
        except (OSError, ValueError):  # a broken or closed pipe: the editor is gone
            _log.info("the editor does not listen any more")
            self.disconnected.tell()

    def _refuse(self, msg_id: str | int | None, code: int, message: str) -> None:
        self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "error": {"code": code, "message": message}})


def _innermost(error: BaseException) -> str:
    """Where structuring failed; cattrs nests one group for each level, with the field in its notes."""
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    nested = getattr(error, "exceptions", ())
    if nested:
        return _innermost(nested[0])
    return " ".join([type(error).__name__, *notes])


def _essential(data: dict[str, Any]) -> dict[str, Any]:
    """An initialize request with what the server uses, each part only if it has the right type."""
    listed = cast("list[object]", find(data, list, "params", "capabilities", "general", "positionEncodings") or [])
    encodings = [e for e in listed if isinstance(e, str)]
    return {
        "jsonrpc": "2.0",
        "id": data["id"],
        "method": types.INITIALIZE,
        "params": {
            "processId": find(data, int, "params", "processId"),
            "rootUri": find(data, str, "params", "rootUri"),
            "capabilities": {"general": {"positionEncodings": encodings}} if encodings else {},
            "initializationOptions": find(data, object, "params", "initializationOptions"),
        },
    }
