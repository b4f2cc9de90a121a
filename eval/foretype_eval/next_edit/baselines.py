"""What anybody could do without knowing a language: the last edit once more, wherever the same text stands. Pure.

`copy` wants the whole lines that were changed to stand there again, `replace` the words alone, as an editor's search and replace.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from foretype_context.edits.bursts import Burst, Bursts, ChangeOrigin
from foretype_context.edits.evidence import named
from foretype_context.edits.followed import applied
from foretype_context.syntax.document import Edit

from foretype_eval.next_edit.offers import Offer, usual_wait_s


class _Document:
    def __init__(self, text: str) -> None:
        self.text = text
        self.bursts = Bursts(text)
        self.last: Burst | None = None
        self.refused: set[tuple[str, str]] = set()


class _Floor:
    evidence = ""
    clock = staticmethod(time.thread_time)

    def __init__(self) -> None:
        self._open: dict[str, _Document] = {}

    def opened(self, path: str, text: str) -> None:
        self._open[path] = _Document(text)

    def changed(self, path: str, edits: Sequence[Edit], at_s: float, *, accepted: bool = False) -> None:
        document = self._open[path]
        document.text = applied(document.text, edits)
        ended = document.bursts.changed(edits, document.text, at_s, accepted=accepted)
        document.last = None if document.bursts.undone else ended or document.last

    def wait_s(self, *, in_line: bool) -> float:
        return usual_wait_s(in_line=in_line)

    def next(self, path: str, cursor: int) -> Offer | None:
        document = self._open[path]
        burst = document.bursts.open or document.last
        if burst is None or burst.how not in (ChangeOrigin.TYPED, ChangeOrigin.ACCEPTED):
            return None
        found = [
            edit for edit in self._again(burst, document.text) if named(document.text, edit) not in document.refused
        ]
        below = [edit for edit in found if edit.start >= cursor]
        return Offer(path, (below or found[::-1])[0], self.evidence) if found else None

    def refused(self, offer: Offer) -> None:
        document = self._open[offer.path]
        document.refused.add(named(document.text, offer.edit))

    def _again(self, burst: Burst, text: str) -> Iterator[Edit]:
        raise NotImplementedError


class CopiedEdit(_Floor):
    """The lines of the last edit, where they stand again."""

    evidence = "copy"

    def _again(self, burst: Burst, text: str) -> Iterator[Edit]:
        start, end, new = burst.edit
        first = burst.before.rfind("\n", 0, start) + 1
        last = burst.before.find("\n", end)
        last = len(burst.before) if last < 0 else last
        old = burst.before[first:last]
        if old.strip():
            said = burst.after[first : last + len(new) - (end - start)]
            for match in re.finditer(rf"^{re.escape(old)}$", text, re.MULTILINE):
                yield Edit(*match.span(), said)


class ReplacedWords(_Floor):
    """The words of the last edit, where they stand again."""

    evidence = "replace"

    def _again(self, burst: Burst, text: str) -> Iterator[Edit]:
        start, end, new = burst.edit
        before, rest = burst.before, len(burst.before) - burst.edit.end
        while start and _in_word(before[start - 1]) and (_in_word(before[start : start + 1]) or _in_word(new[:1])):
            start -= 1
        while end < len(before) and _in_word(before[end]) and (_in_word(before[end - 1 : end]) or _in_word(new[-1:])):
            end += 1
        old, said = before[start:end], burst.after[start : len(burst.after) - (rest - (end - burst.edit.end))]
        if not any(map(_in_word, old)):
            return
        for match in re.finditer(rf"(?<!\w){re.escape(old)}(?!\w)" if old.strip() == old else re.escape(old), text):
            at = match.start() - said.find(old)
            if old in said and text[at : at + len(said)] == said:
                continue  # it stands there already
            yield Edit(*match.span(), said)


def _in_word(text: str) -> bool:
    return text == "_" or text.isalnum()
