"""The gateway's end of one stream connection, without the socket: frames in, messages out, limits. No event loop.

`doors.stream` is the shell around it. Three parts:

- :class:`Inbox` reads frames into messages and gives every unreadable one a field and an answer
- :class:`Outbox` holds what is still to be written; deltas of one completion are merged while they wait, never dropped
- :class:`GatewaySession` remembers ids, cancels that came early, and the segment cache
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
from foretype_context.prompt.profile import Opened

from foretype_wire.errors import BadFrameError, InvalidRequestError
from foretype_wire.messages import (
    MAX_ID_CHARS,
    SEGMENT_CACHE_BYTES,
    VERSION,
    Cancel,
    ClientMessage,
    Complete,
    Delta,
    Error,
    ErrorCode,
    GatewayMessage,
    Hello,
    NextEdit,
    RequestClass,
    WireSegment,
)
from foretype_wire.segment_cache import SegmentCache

MAX_STOP_STRINGS: Final = 16
MAX_STOP_CHARS: Final = 256
_REMEMBERED_CANCELS: Final = 256
_CANCEL_MEMORY_S: Final = 10.0
_WHERE = re.compile(r" - at `\$\.?(.*?)`$")
_DRIVE: Final = re.compile(r"/?[A-Za-z]:(?=[/\\])")
_KNOWN_ID = re.compile(r"[\x21-\x7e]+")


class _Peek(msgspec.Struct):
    """What can be read of a frame whose body cannot."""

    type: str = ""
    id: str = ""


_from_json = msgspec.json.Decoder[ClientMessage](ClientMessage).decode
_from_msgpack = msgspec.msgpack.Decoder[ClientMessage](ClientMessage).decode
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError)


class Inbox:
    """Decodes frames. The first frame decides whether the connection speaks MessagePack (bytes) or JSON (text)."""

    def __init__(self, *, max_frame_bytes: int) -> None:
        self.binary: bool | None = None
        self._max_frame_bytes = max_frame_bytes

    def decode(self, frame: bytes | str) -> ClientMessage:
        """Read one frame. Raises BadFrameError."""
        binary = isinstance(frame, bytes)
        if self.binary is None:
            self.binary = binary
        if binary is not self.binary:
            spoken = "MessagePack (binary frames)" if self.binary else "JSON (text frames)"
            raise BadFrameError(f"this connection speaks {spoken}; one kind per connection", field="frame")
        size = len(frame) if isinstance(frame, bytes) else len(frame.encode("utf-8", "surrogatepass"))
        if size > self._max_frame_bytes:
            raise BadFrameError(f"a frame of {size} bytes; at most {self._max_frame_bytes} are allowed", field="frame")
        try:
            return _from_msgpack(frame) if isinstance(frame, bytes) else _from_json(frame)
        except msgspec.ValidationError as error:
            message = str(error)
            where = _WHERE.search(message)
            field = where.group(1) if where is not None and where.group(1) else "type"
            if message.startswith("Object missing required field"):
                missing = message.split("`")[1]
                field = missing if field == "type" else f"{field}.{missing}"
            elif message.startswith("Expected `object`"):
                field = "frame"
            raise BadFrameError(_without_values(message), field=field, id=self._peek(frame)) from error
        except _UNREADABLE as error:
            kind = "MessagePack" if binary else "JSON"
            raise BadFrameError(f"no readable {kind}: {type(error).__name__}", field="frame") from error

    def _peek(self, frame: bytes | str) -> str | None:
        try:
            peek = (
                msgspec.msgpack.decode(frame, type=_Peek)
                if isinstance(frame, bytes)
                else msgspec.json.decode(frame, type=_Peek)
            )
        except _UNREADABLE:
            return None
        return peek.id if is_id(peek.id) else None


def _paths_of(document: str) -> tuple[str, ...]:
    """Where a document may lie, by its URI or path: on this machine, or on a server that its URI names."""
    if "://" not in document:
        return (_compared(document),)
    try:
        uri = urlsplit(document)
    except ValueError:
        return ()
    path = unquote(uri.path)
    return _compared(path), _compared(f"\\\\{uri.netloc}{path}")


def _compared(path: str) -> str:
    """A path as paths are compared: Windows', which begins with drive or server, with slashes and in small letters."""
    if _DRIVE.match(path):
        path = path.removeprefix("/")
    elif not path.startswith("\\\\"):
        return path
    return path.replace("\\", "/").lower()


