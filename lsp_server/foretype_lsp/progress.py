"""What an editor shows while a model writes: work-done progress, and the text itself where it asked for that."""

from __future__ import annotations

import secrets
from typing import Any, Final, Protocol

from lsprotocol import types

_MESSAGE_CHARS: Final = 80


class Channel(Protocol):
    """How messages go to the client (:class:`foretype_lsp.transport.protocol.Protocol`)."""

    def notify(self, method: str, params: Any = None) -> None: ...

    def send_request(self, method: str, params: Any = None) -> Any: ...


class Progress:
    """Progress of one command.

    Args:
        given: the token that came with the request; without one the server makes its own, where `shows` it may.
        partial: token of a client that wants the text as it comes (`partialResultToken` of the argument).
    """

    def __init__(
        self, channel: Channel, title: str, *, given: str | int | None, partial: str | int | None, shows: bool
    ) -> None:
        self._channel = channel
        self._title = title
        self._partial = partial
        self._begun = self._over = False
        self.token: str | int | None = given
        if given is not None:
            self._begin()
        elif shows:
            self.token = f"foretype-{secrets.token_hex(8)}"
            asked = types.WorkDoneProgressCreateParams(self.token)
            channel.send_request(types.WINDOW_WORK_DONE_PROGRESS_CREATE, asked).add_done_callback(self._created)

    def wrote(self, piece: str, text: str) -> None:
        """There is more text; `text` is all of it."""
        if self._partial is not None:
            self._tell(self._partial, {"text": piece})
        if self._begun and not self._over:
            last = text.rstrip().rpartition("\n")[2].strip()
            self._tell(self.token, types.WorkDoneProgressReport(message=last[-_MESSAGE_CHARS:], cancellable=True))

    def end(self) -> None:
        if self._begun and not self._over:
            self._tell(self.token, types.WorkDoneProgressEnd())
        self._over = True

    def _begin(self) -> None:
        self._begun = True
        self._tell(self.token, types.WorkDoneProgressBegin(title=self._title, cancellable=True))

    def _created(self, future: Any) -> None:
        if not self._over and not future.cancelled() and future.exception() is None:
            self._begin()

    def _tell(self, token: str | int | None, value: Any) -> None:
        if token is not None:
            self._channel.notify(types.PROGRESS, types.ProgressParams(token, value))
