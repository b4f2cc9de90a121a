"""What llama.vim asks its server for, keystroke by keystroke, as a state machine with injected time and randomness.

Written from the behaviour of `autoload/llama.vim` at commit a1c8e6e (2026-01-31), and checked against requests recorded from the
plugin itself in Neovim (`tests/lab/test_peer_llama_vim.py`). In short:

- every move of the caret in insert mode asks, unless a request runs: then once more 100 ms later; nothing is cancelled;
- the first request may decode 250 ms; as soon as a hint shows, the state after accepting it is asked for, with 1,000 ms;
- answers are kept under four keys (the text, and the text without its first one, two, three lines), 250 of them; a hint is found by
  going back up to 128 characters;
- a ring of 16 chunks of other places goes in front; a queued chunk enters once a second when the caret rested for 3 s, and the
  server is then warmed with the ring alone.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Final, Protocol

import msgspec

_REST_S: Final = 3.0
_QUEUE_MAX: Final = 16
_BACK_CHARACTERS: Final = 128
_HEADS_CUT: Final = 3
_PICK_DISTANCE_LINES: Final = 32
_SAME: Final = 0.9
_ECHO: Final = 0.5
_NOT_WORD: Final = re.compile(r"[^0-9A-Za-z_]+")
_FIRST_LINE: Final = re.compile(r"\A[^\n]*\n")
_BLANK: Final = re.compile(r"[ \t]*\Z")


class LlamaVimOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The plugin's settings that change what is sent; values are its defaults."""

    n_prefix: int = 256
    n_suffix: int = 64
    n_predict: int = 128
    t_max_prompt_ms: int = 500
    first_predict_ms: int = 250
    t_max_predict_ms: int = 1000
    top_p: float = 0.90
    retry_ms: int = 100
    max_line_suffix: int = 8
    max_cache_keys: int = 250
    ring_n_chunks: int = 16
    ring_chunk_size: int = 64
    ring_scope: int = 1024
    ring_update_ms: int = 1000


class Sent(StrEnum):
    """Why a request goes out."""

    COMPLETION = "completion"
    SPECULATIVE = "speculative"
    WARM_UP = "warm_up"


@dataclass(frozen=True, slots=True)
class Buffer:
    """The file in the window, and the caret: `y` counts lines from 1, `x` characters from 0."""

    path: str
    lines: tuple[str, ...]
    x: int
    y: int

    def part(self, first: int, last: int) -> list[str]:
        """Lines `first` to `last`, both counted from 1 and both included; empty where they cross."""
        return list(self.lines[max(first, 1) - 1 : last]) if last >= first else []

    def line(self, y: int) -> str:
        return self.lines[y - 1] if 1 <= y <= len(self.lines) else ""


@dataclass(frozen=True, slots=True)
class Hint:
    """What stands on the screen.

    Attributes:
        before: the caret's line up to the hint, as accepting leaves it.
        content: lines of the hint; the last one ends with the text right of the caret.
        tail: that text.
        can_accept: an empty hint is shown as well, and cannot be taken.
    """

    before: str
    content: tuple[str, ...]
    tail: str
    can_accept: bool

    @property
    def text(self) -> str:
        """What would be inserted at the caret."""
        return "\n".join(self.content).removesuffix(self.tail) if self.tail else "\n".join(self.content)


class Timer(Protocol):
    def cancel(self) -> None: ...


Later = Callable[[float, Callable[[], None]], Timer]
"""Calls a function after so many seconds."""

