"""From engine chunks to deliverable text: detokenise, scan for stops, keep the log-probabilities in step. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
from foretype_context.prompt.profile import Stop
from foretype_context.tokens.tokenizer import StreamDecoder, Tokenizer

from foretype_backend.engines.port import Chunk
from foretype_backend.errors import EngineUnavailableError
from foretype_backend.serving.stops import StopScanner

_LEAST_LOGPROB = -100.0
"""What an impossible token counts as: JSON has no infinity, and a sum must stay a number."""


class TextDelta(msgspec.Struct, frozen=True):
    """Deliverable text; `logprob` is the sum over the `tokens` tokens that became text since the last delta."""

    text: str
    logprob: float
    tokens: int


def joined(first: TextDelta | None, second: TextDelta | None) -> TextDelta | None:
    """Two deltas that follow each other, as one."""
    if first is None or second is None:
        return first or second
    return TextDelta(first.text + second.text, first.logprob + second.logprob, first.tokens + second.tokens)


def _finite(logprob: float) -> float:
    if logprob > _LEAST_LOGPROB:
        return logprob
    return 0.0 if math.isnan(logprob) else _LEAST_LOGPROB


class OutputText:
    """The text of one completion. Feed chunks; :attr:`stopped` says that a stop rule ended it. What came of a chunk is delivered before the next one.

    Token ids go through one by one, so that a stop in the middle of a chunk of eight tokens cuts exactly there.

    Args:
        shown: control tokens that are delivered, and what they are read as; others are no text.
        first_line_tokens: where `stop` lets the first line open a block: what that line may take; the engine may give more.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Stop,
        *,
        first_line_tokens: int | None = None,
        shown: Mapping[int, bytes] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocabulary_tokens = tokenizer.vocabulary_tokens
        self._decoder = StreamDecoder(tokenizer)
        self._scanner = StopScanner(stop)
        self._stop = stop
        self._skip = 0
        self._delivered = 0  # of the beginning that the prompt left out, before the last chunk
        self._pending_logprob = 0.0
        self._pending_tokens = 0
        self._imposed = len(stop.repeats)
        self.generated_tokens = 0
        self.ended = False
        """Whether a rule has ended it, after the last chunk: :attr:`strayed`, :attr:`stopped`, :attr:`too_long` or :attr:`unlikely` say which."""
        self._first_line_tokens = first_line_tokens
        self._shown = shown or {}
        self._least_logprob = math.log(stop.least_chance) if stop.least_chance > 0 else -math.inf
        self._line_logprob = 0.0

    @property
    def stopped(self) -> bool:
        return self._scanner.stopped

    @property
    def strayed(self) -> bool:
        """Whether it began otherwise than the prompt demands, so that it fits nowhere."""
        return self._scanner.strayed

    @property
    def begun(self) -> bool:
        """Whether all of the beginning that the prompt left out has come."""
        return self._scanner.begun

    def again(self) -> OutputText:
        """The same from its beginning, of which the last chunk was not delivered. What was is not delivered twice."""
        other = OutputText(self._tokenizer, self._stop, first_line_tokens=self._first_line_tokens, shown=self._shown)
        other.generated_tokens = self.generated_tokens
        other._skip = 0 if "\n" in self._stop.repeats else self._delivered
        return other

    def given(self, text: str) -> TextDelta | None:
        """Text that the prompt has, and that the answer is to begin with."""
        self._imposed = max(self._imposed - len(text), 0)
        return self._delta(self._scanner.feed(text))

    @property
    def ending(self) -> TextDelta:
        """What ended the text and became none of it, such as the end token: how sure the model was that nothing follows."""
        return TextDelta("", min(self._pending_logprob, 0.0), self._pending_tokens)

    @property
    def unlikely(self) -> bool:
        """Whether a token has left the line less than the least chance; neither it nor what follows is delivered."""
        return self._line_logprob < self._least_logprob

    @property
    def too_long(self) -> bool:
        """Whether the first line has taken all its tokens and goes on."""
        limit = self._first_line_tokens
        return limit is not None and self.generated_tokens >= limit and self._scanner.in_first_line

    def feed(self, chunk: Chunk) -> TextDelta | None:
        """Take one chunk. Raises EngineUnavailableError when its ids are not of this tokenizer."""
        scanner = self._scanner
        self._delivered = len(scanner.repeated)
        if chunk.text is not None and not chunk.token_ids:
            delta = self._feed_text(chunk.text, chunk.logprobs)
        else:
            delta = self._feed_ids(chunk)
        unlikely = self._line_logprob < self._least_logprob
        self.ended = scanner.stopped or unlikely or (scanner.in_first_line and self.too_long)
        return delta

    def _feed_ids(self, chunk: Chunk) -> TextDelta | None:
        ready: list[str] = []
        ids, logprobs = chunk.token_ids, chunk.logprobs
        self.generated_tokens += len(ids)
        for index, token_id in enumerate(ids):
            if not 0 <= token_id < self._vocabulary_tokens:
                raise EngineUnavailableError(
                    f"the engine produced token id {token_id}; its model and the tokenizer differ"
                )
            logprob = _finite(logprobs[index]) if index < len(logprobs) else 0.0
            text = self._decoder.feed((token_id,))
            if token_id in self._shown:
                text += self._shown[token_id].decode()
            if self._imposed:
                logprob = self._chosen(logprob, text)
            if logprob < 0.0:
                self._line_logprob += logprob
            if self._line_logprob < self._least_logprob:
                ready.append(self._scanner.flush())
                break
            self._pending_logprob += logprob
            self._pending_tokens += 1
            ready.append(self._scanned(text))
            if self._scanner.stopped:
                break
        delta = self._delta("".join(ready))
        if chunk.end_logprob is not None:
            self._pending_logprob += _finite(chunk.end_logprob)
            self._pending_tokens += 1
        return delta

    def _chosen(self, logprob: float, text: str) -> float:
        """A token's log-probability; 0 of one that repeats what the user typed, which was no free choice."""
        repeats, self._imposed = self._imposed > 0, max(self._imposed - len(text), 0)
        return 0.0 if repeats else logprob

    def finish(self) -> TextDelta | None:
        """The engine has ended: deliver what was held back."""
        if self._scanner.stopped or self.unlikely:
            return None
        return self._delta(self._scanner.feed(self._decoder.finish()) + self._scanner.flush())

    def _feed_text(self, text: str, logprobs: Sequence[float]) -> TextDelta | None:
        # Without log-probabilities the count is an estimate: this engine reports no tokens.
        tokens = len(logprobs) or (self._tokenizer.count(text) if text else 0)
        self.generated_tokens += tokens
        if logprobs:
            logprob = sum(map(_finite, logprobs))
            self._line_logprob += min(logprob, 0.0)
            if self.unlikely:
                return self._delta(self._scanner.flush())
            self._pending_logprob += logprob
        self._pending_tokens += tokens
        return self._delta(self._scanned(text))

    def _scanned(self, text: str) -> str:
        if "\n" in text:
            self._line_logprob = 0.0
        return self._scanner.feed(text)

    def _delta(self, text: str) -> TextDelta | None:
        if self._skip:
            text, self._skip = text[self._skip :], max(self._skip - len(text), 0)
        if not text:
            return None
        delta = TextDelta(text, min(self._pending_logprob, 0.0), self._pending_tokens)
        self._pending_logprob = 0.0
        self._pending_tokens = 0
        return delta
