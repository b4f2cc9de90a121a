"""What an editor shows while something takes long: work-done progress, and the text itself where it asked for that."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

from lsprotocol import types

from foretype_lsp.editor import Editor

_MESSAGE_CHARS: Final = 80


class Progress:
    """Progress of one command, or of one folder that is indexed.

    Args:
        given: the token that came with the request; without one the server makes its own, where the editor shows it.
        partial: token of a client that wants the text as it comes (`partialResultToken` of the argument).
        percentage: what it begins with, where it is counted.
        refused: told that the editor, which knows progress, gave no token for it.
    """

    def __init__(
        self,
        editor: Editor,
        title: str,
        *,
        given: str | int | None = None,
        partial: str | int | None = None,
        percentage: int | None = None,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._editor = editor
        self._title = title
        self._partial = partial
        self._percentage = percentage
        self._refused = refused
        self._begun = self._over = False
        self.token: str | int | None = given
        if given is not None:
            self._begin()
        elif editor.shows_progress:
            self.token = f"foretype-{secrets.token_hex(8)}"
            asked = types.WorkDoneProgressCreateParams(self.token)
            editor.send_request(types.WINDOW_WORK_DONE_PROGRESS_CREATE, asked).add_done_callback(self._created)

    @property
    def shown(self) -> bool:
        """Whether the editor shows it now: not yet while it is still asked for a token."""
        return self._begun and not self._over

    def wrote(self, piece: str, text: str) -> None:
        """There is more text; `text` is all of it."""
        if self._partial is not None:
            self._tell(self._partial, {"text": piece})
        self.report(text.rstrip().rpartition("\n")[2].strip()[-_MESSAGE_CHARS:])

    def report(self, message: str, percentage: int | None = None) -> None:
        """How far it is; before the editor's answer that is kept back."""
        if self.shown:
            report = types.WorkDoneProgressReport(message=message, percentage=percentage, cancellable=True)
            self._tell(self.token, report)

    def end(self) -> None:
        if self.shown:
            self._tell(self.token, types.WorkDoneProgressEnd())
        self._over = True

    def _begin(self) -> None:
        self._begun = True
        begin = types.WorkDoneProgressBegin(title=self._title, percentage=self._percentage, cancellable=True)
        self._tell(self.token, begin)

    def _created(self, future: Any) -> None:
        if future.cancelled() or future.exception() is not None:
            self._refused()
        elif not self._over:
            self._begin()

    def _tell(self, token: str | int | None, value: Any) -> None:
        if token is not None:
            self._editor.notify(types.PROGRESS, types.ProgressParams(token, value))
