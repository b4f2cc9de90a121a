"""Requests that are running: what has come so far, and whether it is enough to answer with. Pure; times are handed in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from foretype_context.prompt.healing import HealedText
from foretype_context.prompt.plan import Plan
from foretype_context.syntax.blocks import SuggestionKind
from foretype_wire.errors import GatewayGoneError, RequestRefusedError
from foretype_wire.messages import Delta, Done, Finish, RequestClass

from foretype_client.flow.cache import CachedAnswer
from foretype_client.flow.planning import Draft
from foretype_client.flow.strands import Place, Strand
from foretype_client.ports import CompletionStream
from foretype_client.sources.all_sources import SourceNote

_WORDS: Final = re.compile(r"(.*\W)\w*$", re.DOTALL)
_GOOD_ENDS: Final = (Finish.END_OF_MIDDLE, Finish.STOP, Finish.LENGTH)
ASKED: Final = (RequestClass.INTERACTIVE, RequestClass.BLOCK)
"""Classes of what somebody waits for."""
_TELLS_CHARS: Final = 2
"""So many characters more, and another token, may change what a model thinks of a line; one does not (docs/measurements/client-policy.md)."""
_BLOCKS: Final = (SuggestionKind.BLOCK, SuggestionKind.OPENED)


class AnswerRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a stream has enough text to answer an editor, which cannot be streamed to.

    Attributes:
        block_lines: a multi-line suggestion is answered as soon as it has this many lines that say something.
        answer_after_first_ms: after the first token, answer this late with what is whole: lines, else words.
        wanted_after_first_ms: the same where no confidence is asked for, so that more text cannot make an answer unwanted.
        redraw_ms: while more is coming, what is shown stays as it is this long: lines that come faster are read as flicker.
    """

    block_lines: int = 3
    answer_after_first_ms: float = 250.0
    wanted_after_first_ms: float = 250.0
    redraw_ms: float = 250.0

    @classmethod
    def growing(cls) -> AnswerRules:
        """For an editor that asks again when it is told that a suggestion grew: its beginning need not wait for its end."""
        return cls(answer_after_first_ms=25.0, wanted_after_first_ms=0.0)