def _without_values(message: str) -> str:
    """A validation message without the place (it is the field) and without the offending value (it may be source)."""
    message = _WHERE.sub("", message)
    return "unknown value" if message.startswith("Invalid ") else message


def is_id(text: str) -> bool:
    """Request ids are 1 to 64 visible ASCII characters."""
    return 0 < len(text) <= MAX_ID_CHARS and _KNOWN_ID.fullmatch(text) is not None


def check_complete(message: Complete[WireSegment], *, max_tokens: int) -> None:
    """Check the plain fields of a `complete`. Raises InvalidRequestError."""
    if not is_id(message.id):
        raise InvalidRequestError("id", f"must be 1 to {MAX_ID_CHARS} visible ASCII characters")
    if message.class_ is RequestClass.NEXT_EDIT:
        raise InvalidRequestError("class", "the next edit is asked for with a `next_edit`, not with a `complete`")
    if not 0 <= message.max_tokens <= max_tokens:
        raise InvalidRequestError("max_tokens", f"must be 0 (prefill only) to {max_tokens}")
    _check_deadline(message.deadline_ms)
    check_stop(message.stop.strings, message.stop.max_lines, message.stop.min_indent, prefix="stop.")
    if len(message.stop.repeats) > MAX_STOP_CHARS:
        raise InvalidRequestError("stop.repeats", f"has more than {MAX_STOP_CHARS} characters")
    if message.stop.opened is not None:
        _check_opened(message.stop.opened, max_tokens)
    if not 0 <= message.stop.least_chance < 1:
        raise InvalidRequestError("stop.least_chance", "must be a chance from 0 (never) to below 1")


def check_next_edit(message: NextEdit) -> None:
    """Check the plain fields of a `next_edit`. Raises InvalidRequestError."""
    if not is_id(message.id):
        raise InvalidRequestError("id", f"must be 1 to {MAX_ID_CHARS} visible ASCII characters")
    _check_deadline(message.deadline_ms)
    wrong = message.question.wrong()
    if wrong is not None:
        raise InvalidRequestError(f"question.{wrong[0]}", wrong[1])


def _check_deadline(deadline_ms: float) -> None:
    if not math.isfinite(deadline_ms) or deadline_ms <= 0:
        raise InvalidRequestError("deadline_ms", "must be a number of milliseconds above zero")


def _check_opened(opened: Opened, max_tokens: int) -> None:
    check_stop(opened.endings, opened.max_lines, opened.min_indent, prefix="stop.opened.", strings_name="endings")
    check_stop(opened.comments, None, None, prefix="stop.opened.", strings_name="comments")
    if not 0 < opened.max_tokens <= max_tokens:
        raise InvalidRequestError("stop.opened.max_tokens", f"must be 1 to {max_tokens}")


def check_stop(
    strings: Sequence[str],
    max_lines: int | None,
    min_indent: int | None,
    *,
    prefix: str = "",
    strings_name: str = "strings",
) -> None:
    """Check a stop rule. Raises InvalidRequestError."""
    if len(strings) > MAX_STOP_STRINGS:
        raise InvalidRequestError(
            f"{prefix}{strings_name}", f"{len(strings)} strings, at most {MAX_STOP_STRINGS} are allowed"
        )
    for index, string in enumerate(strings):
        if not 0 < len(string) <= MAX_STOP_CHARS:
            raise InvalidRequestError(f"{prefix}{strings_name}[{index}]", f"must have 1 to {MAX_STOP_CHARS} characters")
    if max_lines is not None and max_lines < 1:
        raise InvalidRequestError(f"{prefix}max_lines", "must be at least 1; leave it out for no limit")
    if min_indent is not None and min_indent < 0:
        raise InvalidRequestError(f"{prefix}min_indent", "must not be negative; leave it out for no limit")


