"""The shape of Continue's requests: one question after a pause, a window of the file in tokens, what it got kept by its prefix.

Written from `core/autocomplete` of continuedev/continue at commit d0a3c0b (2026-06-18), its defaults, and no snippets of other files: it
has those from an editor's own services. The server ends what the client would have ended: after 375 ms at the next line, and after 64 tokens where
none comes (the client takes up to 4,096, and shows what it has after 300 ms).
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from foretype_context.syntax.document import Change, Snapshot

from foretype_lab.peer.assistants import InfillServer, OneSlot
from foretype_lab.peer.clocks import Clock
from foretype_lab.peer.recorded_typist import Offer

_STOPS: Final = ["/src/", "#- coding: utf-8", "```"]
_KEPT: Final = 1000


class AskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that change what is sent.

    Attributes:
        characters_per_token: the client counts with an encoder of another model; code has about so many.
    """

    debounce_s: float
    prefix_tokens: int
    suffix_tokens: int
    n_predict: int
    t_max_predict_ms: int
    characters_per_token: float = 3.5


CONTINUE: Final = AskOptions(debounce_s=0.35, prefix_tokens=307, suffix_tokens=204, n_predict=64, t_max_predict_ms=375)


class SingleAsks:
    """A client at the desk that asks once the typist rests, before a real llama.cpp server.

    What is typed of a kept answer is shown at once and asks nothing.
    """

    def __init__(self, server: InfillServer, loop: Clock, options: AskOptions) -> None:
        self._slot = OneSlot(server, loop)
        self._loop = loop
        self._options = options
        self._kept: dict[str, str] = {}
        self._asked = 0
        self._visible = ("", "")  # the prefix at which it was shown, and the text
        self.rows = self._slot.rows
        self.news = asyncio.Event()
        self.offer: Offer | None = None

    def opened(self, snapshot: Snapshot) -> None: ...

    def entered(self, snapshot: Snapshot, caret: int) -> None:
        self._hide()

    def left(self, snapshot: Snapshot, caret: int, *, modified: bool) -> None:
        self._hide()

    def moved(self, snapshot: Snapshot, caret: int) -> None:
        self._hide()

    def taken(self) -> None: ...

    def changed(self, change: Change, caret: int, *, asks: bool) -> None:
        before = self.offer
        self._hide()
        if not asks:
            return
        text = change.after.text
        prefix, suffix = self._window(text, caret)
        if (known := self._known(prefix)) is not None:
            same = before is not None and "".join(self._visible).endswith(prefix[-200:] + known)
            self._show(prefix, known, before.since_s if before is not None and same else self._loop.time())
            return
        self._slot.start(self._ask(self._asked, change.after.path, prefix, suffix))

    async def close(self) -> None:
        await self._slot.close()

    def _hide(self) -> None:
        self._asked += 1
        self.offer = None

    def _show(self, prefix: str, text: str, since_s: float) -> None:
        if text.strip():
            self._visible, self.offer = (prefix, text), Offer(text, since_s)
            self.news.set()

    def _window(self, text: str, caret: int) -> tuple[str, str]:
        """Whole lines from the top of the window, and to its bottom."""
        most = round(self._options.prefix_tokens * self._options.characters_per_token)
        least = round(self._options.suffix_tokens * self._options.characters_per_token)
        start = caret - most
        start = 0 if start <= 0 else text.find("\n", start, caret) + 1 or start
        end = caret + least
        end = len(text) if end >= len(text) else max(text.rfind("\n", caret, end), caret)
        return text[start:caret], text[caret:end] or "\n"

    def _known(self, prefix: str) -> str | None:
        for back in range(min(len(prefix), 200) + 1):
            kept = self._kept.get(prefix[: len(prefix) - back])
            if kept is not None:
                return kept[back:] if kept.startswith(prefix[len(prefix) - back :]) else None
        return None

    async def _ask(self, mine: int, path: str, prefix: str, suffix: str) -> None:
        await asyncio.sleep(self._options.debounce_s)
        if mine != self._asked:
            return
        mark = "#" if path.endswith(".py") else "//"
        body = {
            "input_prefix": f"{mark} {'/'.join(path.split('/')[-2:])}\n{prefix}",
            "input_suffix": suffix,
            "prompt": "",
            "n_predict": self._options.n_predict,
            "t_max_predict_ms": self._options.t_max_predict_ms,
            "stop": _STOPS,
            "temperature": 0.01,
            "top_k": 1,
            "cache_prompt": True,
            "stream": False,
        }
        text = _finished(await self._slot.ask(body, "completion"), suffix)
        self._kept[prefix] = text
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        if mine == self._asked:
            self._show(prefix, text, self._loop.time())


def _finished(text: str, suffix: str) -> str:
    """Cut before an empty line, and before the line that stands below already."""
    below = next((line for line in suffix.split("\n")[1:] if line.strip()), None)
    lines: list[str] = []
    for number, line in enumerate(text.split("\n")):
        if number and (not line.strip() or line == below):
            break
        lines.append(line)
    return "\n".join(lines)
