"""The adaptive model behind the port of local candidates."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final

import numpy as np
from foretype_context.document import Snapshot

from foretype_client.adaptive.blend import CONTEXT_MAX, Corpus, blend, gather
from foretype_client.adaptive.lexemes import LINE_END, Vocabulary, lex
from foretype_client.adaptive.stream import Ids, LexemeStream
from foretype_client.local_model import LocalCandidate

__all__ = ["AdaptiveModel"]

_LEXEMES_MAX: Final = 40
_HALF_WORD: Final = re.compile(r" ?\w+$")
_BLANKS: Final = " \t\r\f\v"


class AdaptiveModel:
    """Suggests the rest of the line from this file and the files seen lately.

    Args:
        confidence_min: candidates below are not shown. From 0.5 on, 58 % were right in rest-of-line cuts of held-out
            repositories, for 36 % of the cuts; while somebody writes new code it is one session in ten.
        documents_max: files kept, least recently used dropped first.
        chars_max: longer files are looked at through a window of this size around the cursor.
        others_lexemes_max: lexemes of other files looked into, latest files first.
        vocabulary_max: different lexemes kept before everything is read afresh.
    """

    def __init__(
        self,
        *,
        confidence_min: float = 0.5,
        documents_max: int = 200,
        chars_max: int = 400_000,
        others_lexemes_max: int = 100_000,
        vocabulary_max: int = 200_000,
    ) -> None:
        self._confidence_min = confidence_min
        self._documents_max = documents_max
        self._chars_max = chars_max
        self._others_lexemes_max = others_lexemes_max
        self._vocabulary_max = vocabulary_max
        self._joined: Ids = np.zeros(0, np.int32)
        self._joined_key: tuple[int, ...] = ()
        self._vocabulary = Vocabulary()
        self._streams: OrderedDict[str, LexemeStream] = OrderedDict()

    def learn(self, uri: str, text: str) -> None:
        """Look into another file from now on; an open document needs no call."""
        self._follow(uri, text[: self._chars_max])

    def forget(self, uri: str) -> None:
        self._streams.pop(uri, None)

    def suggest(self, snapshot: Snapshot, offset: int) -> LocalCandidate | None:
        return self.candidate(snapshot, offset, least=self._confidence_min)

    def candidate(self, snapshot: Snapshot, offset: int, *, least: float = 0.02) -> LocalCandidate | None:
        """The most probable rest of the line; its confidence is the product of its lexemes' chances, `least` or more."""
        line = snapshot.line_of(offset)
        typed = snapshot.text[snapshot.line_start(line) : offset].lstrip(_BLANKS)
        first = self._window(snapshot, line)
        last = snapshot.line_count if first == 0 else self._last(snapshot, line)
        text = snapshot.text[snapshot.line_start(first) : snapshot.line_end(last - 1)]
        stream = self._follow(snapshot.uri, text)
        begin, end = stream.span(line - first)
        lexemes = lex(typed)
        half = lexemes.pop() if lexemes and (lexemes[-1] == " " or _HALF_WORD.match(lexemes[-1])) else ""
        history = [*stream.ids[max(0, begin - CONTEXT_MAX) : begin].tolist(), *self._vocabulary.ids(lexemes)]
        corpora = [Corpus(self._others(snapshot.uri)), Corpus(stream.ids, (begin, end))]
        return self._rest_of_line(corpora, history, half, least)

    def _others(self, uri: str) -> Ids:
        """Everything seen outside `uri`, latest last, in one array: a search costs by the call, not by the lexeme."""
        streams = [stream for other, stream in self._streams.items() if other != uri]
        key = tuple(id(stream.ids) for stream in streams)
        if key != self._joined_key:
            kept: list[Ids] = []
            room = self._others_lexemes_max
            for stream in reversed(streams):
                kept.append(stream.ids[:room])
                room -= len(kept[-1])
            self._joined = np.concatenate(kept[::-1]) if kept else np.zeros(0, np.int32)
            self._joined_key = key
        return self._joined

    def _rest_of_line(
        self, corpora: list[Corpus], history: list[int], half: str, least: float
    ) -> LocalCandidate | None:
        parts: list[str] = []
        confidence = 1.0
        for _ in range(_LEXEMES_MAX):
            evidence = [gather(corpus, history[-CONTEXT_MAX:]) for corpus in corpora]
            allowed: set[int] | None = None
            if half:
                seen = {id for found in evidence for id in found.following}
                allowed = {id for id in seen if self._vocabulary.lexeme(id).startswith(half)}
            chances = blend(evidence, allowed)
            if not chances:
                return None
            best = max(chances, key=chances.__getitem__)
            confidence *= min(chances[best], 1.0)
            if confidence < least:  # it can only fall
                return None
            if best == LINE_END:
                text = "".join(parts)
                return LocalCandidate(text, confidence) if text else None
            parts.append(self._vocabulary.lexeme(best)[len(half) :])
            half = ""
            history.append(best)
        return None

    def _follow(self, uri: str, text: str) -> LexemeStream:
        if len(self._vocabulary) > self._vocabulary_max:
            self._vocabulary = Vocabulary()
            self._streams.clear()
        stream = self._streams.get(uri)
        if stream is None:
            stream = self._streams[uri] = LexemeStream(self._vocabulary, text)
            while len(self._streams) > self._documents_max:
                self._streams.popitem(last=False)
        else:
            stream.update(text)
        self._streams.move_to_end(uri)
        return stream

    def _window(self, snapshot: Snapshot, line: int) -> int:
        """First line looked at; moves in large steps, since each move reads the window afresh."""
        if len(snapshot.text) <= self._chars_max:
            return 0
        step = self._chars_max // 4
        wanted = max(0, snapshot.line_start(line) // step - 2) * step
        return snapshot.line_of(wanted)

    def _last(self, snapshot: Snapshot, line: int) -> int:
        end = min(len(snapshot.text), snapshot.line_start(line) + self._chars_max // 2)
        return snapshot.line_of(end) + 1