class Outbox:
    """Messages waiting for the socket, in order. A delta joins the waiting delta of the same completion.

    Bounded: there is at most one waiting delta per live completion; other messages answer frames, and the shell stops
    reading frames while :attr:`full`.
    """

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._messages: OrderedDict[int, GatewayMessage] = OrderedDict()
        self._delta_at: dict[str, int] = {}
        self._next = 0
        self._merged = 0
        self.waiting = 0

    def __repr__(self) -> str:
        return f"<Outbox: {self.waiting} of {self._capacity} waiting, {self._merged} merged>"

    @property
    def full(self) -> bool:
        return self.waiting >= self._capacity

    def put(self, message: GatewayMessage) -> None:
        if isinstance(message, Delta):
            at = self._delta_at.get(message.id)
            waiting = None if at is None else self._messages[at]
            if at is not None and isinstance(waiting, Delta):
                self._merged += 1
                self._messages[at] = Delta(
                    id=message.id,
                    text=waiting.text + message.text,
                    logprob=waiting.logprob + message.logprob,
                    tokens=waiting.tokens + message.tokens,
                )
                return
            self._delta_at[message.id] = self._next
        self._messages[self._next] = message
        self._next += 1
        self.waiting += 1

    def pop(self) -> GatewayMessage | None:
        """The next message to write, or None."""
        if not self._messages:
            return None
        _, message = self._messages.popitem(last=False)
        self.waiting -= 1
        if isinstance(message, Delta):
            del self._delta_at[message.id]
        return message


class GatewaySession:
    """What one connection has said so far.

    Args:
        name: unique per connection; prefixes request keys, so that no connection can reach another's requests.
        live: ids of requests that were admitted and have not ended, as the door has them.
        max_tokens: most tokens that one request may generate.
    """

    def __init__(self, name: str, live: Collection[str], *, max_tokens: int) -> None:
        self.name = name
        self._live = live
        self._max_tokens = max_tokens
        self.hello: Hello | None = None
        self.cache = SegmentCache(SEGMENT_CACHE_BYTES)
        self._early_cancels: OrderedDict[str, float] = OrderedDict()
        self._placed = ("", "")  # the last document, and its repository

    def __repr__(self) -> str:
        return f"<Session {self.name}: {len(self._live)} live, {self.cache!r}>"

    def key(self, id: str) -> str:
        return f"{self.name}:{id}"

    def repository_of(self, document: str) -> str:
        """The repository that a document is in, by the longest of the client's roots; "" where it is in none."""
        if self._placed[0] != document:
            self._placed = (document, self._find_repository(document))
        return self._placed[1]

    def _find_repository(self, document: str) -> str:
        paths = _paths_of(document)
        found = [
            (len(root), one.repository)
            for one in (self.hello.workspaces if self.hello is not None else ())
            if (root := _compared(one.root).rstrip("/")) and any(f"{path}/".startswith(f"{root}/") for path in paths)
        ]
        return max(found)[1] if found else ""

    def greet(self, hello: Hello) -> None:
        """Take the first message. Raises InvalidRequestError."""
        if self.hello is not None:
            raise InvalidRequestError("type", "`hello` was said already")
        if hello.v != VERSION:
            raise InvalidRequestError("v", f"version {hello.v} is unknown; this gateway speaks version {VERSION}")
        self.hello = hello
        self._placed = ("", "")

    def admit(self, message: Complete[WireSegment] | NextEdit, now: float) -> bool:
        """Take a `complete` whose segments went through the cache, or a `next_edit`; False when its cancel came before it.

        Raises InvalidRequestError or BadFrameError (for an id that is live: the answer must not end the live one).
        """
        if self.hello is None:
            raise InvalidRequestError("type", "say `hello` first")
        if isinstance(message, NextEdit):
            check_next_edit(message)
        else:
            check_complete(message, max_tokens=self._max_tokens)
        if message.id in self._live:
            raise BadFrameError(f"id {message.id!r} is live already; ids are unique per connection", field="id")
        early = self._early_cancels.pop(message.id, None)
        return early is None or now - early > _CANCEL_MEMORY_S

    def cancel(self, message: Cancel, now: float) -> None:
        """Remember a cancel of what is not live, for it may have overtaken it. Raises InvalidRequestError."""
        if not is_id(message.id):
            raise InvalidRequestError("id", f"must be 1 to {MAX_ID_CHARS} visible ASCII characters")
        if message.id in self._live:
            return
        self._early_cancels.pop(message.id, None)
        self._early_cancels[message.id] = now
        if len(self._early_cancels) > _REMEMBERED_CANCELS:
            self._early_cancels.popitem(last=False)


def invalid(error: InvalidRequestError | BadFrameError, *, id: str | None = None) -> Error:
    """The wire's answer to a bad message."""
    message = error.message
    return Error(code=ErrorCode.INVALID_REQUEST, id=id, field=error.field, message=message)
