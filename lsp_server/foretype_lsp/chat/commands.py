"""`workspace/executeCommand` of chat: explain, document, complete this function; and the code actions that offer them.

Every command ends in an answer that can be shown, or in an error that says what to do: no pool, no connection, nothing to work
on. An edit is made for one state of the document; it is applied only while the document is still in that state, and carries
its version, so that the editor can refuse it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec
from foretype_client.errors import ChatRefusedError
from foretype_context.syntax.document import Document, Snapshot
from foretype_context.syntax.outline import defines
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from lsprotocol import types

from foretype_lsp import messages
from foretype_lsp.chat.edits import Insertion, documentation, gap_of
from foretype_lsp.chat.prompts import CODE_CHARS_MAX, DOCUMENT, EXPLAIN, Prompt
from foretype_lsp.chat.targets import Definition, definition_at
from foretype_lsp.documents.documents import HeldText
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.editor import Editor, range_of, workspace_edit
from foretype_lsp.errors import CommandRefusedError, DocumentChangedError, ImpossibleError, InvalidParamsError
from foretype_lsp.progress import Progress

if TYPE_CHECKING:
    from foretype_client.chat import Tiers

EXPLAIN_COMMAND: Final = "foretype.chat.explain"
DOCUMENT_COMMAND: Final = "foretype.chat.document"
COMPLETE: Final = "foretype.chat.completeFunction"

_ACTIONS: Final = {
    EXPLAIN_COMMAND: ("Foretype: explain", "refactor.foretype.explain"),
    DOCUMENT_COMMAND: ("Foretype: document", "refactor.rewrite.foretype.document"),
    COMPLETE: ("Foretype: complete this function", "refactor.rewrite.foretype.completeFunction"),
}
ACTION_KINDS: Final = [kind for _, kind in _ACTIONS.values()]


class _Target(messages.Params, frozen=True):
    """What a command is about.

    Attributes:
        show: the server shows what comes out, because the editor would not (a code action).
        partial_result_token: for `$/progress` with the text as it is written.
    """

    text_document: messages.Identifier
    range: messages.Range
    show: bool = False
    partial_result_token: str | int | None = None


class _Command(messages.Params, frozen=True):
    arguments: list[_Target]
    work_done_token: str | int | None = None


class Chat:
    """The chat commands of one server."""

    def __init__(self, editor: Editor, documents: SharedDocuments) -> None:
        self._editor = editor
        self._documents = documents
        self._models: Tiers | None = None
        editor.progress_cancelled.add(self._cancelled)
        self._running: dict[str | int, asyncio.Task[Any]] = {}

    @property
    def commands(self) -> dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]]:
        """Handlers by the names of their commands."""
        ways = {EXPLAIN_COMMAND: self._explain, DOCUMENT_COMMAND: self._document, COMPLETE: self._complete}
        return {name: self._handler(name, way) for name, way in ways.items()}

    def use(self, models: Tiers | None) -> None:
        """Ask these models from now on; None while there is no connection."""
        self._models = models

    def _cancelled(self, token: object) -> None:
        """The user cancelled the progress of this token."""
        if isinstance(token, str | int) and (task := self._running.get(token)) is not None:
            task.cancel()

    def code_actions(self, asked: messages.CodeAction) -> list[dict[str, Any]]:
        """What can be done at a place."""
        held = self._documents.usable(asked.text_document.uri)
        if isinstance(held, str):
            return []
        start, end = _span(held, asked.range)
        text = held.document.text
        header = defines(text[text.rfind("\n", 0, start) + 1 :].partition("\n")[0])
        offered = [EXPLAIN_COMMAND] if start != end or header else []
        offered += [DOCUMENT_COMMAND, COMPLETE] if header else []
        target = {
            "textDocument": {"uri": asked.text_document.uri},
            "range": msgspec.to_builtins(asked.range),
            "show": True,
        }
        return [
            {"title": title, "kind": kind, "command": {"title": title, "command": name, "arguments": [target]}}
            for name, (title, kind) in _ACTIONS.items()
            if name in offered and asked.wants(kind)
        ]

    def _handler(
        self, name: str, way: Callable[[_Target, HeldText, Tiers, Progress], Coroutine[Any, Any, dict[str, Any]]]
    ) -> Callable[..., Coroutine[Any, Any, dict[str, Any]]]:
        def handle(*_: Any) -> Coroutine[Any, Any, dict[str, Any]]:
            """Takes what it needs of the document now; the coroutine waits for the model."""
            try:
                asked = messages.read(self._editor.raw_params, _Command)
            except InvalidParamsError as error:
                raise InvalidParamsError(f"{name} takes [{{textDocument, range, show?}}]: {error}") from None
            if len(asked.arguments) != 1:
                raise InvalidParamsError(f"{name} takes [{{textDocument, range, show?}}]: one argument")
            target = asked.arguments[0]
            with self._editor.refusals_shown():
                held = self._documents.usable(target.text_document.uri)
                if isinstance(held, str):
                    raise CommandRefusedError(f"nothing is sent of this document: {held}")
                if self._models is None:
                    raise CommandRefusedError("not connected to a gateway yet; `foretype/status` says why")
            progress = Progress(
                self._editor,
                _ACTIONS[name][0],
                given=asked.work_done_token,
                partial=target.partial_result_token,
            )
            return self._run(way(target, held, self._models, progress), progress, show=target.show)

        return handle

    async def _run(
        self, work: Coroutine[Any, Any, dict[str, Any]], progress: Progress, *, show: bool
    ) -> dict[str, Any]:
        """Wait for a command, and show what came out, or that nothing did, where the editor would not."""
        # Only now that the progress has ended: its end wipes what Helix shows.
        with self._editor.refusals_shown():
            result = await self._waited(work, progress)
        if show and result["kind"] == "explain":
            self._editor.show_message(types.MessageType.Info, result["text"])
        elif show and not result["applied"]:
            self._editor.warn(f"nothing was changed: {result['reason']}")
        return result

    async def _waited(self, work: Coroutine[Any, Any, dict[str, Any]], progress: Progress) -> dict[str, Any]:
        """What came out; a refusal by the gateway, and what cannot be done here, are errors that say so."""
        task = asyncio.ensure_future(work)
        if progress.token is not None:
            self._running[progress.token] = task
        try:
            return await task
        except (ChatRefusedError, RequestRefusedError, GatewayGoneError, ImpossibleError) as error:
            raise CommandRefusedError(str(error)) from error
        finally:
            task.cancel()
            progress.end()
            if progress.token is not None:
                self._running.pop(progress.token, None)

    # The three commands

    async def _explain(self, target: _Target, held: HeldText, models: Tiers, progress: Progress) -> dict[str, Any]:
        snapshot, (start, end) = held.snapshot(), _span(held, target.range)
        if start == end:
            found = await asyncio.to_thread(definition_at, snapshot.text, snapshot.language, start)
            if found is None:
                raise ImpossibleError("nothing is selected, and the cursor is in no function or class")
            start, end = found.start, found.end
        answer = await self._answer(EXPLAIN, snapshot, snapshot.text[start:end], models, progress)
        return {"kind": "explain", "text": answer}

    async def _document(self, target: _Target, held: HeldText, models: Tiers, progress: Progress) -> dict[str, Any]:
        snapshot, at = held.snapshot(), _span(held, target.range)[0]
        found = await _definition(snapshot, at)
        if found.documented:
            raise ImpossibleError(f"{found.name or 'this'} is documented already; remove that to get another")
        answer = await self._answer(DOCUMENT, snapshot, snapshot.text[found.start : found.end], models, progress)
        made = documentation(snapshot.text, snapshot.language, found, answer)
        return await self._apply("document", held, snapshot, made)

    async def _complete(self, target: _Target, held: HeldText, models: Tiers, progress: Progress) -> dict[str, Any]:
        snapshot, at = held.snapshot(), _span(held, target.range)[0]
        found = await _definition(snapshot, at, function=True)
        text, gap = snapshot.text, gap_of(snapshot.text, snapshot.language, found)
        opened = Document(
            snapshot.uri,
            text[: gap.start] + gap.lead + gap.tail + text[gap.end :],
            language=snapshot.language,
            path=snapshot.path,
            version=snapshot.version,
        )
        written, reason = await models.block(opened.snapshot(), gap.start + len(gap.lead))
        if not written:
            raise ImpossibleError(
                f"the model has nothing to add to {found.name or 'this function'}: {reason or 'empty'}"
            )
        progress.wrote(written, written)
        return await self._apply("completeFunction", held, snapshot, gap.filled(written))

    async def _answer(self, prompt: Prompt, snapshot: Snapshot, code: str, models: Tiers, progress: Progress) -> str:
        """The whole answer of a chat model."""
        if len(code) > CODE_CHARS_MAX:
            raise ImpossibleError(f"{len(code):,} characters are too many; select at most {CODE_CHARS_MAX:,}")
        asked = prompt.messages(snapshot.path, snapshot.language, code)
        text = ""
        async with aclosing(models.chat(asked, template=prompt.template, max_tokens=prompt.max_tokens)) as pieces:
            async for piece in pieces:
                text += piece
                progress.wrote(piece, text)
        if not text.strip():
            raise ImpossibleError("the model wrote nothing")
        return text.strip()

    async def _apply(self, kind: str, held: HeldText, snapshot: Snapshot, made: Insertion) -> dict[str, Any]:
        """Hand an edit to the editor, unless the document is not what it was made for."""
        if self._documents.usable(snapshot.uri) is not held or held.document.text != snapshot.text:
            raise DocumentChangedError
        span = range_of(held.position_at(made.start), held.position_at(made.end))
        edit = workspace_edit(held.document.uri, held.document.version, span, held.lines.ended(made.text))
        done = await self._editor.apply(edit, _ACTIONS[f"foretype.chat.{kind}"][0])
        return {"kind": kind, "text": made.text} | done


async def _definition(snapshot: Snapshot, at: int, *, function: bool = False) -> Definition:
    found = await asyncio.to_thread(definition_at, snapshot.text, snapshot.language, at, function=function)
    if found is None:
        what = "function" if function else "function or class"
        raise ImpossibleError(f"the cursor is in no {what}")
    return found


def _span(held: HeldText, range: messages.Range) -> tuple[int, int]:
    """Characters that a range stands for."""
    start, end = held.offset_at(range.start.position), held.offset_at(range.end.position)
    return min(start, end), max(start, end)
