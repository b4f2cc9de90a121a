"""`workspace/executeCommand` of models: what there is to choose from, and taking one (`foretype use` from an editor)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from foretype_lsp import messages
from foretype_lsp.editor import Editor
from foretype_lsp.errors import CommandRefusedError, InvalidParamsError
from foretype_lsp.progress import Progress
from foretype_lsp.settings import Settings

LIST_MODELS: Final = "foretype.models.list"
USE_MODEL: Final = "foretype.models.use"


class _Use(messages.Params, frozen=True):
    arguments: list[str]
    work_done_token: str | int | None = None


class ModelChoice:
    """The commands that choose the private gateway's model. One choice at a time."""

    def __init__(self, editor: Editor, settings: Settings) -> None:
        self._editor = editor
        self._settings = settings
        self._running: tuple[Progress, asyncio.Task[Mapping[str, Any]]] | None = None
        editor.progress_cancelled.add(self._cancelled)

    @property
    def commands(self) -> dict[str, Callable[..., Coroutine[Any, Any, Any]]]:
        """Handlers by the names of their commands."""
        return {LIST_MODELS: self._list, USE_MODEL: self._use}

    async def _list(self, *_: Any) -> dict[str, Any]:
        from foretype_client.errors import ModelChoiceError
        from foretype_client.private_gateway.choosing import list_models

        try:
            return dict(await list_models(self.state_dir()))
        except ModelChoiceError as error:
            raise CommandRefusedError(str(error)) from error

    def _use(self, *_: Any) -> Coroutine[Any, Any, dict[str, Any]]:
        try:
            asked = messages.read(self._editor.raw_params, _Use)
        except InvalidParamsError as error:
            raise InvalidParamsError(
                f"{USE_MODEL} takes one name, the `asked` of a row of {LIST_MODELS}: {error}"
            ) from None
        if len(asked.arguments) != 1 or not asked.arguments[0]:
            raise InvalidParamsError(f"{USE_MODEL} takes one name, the `asked` of a row of {LIST_MODELS}")
        return self.take(asked.arguments[0], asked.work_done_token)

    def take(self, name: str, token: str | int | None) -> Coroutine[Any, Any, dict[str, Any]]:
        """Give the private gateway a model; what comes of it (:func:`foretype_client.private_gateway.choosing.use_model`).

        Args:
            name: what `foretype use` takes.
            token: of the request's progress; the server makes one of its own where it is None and the editor shows it.

        Raises:
            CommandRefusedError: one sentence.
        """
        state_dir = self.state_dir()
        if self._running is not None:
            raise CommandRefusedError("another model is being set up; wait for it, or cancel it")
        return self._take(name, state_dir, token)

    async def _take(self, name: str, state_dir: Path, token: str | int | None) -> dict[str, Any]:
        from foretype_client.errors import ModelChoiceError
        from foretype_client.private_gateway.choosing import use_model

        title = f"Foretype: taking {name}"
        progress = Progress(self._editor, title, given=token)

        def told(event: Mapping[str, Any]) -> None:
            if text := _shown(event):
                progress.wrote("", text)

        task = asyncio.ensure_future(use_model(name, state_dir, told))
        self._running = progress, task
        try:
            return {key: value for key, value in (await task).items() if key != "event"}
        except ModelChoiceError as error:
            raise CommandRefusedError(str(error)) from error
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and not current.cancelling():  # not the request, but what it waits for
                raise CommandRefusedError(
                    "cancelled; what was downloaded stays, and the next time goes on from there"
                ) from None
            raise
        finally:
            task.cancel()
            self._running = None
            progress.end()

    def _cancelled(self, token: object) -> None:
        if self._running is not None and token is not None and self._running[0].token == token:
            self._running[1].cancel()

    def state_dir(self) -> Path:
        """Of the private gateway that this server's suggestions come from. Raises CommandRefusedError where there is none."""
        from foretype_client.private_gateway.finding import default_state_dir

        options = self._settings.options
        if options.gateway_url:
            raise CommandRefusedError(
                "this editor asks a team's gateway, whose operator chooses the model; empty gatewayUrl for your own"
            )
        if options.model:
            raise CommandRefusedError("the option `model` names a file; empty it to choose another")
        return Path(options.state_dir).expanduser() if options.state_dir else default_state_dir()


def _shown(event: Mapping[str, Any]) -> str:
    """One event in a few words."""
    if event.get("event") == "progress":
        done, total = event.get("done"), event.get("total")
        if isinstance(done, int) and isinstance(total, int) and total > 0:
            return f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB ({done * 100 // total} %)"
        return ""
    return str(event.get("text", ""))
