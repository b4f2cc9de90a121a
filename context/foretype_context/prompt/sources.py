"""Where context from other files comes from: a port that retrieval and others implement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from foretype_context.prompt.segments import Scope
from foretype_context.syntax.document import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A piece of another file.

    Attributes:
        path: as shown in the prompt.
        text: whole lines; the prompt adds a line ending where the last one lacks it.
        start, end: half-open character span in the file.
        source_name: who found it, for `explain` (`retrieval`, `recent`, `imports` …).
        score: larger is kept first under budget; it never decides where the snippet stands.
        scope: for whom the text is equal; it decides where the snippet stands.
    """

    path: str
    text: str
    start: int = 0
    end: int = 0
    source_name: str = ""
    score: float = 0.0
    scope: Scope = Scope.SESSION


class SnippetSource(Protocol):
    """Finds snippets for a place in a document. Must answer from memory: it is called while the user waits."""

    @property
    def name(self) -> str: ...

    def snippets(self, snapshot: Snapshot, offset: int, *, limit: int) -> Sequence[Snippet]:
        """At most `limit` snippets, best first; none rather than late."""
        ...
