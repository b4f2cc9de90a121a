"""Token-range invalidation: whose blocks an edit makes stale. Synchronous.

- A block is *used* by a session while it stands in the last prompt that the session sent for a document.
- An edit ends the use of the blocks that hold what was changed, and of all behind them, whose keys are chained to it.
- It ends the use of that session only: a colleague's use, and one's own undo, keep a block alive.

What becomes of a block that nobody uses is :mod:`foretype_backend.prefix.directory`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from foretype_backend.prefix.chain import Span

DOCUMENTS_MAX: Final = 64
"""Documents of one session whose last prompt counts as used; a client may name as many as it likes."""


class EndedUse(NamedTuple):
    """A block that a session does not use any more in its prompts for a document."""

    key: bytes
    user: tuple[str, str]


class _Prompt:
    """The last prompt of a session for a document.

    Attributes:
        keys: of its blocks.
        first: by document, the first block that was read from it, also where that has left `keys` by now; looked for when a
            document has changed, which few do.
    """

    __slots__ = ("first", "keys")

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self.keys = keys
        self.first: dict[str, int] | None = None


_NONE: Final = _Prompt(())


class LastPrompts:
    """The last prompt of each session for each of its documents. Every call costs the blocks that it names.

    Args:
        spans_of: what a block was read from; nothing for a block that is not known any more.
    """

    def __init__(self, spans_of: Callable[[bytes], Sequence[Span]]) -> None:
        self._spans_of = spans_of
        self._prompts: dict[str, dict[str, _Prompt]] = {}  # session → document → its last prompt

    def __len__(self) -> int:
        """Sessions."""
        return len(self._prompts)

    def place(self, session: str, document: str, keys: tuple[bytes, ...]) -> list[EndedUse]:
        """A prompt was sent: it replaces the one before of this session and document."""
        prompts = self._prompts.setdefault(session, {})
        before = prompts.pop(document, _NONE).keys
        prompts[document] = _Prompt(keys)
        ended = self.closed(session, next(iter(prompts))) if len(prompts) > DOCUMENTS_MAX else []
        kept = frozenset(keys)
        return ended + [EndedUse(key, (session, document)) for key in before if key not in kept]

    def edited(self, session: str, document: str, start: int) -> list[EndedUse]:
        """A session changed a document from character `start` on."""
        ended: list[EndedUse] = []
        for placed_for, prompt in self._prompts.get(session, {}).items():
            begin = self._first(prompt).get(document)
            if begin is None:
                continue
            keys = prompt.keys
            first = next((at for at in range(begin, len(keys)) if self._touches(keys[at], document, start)), None)
            if first is not None:
                ended += [EndedUse(key, (session, placed_for)) for key in keys[first:]]
                prompt.keys = keys[:first]
        return ended

    def closed(self, session: str, document: str) -> list[EndedUse]:
        """A session closed a document."""
        keys = self._prompts.get(session, {}).pop(document, _NONE).keys
        return [EndedUse(key, (session, document)) for key in keys]

    def left(self, session: str) -> list[EndedUse]:
        """A session disconnected."""
        prompts = self._prompts.pop(session, {})
        return [EndedUse(key, (session, document)) for document, prompt in prompts.items() for key in prompt.keys]

    def purged(self, session: str, document: str) -> None:
        """Blocks of a prompt are gone, and with them its use of all others."""
        prompt = self._prompts.get(session, {}).get(document)
        if prompt is not None:
            prompt.keys, prompt.first = (), None

    def _first(self, prompt: _Prompt) -> dict[str, int]:
        """By document, its first block; made once for each prompt, so that a name costs a look at each, not a walk through all."""
        if prompt.first is None:
            prompt.first = {}
            for at, key in enumerate(prompt.keys):
                for span in self._spans_of(key):
                    prompt.first.setdefault(span.document, at)
        return prompt.first

    def _touches(self, key: bytes, document: str, start: int) -> bool:
        return any(span.document == document and span.end > start for span in self._spans_of(key))