Send = Callable[[dict[str, Any], Sent, Callable[[str | None], None]], None]
"""Sends a request body; the callback gets the text of the answer, None where there is none."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    lines: tuple[str, ...]
    path: str

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Local:
    prefix: str
    middle: str
    suffix: str
    indent: int
    right: str

    @property
    def key(self) -> str:
        return f"{self.prefix}{self.middle}\xce{self.suffix}"


@dataclass(slots=True)
class _Ring:
    chunks: list[_Chunk] = field(default_factory=list[_Chunk])
    queued: list[_Chunk] = field(default_factory=list[_Chunk])


class LlamaVim:
    """The plugin, for one editor in insert mode.

    Args:
        clock: seconds; `later`: a timer on the same clock.
        on_hint: called when something new is shown.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        later: Later,
        send: Send,
        rng: Random,
        options: LlamaVimOptions | None = None,
        on_hint: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._later = later
        self._send = send
        self._rng = rng
        self._options = options or LlamaVimOptions()
        self._on_hint = on_hint
        self._buffer = Buffer("", ("",), 0, 1)
        self._cache: OrderedDict[str, str] = OrderedDict()
        self._ring = _Ring()
        self._hint: Hint | None = None
        self._running = False
        self._retry: Timer | None = None
        self._moved_s = clock()
        self._picked_y = -9999
        self._indent = -1

    @property
    def hint(self) -> Hint | None:
        return self._hint

    def start(self) -> None:
        """Begin to look after the ring once a second."""
        self._later(self._options.ring_update_ms / 1000, self._tick)

    def entered(self, buffer: Buffer) -> None:
        """A file comes into the window."""
        self._buffer = buffer
        self._later(0.1, self._pick_around)

    def saved(self) -> None:
        self._pick_around()

    def left(self) -> None:
        """The file leaves the window, unmodified."""
        self._pick_around()

    def moved(self, buffer: Buffer, *, inserting: bool = True) -> None:
        """The caret stands elsewhere: after a key, or by itself."""
        self._buffer = buffer
        self._moved_s = self._clock()
        self._hint = None
        if inserting:
            self._try_hint()
            self._fim(None, ())

    # --- requests

    def _fim(self, place: tuple[int, int] | None, after: tuple[str, ...]) -> None:
        """Ask for the caret's place, or for `place` as if the lines `after` had been accepted there."""
        if self._running:
            if self._retry is not None:
                self._retry.cancel()
            self._retry = self._later(self._options.retry_ms / 1000, lambda: self._fim(place, after))
            return
        options, buffer = self._options, self._buffer
        x, y = place or (buffer.x, buffer.y)
        local = self._local(x, y, after)
        if len(local.right) > options.max_line_suffix:
            return
        keys = [local.key]
        prefix = local.prefix
        for _ in range(_HEADS_CUT):
            prefix = _FIRST_LINE.sub("", prefix)
            if not prefix:
                break
            keys.append(f"{prefix}{local.middle}\xce{local.suffix}")
        # Every key is touched until one hits, as the plugin's least-recently-used order does.
        if any(self._cached(key) is not None for key in keys):
            return
        self._indent = local.indent
        half = options.ring_chunk_size // 2
        around = self._half(buffer.part(buffer.y - half, min(buffer.y + half, len(buffer.lines))))
        self._ring.chunks = [chunk for chunk in self._ring.chunks if _similarity(chunk.lines, around) <= _ECHO]
        body: dict[str, Any] = {
            "id_slot": 0,
            "input_prefix": local.prefix,
            "input_suffix": local.suffix,
            "input_extra": self._extra(),
            "prompt": local.middle,
            "n_predict": options.n_predict,
            "stop": [],
            "n_indent": local.indent,
            "top_k": 40,
            "top_p": options.top_p,
            "samplers": ["top_k", "top_p", "infill"],
            "stream": False,
            "cache_prompt": True,
            "t_max_prompt_ms": options.t_max_prompt_ms,
            "t_max_predict_ms": options.t_max_predict_ms if after else options.first_predict_ms,
        }
        self._running = True
        self._send(body, Sent.SPECULATIVE if after else Sent.COMPLETION, lambda text: self._answered(keys, text))
        if abs(y - self._picked_y) > _PICK_DISTANCE_LINES:
            count = len(buffer.lines)
            self._pick(buffer.part(y - options.ring_scope, max(1, y - options.n_prefix)), evict=False)
            below = min(count, y + options.n_suffix)
            self._pick(buffer.part(below, min(count, below + options.ring_chunk_size)), evict=False)
            self._picked_y = y

    def _answered(self, keys: Sequence[str], text: str | None) -> None:
        if text is not None:
            for key in keys:
                if len(self._cache) > self._options.max_cache_keys - 1:
                    self._cache.popitem(last=False)
                self._cache[key] = text
                self._cache.move_to_end(key)
            if self._hint is None or not self._hint.can_accept:
                # The job still counts as running here, so that what follows a hint waits for the timer.
                self._try_hint()
        self._running = False

    def _cached(self, key: str) -> str | None:
        if key in self._cache:
            self._cache.move_to_end(key)
        return self._cache.get(key)

    def _local(self, x: int, y: int, after: tuple[str, ...]) -> _Local:
        options, buffer = self._options, self._buffer
        line = buffer.line(y)
        below = buffer.part(y + 1, min(len(buffer.lines), y + options.n_suffix))
        if not after:
            above = buffer.part(y - options.n_prefix, y - 1)
            left, right = line[:x], line[x:]
            if _BLANK.match(line):
                left, right, indent = "", "", 0
            else:
                indent = len(line) - len(line.lstrip(" \t"))
        else:
            above = buffer.part(y - options.n_prefix + len(after) - 1, y - 1)
            if len(after) > 1:
                above += [line + after[0], *after[1:-1]]
                left = after[-1]
            else:
                left = line + next(iter(after))
            right, indent = "", self._indent
        return _Local("\n".join(above) + "\n", left, right + "\n" + "\n".join(below) + "\n", indent, right)

    # --- hints

    def _try_hint(self) -> None:
        buffer = self._buffer
        local = self._local(buffer.x, buffer.y, ())
        found = self._cached(local.key)
        if found is None:
            text, best = local.prefix + local.middle, 0
            for back in range(1, _BACK_CHARACTERS + 1):
                earlier = self._cached(f"{text[:-back]}\xce{local.suffix}")
                if earlier is None or earlier[:back] != text[-back:]:
                    continue
                rest = earlier[back:]
                if not rest:
                    continue
                if found is None:
                    found = rest
                elif len(rest) > best:
                    best, found = len(rest), rest
        if found is None:
            return
        self._hint = self._render(found)
        self._on_hint()
        self._fim((buffer.x, buffer.y), self._hint.content)

    def _render(self, text: str) -> Hint:
        buffer = self._buffer
        content = text.split("\n")
        while content and content[-1] == "":
            content.pop()
        can_accept = bool(content)
        content = content or [""]
        line = buffer.line(buffer.y)
        if _BLANK.match(line):
            # The model starts at the line's beginning there; what stands already is not shown again.
            blank = len(content[0]) - len(content[0].lstrip(" \t"))
            lead = min(blank, len(line))
            line, content[0] = content[0][:lead], content[0][lead:]
        before, tail = line[: buffer.x], line[buffer.x :]
        content = self._without_repetition(content, before, tail)
        content[-1] += tail
        if not "".join(content).strip(" \t"):
            can_accept = False
        return Hint(before, tuple(content), tail, can_accept)

    def _without_repetition(self, content: list[str], before: str, tail: str) -> list[str]:
        buffer = self._buffer
        y, count = buffer.y, len(buffer.lines)
        if len(content) > 1 and content[0] == "" and content[1:] == buffer.part(y + 1, y + len(content) - 1):
            content = [""]
        if len(content) == 1 and content[0] == tail:
            content = [""]
        following = y + 1
        while following < count and _BLANK.match(buffer.line(following)):
            following += 1
        if before + content[0] == buffer.line(following):
            if len(content) == 1:
                return [""]
            if len(content) == 2 and content[-1] == buffer.line(following + 1)[: len(content[-1])]:
                return [""]
            if len(content) > 2 and content[1:] == buffer.part(following + 1, following + len(content) - 1):
                return [""]
        return content

    # --- the ring

    def _tick(self) -> None:
        options = self._options
        self._later(options.ring_update_ms / 1000, self._tick)
        if self._clock() - self._moved_s < _REST_S or not self._ring.queued:
            return
        if len(self._ring.chunks) == options.ring_n_chunks:
            self._ring.chunks.pop(0)
        self._ring.chunks.append(self._ring.queued.pop(0))
        body: dict[str, Any] = {
            "id_slot": 0,
            "input_prefix": "",
            "input_suffix": "",
            "input_extra": self._extra(),
            "prompt": "",
            "n_predict": 0,
            "temperature": 0.0,
            "samplers": [],
            "stream": False,
            "cache_prompt": True,
            "t_max_prompt_ms": 1,
            "t_max_predict_ms": 1,
        }
        self._send(body, Sent.WARM_UP, lambda _: None)

    def _extra(self) -> list[dict[str, str]]:
        return [{"text": chunk.text, "filename": chunk.path} for chunk in self._ring.chunks]

    def _pick_around(self) -> None:
        half = self._options.ring_chunk_size // 2
        buffer = self._buffer
        self._pick(buffer.part(buffer.y - half, min(buffer.y + half, len(buffer.lines))), evict=True)

    def _half(self, lines: list[str]) -> list[str]:
        half = self._options.ring_chunk_size // 2
        first = self._rng.randint(0, max(0, len(lines) - half))
        return lines[first : min(first + half, len(lines)) + 1]

    def _pick(self, lines: list[str], *, evict: bool) -> None:
        if self._options.ring_n_chunks <= 0 or len(lines) < 3:
            return
        chosen = lines if len(lines) + 1 < self._options.ring_chunk_size else self._half(lines)
        chunk = _Chunk(tuple(chosen), self._buffer.path)
        ring = self._ring
        if any(known.lines == chunk.lines for known in (*ring.chunks, *ring.queued)):
            return
        for known in (ring.queued, ring.chunks):
            for at in range(len(known) - 1, -1, -1):
                if _similarity(known[at].lines, chunk.lines) > _SAME:
                    if not evict:
                        return
                    del known[at]
        if len(ring.queued) == _QUEUE_MAX:
            ring.queued.pop(0)
        ring.queued.append(chunk)


def _similarity(left: Sequence[str], right: Sequence[str]) -> float:
    words = [word for word in _NOT_WORD.split("\n".join(left)) if word]
    others = [word for word in _NOT_WORD.split("\n".join(right)) if word]
    known = set(words)
    total = len(words) + len(others)
    return 2 * sum(word in known for word in others) / total if total else 1.0