@dataclass(slots=True)
class Flight:
    """One request on its way.

    Attributes:
        strand: the text so far, from the place that was asked for.
        kind: as planned, until the first line has opened a block.
        sent_s, first_s, ended_s: monotonic seconds; None before it happens.
        logprob, tokens: sums over the deltas, and what ended the answer; the mean is known only where the engine gives
            log-probabilities.
        healing: takes off what the answer repeats of the text left of the cursor; garbled, it fits nowhere.
        begun: what of the text was there before the gateway was asked: the rest of the popup's selected item.
        at_line_end: the last delta ended a line.
        dropped: cancelled by us, because the user went another way.
        draft, notes: what the prompt was made of and when, and what each source of other files' snippets had to say.
    """

    id: str
    strand: Strand
    kind: SuggestionKind
    stream: CompletionStream
    sent_s: float
    class_: RequestClass = RequestClass.INTERACTIVE
    debounce_ms: float = 0.0
    first_s: float | None = None
    ended_s: float | None = None
    done: Done | None = None
    error: RequestRefusedError | GatewayGoneError | None = None
    logprob: float = 0.0
    tokens: int = 0
    healing: HealedText = field(default_factory=lambda: HealedText(""))
    begun: str = ""
    at_line_end: bool = False
    dropped: bool = False
    draft: Draft | None = None
    notes: tuple[SourceNote, ...] = ()

    @property
    def plan(self) -> Plan | None:
        return None if self.draft is None else self.draft.plan

    @property
    def running(self) -> bool:
        return self.ended_s is None

    @property
    def wanted(self) -> bool:
        """Running, and not given up."""
        return self.ended_s is None and not self.dropped

    @property
    def complete(self) -> bool:
        """Ended as the gateway meant it to: the text is all there is."""
        return self.done is not None and self.done.finish in _GOOD_ENDS

    @property
    def whole(self) -> bool:
        """See :attr:`Finish.is_whole`."""
        return self.done is not None and self.done.finish.is_whole

    @property
    def mean_logprob(self) -> float | None:
        return self.logprob / self.tokens if self.tokens else None

    def logprob_of(self, rest: str) -> float | None:
        """As :meth:`Strand.share_of`, of the answer's sum of log-probabilities."""
        return self.strand.share_of(rest, self.logprob) if self.tokens else None

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first_s is None else (self.first_s - self.sent_s) * 1000

    @property
    def ahead(self) -> bool:
        """Asked for before the user got there."""
        return self.class_ is RequestClass.SPECULATIVE

    def rules_out(self, place: Place, healed: int) -> bool:
        """Whether asking at `place` is in vain, because this answer became too unlikely to be shown and too little was typed since.

        Args:
            healed: characters before `place` that its prompt leaves out, since they may be part of a token. Where no other token begins
                than here, the model would go on from the same prompt.
        """
        asked, plan = self.strand.place, self.plan
        if self.done is None or self.done.finish is not Finish.LENGTH or plan is None:
            return False
        if (place.key, place.profile) != (asked.key, asked.profile) or not place.line_prefix.startswith(
            asked.line_prefix
        ):
            return False
        typed = len(place.line_prefix) - len(asked.line_prefix)
        return typed < _TELLS_CHARS or typed == healed - len(plan.healed)

    def so_far(self, rest: str) -> str:
        """What of `rest` is whole: all of it at the end, whole lines with their line breaks before."""
        return rest if self.complete else rest[: rest.rfind("\n") + 1]

    def add(self, delta: Delta, now: float) -> None:
        if self.first_s is None:
            self.first_s = now
        self.logprob += delta.logprob
        self.tokens += delta.tokens
        text = self.healing.feed(delta.text)
        self.at_line_end = "\n" in text
        if not self.healing.garbled:
            self.strand.extend(text)
            if self.at_line_end and self.plan is not None:
                self.kind = self.plan.kind_of(self.strand.text)

    def end(self, done: Done) -> None:
        self.done = done
        self.logprob += done.logprob
        self.tokens += done.tokens

    def timings_ms(self) -> dict[str, float]:
        """Milliseconds by stage, as far as known."""
        timings: dict[str, float] = {}
        if self.done is not None:
            timings = {name: float(value) for name, value in msgspec.structs.asdict(self.done.timings_ms).items()}
        timings["debounce"] = self.debounce_ms
        timings["assemble"] = 0.0 if self.draft is None else self.draft.assemble_ms
        ttft_ms = self.ttft_ms
        if ttft_ms is not None:
            timings["ttft"] = ttft_ms
            if self.done is not None:
                inside_ms = sum(timings[name] for name in ("admit", "queue", "prefill", "decode_first"))
                timings["network"] = max(0.0, ttft_ms - inside_ms)
        return timings

    def entry(self) -> CachedAnswer | None:
        """What of an ended flight the cache may keep: all of it, or the whole lines of one that was cut short."""
        if self.class_ is RequestClass.WARM:
            return None  # a single token, asked for so that the prompt is computed
        mean = self.mean_logprob
        if self.done is not None and self.complete:
            done, usage = self.done.finish, self.done.usage
            return CachedAnswer(self.id, self.strand, self.kind, done, mean, self.tokens, usage, self.ahead, self.begun)
        lines = self.so_far(self.strand.text)
        if not lines.strip():
            return None
        usage = None if self.done is None else self.done.usage
        return CachedAnswer(
            self.id,
            Strand(self.strand.place, lines),
            self.kind,
            Finish.CANCELLED,
            mean,
            self.tokens,
            usage,
            self.ahead,
            self.begun,
        )


class ReadyText(NamedTuple):
    """Text to answer with; `final` when more would not change it. Whole lines end in their line breaks if not final."""

    text: str
    final: bool
    kind: SuggestionKind


def ripe(
    flight: Flight, rest: str, now: float, rules: AnswerRules, *, wanted: bool = False
) -> ReadyText | float | None:
    """Whether `rest`, what a flight has for the place asked about, is enough to answer with.

    Args:
        wanted: whatever it says is shown, however unsure the model is.

    Returns:
        The text to answer with; or the time (monotonic seconds) at which to look again if nothing comes before; or None
        when only more text, or the end, can tell.
    """
    if not flight.running:
        return ReadyText(flight.so_far(rest), flight.whole, flight.kind)
    if flight.first_s is None:
        return None
    if flight.kind not in _BLOCKS:
        line, newline, _ = rest.partition("\n")
        if newline:
            return ReadyText(line, True, flight.kind)
    elif (lines := _first_lines(rest, rules.block_lines)) is not None:
        return ReadyText(lines, False, flight.kind)
    after_ms = rules.wanted_after_first_ms if wanted else rules.answer_after_first_ms
    answer_s = flight.first_s + after_ms / 1000
    if now < answer_s:
        return answer_s
    lines = flight.so_far(rest)
    if lines.strip():
        return ReadyText(lines, False, flight.kind)
    if not wanted:
        return None  # how sure the beginning of a line is says nothing about the line
    words = _WORDS.match(rest)
    if words is None or not words[1].strip():
        return None
    # The beginning of one line is all there is, whatever was asked for.
    return ReadyText(words[1].rstrip(), False, SuggestionKind.LINE if flight.kind in _BLOCKS else flight.kind)


def _first_lines(text: str, count: int) -> str | None:
    """The first `count` whole lines that say something; None if there are fewer."""
    at = 0
    while (end := text.find("\n", at)) >= 0:
        if text[at:end].strip():
            count -= 1
            if count == 0:
                return text[: end + 1]
        at = end + 1
    return None
