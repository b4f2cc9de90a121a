"""What a language server is put together from."""

from __future__ import annotations

from dataclasses import dataclass

from foretype_lsp.chat.commands import Chat
from foretype_lsp.documents.shared import SharedDocuments
from foretype_lsp.editor import Editor
from foretype_lsp.model_choice import ModelChoice
from foretype_lsp.next_edit.offering import NextEdits
from foretype_lsp.settings import Settings
from foretype_lsp.status import StatusMachine
from foretype_lsp.suggestions.handlers import Suggestions


@dataclass(frozen=True, slots=True)
class Parts:
    """Each is the one owner of its state; who needs a part is given that part."""

    editor: Editor
    settings: Settings
    documents: SharedDocuments
    status: StatusMachine
    suggestions: Suggestions
    next_edits: NextEdits
    chat: Chat
    models: ModelChoice
