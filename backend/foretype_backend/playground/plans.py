"""Prompts for texts that a browser holds: the editor's part of a suggestion, done where `foretype_context` is.

A page is what a language server is to an editor: its document, and what its prompts showed before, which keeps them stable.
Texts stay in memory, until a page was quiet for ten minutes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from foretype_context.finish.post_processing import DOES_NOT_CONTINUE, Finished, finish
from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.healing import strip_healed
from foretype_context.prompt.plan import Plan, PlanState
from foretype_context.syntax.document import Document, difference

MAX_TEXT_CHARS: Final = 100_000
_KEPT_S: Final = 600.0
_MOST: Final = 64


@dataclass(slots=True)
class _Page:
    document: Document
    state: PlanState
    used_s: float
    offset: int = 0
    plan: Plan | None = None


class Pages:
    """The open pages, by name."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, _Page] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def plan(
        self, assembler: Assembler, name: str, before: str, after: str, *, path: str, language: str, now: float
    ) -> tuple[Plan, int]:
        """The prompt for the cursor between two texts, and the document's version.

        Args:
            name: of the page; one user's cannot be another's.
            now: monotonic seconds.
        """
        text = before + after
        page = self._page(name, text, path, language, now)
        if text != page.document.text:
            page.document.apply([difference(page.document.text, text)], page.document.version + 1)
        page.offset = len(before)
        page.plan, page.state = assembler.plan(page.state, page.document.snapshot(), page.offset, now=now)
        return page.plan, page.document.version

    def finish(self, name: str, version: int, written: str, *, final: bool) -> Finished | None:
        """What of a generated text is shown; None where the page went on since."""
        page = self._pages.get(name)
        if page is None or page.plan is None or page.document.version != version:
            return None
        text = strip_healed(written, page.plan.healed)
        if text is None:
            return DOES_NOT_CONTINUE
        return finish(text, page.document.snapshot(), page.offset, kind=page.plan.kind, final=final)

    def _page(self, name: str, text: str, path: str, language: str, now: float) -> _Page:
        for old in [key for key, page in self._pages.items() if now - page.used_s > _KEPT_S]:
            del self._pages[old]
        page = self._pages.get(name)
        if page is None or page.document.path != path or (language and page.document.language != language):
            document = Document(f"playground:///{path}", text, path=path, language=language, version=1)
            page = self._pages[name] = _Page(document, PlanState.empty(), now)
        page.used_s = now
        self._pages.move_to_end(name)
        if len(self._pages) > _MOST:
            self._pages.popitem(last=False)
        return page
