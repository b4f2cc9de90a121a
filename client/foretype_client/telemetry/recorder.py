"""From what the flow tells to telemetry events. Pure: times are handed in, events come out of `take`.

Definitions: docs/telemetry.md; the events and their fields: :mod:`foretype_wire.telemetry`.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from foretype_context.prompt.segments import Segment
from foretype_context.syntax.document import Change, Snapshot
from foretype_wire.errors import RequestRefusedError
from foretype_wire.messages import Complete
from foretype_wire.telemetry import (
    Accept,
    Caret,
    Dismiss,
    DismissKind,
    Display,
    Event,
    Feel,
    Opportunity,
    Request,
    Result,
    Sample,
    Survive,
    Typing,
)

from foretype_client.feedback.feedback import (
    Accepted,
    Ended,
    EndReason,
    Feedback,
    FeedbackEvent,
    Graft,
    PartiallyAccepted,
    Taken,
)
from foretype_client.flow.flow import CompletionFlow
from foretype_client.flow.inflight import Flight
from foretype_client.flow.question import Question
from foretype_client.flow.suggestion import Outcome, Suggestion
from foretype_client.policy.trigger import SkipReason
from foretype_client.telemetry.next_edits import NextEditLog
from foretype_client.telemetry.survival import Due, Survival, SurvivingShare

_REMEMBERED: Final = 512
_WAITING_MOST: Final = 10_000
_PREFIX_CHARS: Final = 4_000
_SUFFIX_CHARS: Final = 1_000
_JUMP_MS: Final = 2_000
_TYPING_S: Final = 60.0
_INDENTED_MOST: Final = 80
_NOT_ALLOWED: Final = frozenset(reason for reason in SkipReason if not reason.leaves_local)
"""Policy allows no suggestion there, so nothing was missed; a pause, the gateway's or the machine's, is a miss of ours."""

_DISMISSED: Final = {EndReason.DIVERGED: DismissKind.TYPED_OVER, EndReason.LEFT: DismissKind.MOVED}

_V = TypeVar("_V")


class _Arm(NamedTuple):
    """Whose doing something is: of a suggestion those that it was asked under, however late its end is told."""

    model: str = ""
    experiment: str = ""
    variant: str = ""
    block: int = 0


@dataclass(frozen=True, slots=True)
class _About:
    """What a suggestion was the answer to; texts only where they may be recorded."""

    opportunity: str
    request: str
    language: str
    texts: tuple[str, str, str] | None
    arm: _Arm


class Latencies:
    """Milliseconds from asking to showing of the last suggestions, and how many there were in all."""

    def __init__(self) -> None:
        self.count: int = 0
        self._last: deque[float] = deque(maxlen=_REMEMBERED)

    def add(self, ms: float) -> None:
        self.count += 1
        self._last.append(ms)

    def at(self, share: float) -> float:
        """Nearest rank; 0 before the first."""
        ordered = sorted(self._last)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0

    def __len__(self) -> int:
        return len(self._last)


@dataclass(slots=True)
class _Typed:
    """What was typed by hand in one language since `since_s` (monotonic seconds)."""

    since_s: float
    keys: int = 0
    deletions: int = 0


@dataclass(slots=True)
class _Current:
    """The newest question of a document."""

    key: tuple[int, int]
    opportunity: str
    language: str
    told: bool = False


class Recorder:
    """One editor's events.

    Args:
        session: unique id of this client process, 1 to 64 visible ASCII characters.
        feedback: asked for the texts that accepts put into documents.
        editor: what it calls itself.
        now, wall_ms: monotonic seconds and Unix milliseconds at this moment.
        clock: monotonic seconds.
        stirred: called when there is something to take, or to measure later.
    """

    def __init__(
        self,
        session: str,
        feedback: Feedback,
        *,
        clock: Callable[[], float],
        wall_ms: int,
        texts: bool = False,
        editor: str = "",
        stirred: Callable[[], object] = lambda: None,
    ) -> None:
        self._stirred = stirred
        self.session = session
        self.texts = texts
        self._arm = _Arm()
        self._editor = _name("-".join(editor.lower().split()))
        self.dropped: int = 0
        self.shown: Latencies = Latencies()
        self.changed_s: float = -math.inf
        self.survival: Survival = Survival()
        self.next_edits: NextEditLog = NextEditLog(self._add, clock, self.survival)
        self._unseen: list[Graft] = []
        self._feedback = feedback
        self._clock = clock
        self._began_s = clock()
        self._wall_ms = float(wall_ms)
        self._seq = 0
        self._opportunities = 0
        self._events: list[Event] = []
        self._current: dict[str, _Current] = {}
        self._about: OrderedDict[str, _About] = OrderedDict()
        self._typed: dict[str, _Typed] = {}
        self._calls: OrderedDict[str, tuple[Complete[Segment], str | None, _Arm]] = OrderedDict()

    def set_wall(self, wall_ms: int) -> None:
        """What the wall clock says now. A jump is taken over; a small drift is not, so that the order of events stays."""
        now_ms = (self._clock() - self._began_s) * 1000
        if abs(self._wall_ms + now_ms - wall_ms) > _JUMP_MS:
            self._wall_ms = wall_ms - now_ms

    @property
    def at_rest(self) -> bool:
        """Whether nothing is to be taken or measured, now or later, unless something happens."""
        return not (self._events or self._typed or self._unseen or len(self.survival))

    def take(self, *, everything: bool = False) -> list[Event]:
        """Events since the last call; with `everything`, what was typed in the minute that is not over too."""
        now_s = self._clock()
        for language, typed in list(self._typed.items()):
            if everything or now_s - typed.since_s >= _TYPING_S:
                del self._typed[language]
                self._add(Typing, now_s, language, keys=typed.keys, deletions=typed.deletions)
        events, self._events = self._events, []
        return events

    # What the flow tells

    def follow(self, flow: CompletionFlow) -> None:
        """Listen from now on."""
        events = flow.events
        events.opened.add(self.opened)
        events.changed.add(self.changed)
        events.closed.add(self.closed)
        events.asked.add(self.asked)
        events.answered.add(self.answered)
        events.sent.add(self.sent)
        events.landed.add(self.landed)
        flow.reacted.add(self.told)

    def asked(self, question: Question) -> None:
        self._follow(question)
        snapshot = question.snapshot
        key = (snapshot.version, question.offset)
        current = self._current.get(snapshot.uri)
        if current is None or current.key != key:
            self._opportunities += 1
            self._current[snapshot.uri] = _Current(key, f"o{self._opportunities}", snapshot.language)

    def answered(self, question: Question, result: Suggestion | str) -> None:
        snapshot = question.snapshot
        self._follow(question)
        current = self._current.get(snapshot.uri)
        if current is None or current.key != (snapshot.version, question.offset):
            # A newer question has taken over; this one was an opportunity of its own.
            self._opportunities += 1
            current = _Current((snapshot.version, question.offset), f"o{self._opportunities}", snapshot.language)
        if not current.told and (isinstance(result, Suggestion) or result not in _NOT_ALLOWED):
            current.told = True
            found = isinstance(result, Suggestion)
            parses = result.parses if found else False if result is Outcome.BROKEN else None
            self._opportunity(question, current, result.source if found else str(result), parses)
        if isinstance(result, Suggestion):
            if (ms := result.timings_ms.get("shown")) is not None:
                self.shown.add(max(0.0, ms))
            texts = None
            if self.texts:
                text, at = snapshot.text, question.offset
                texts = (text[max(0, at - _PREFIX_CHARS) : at], text[at : at + _SUFFIX_CHARS], result.text)
            about = _About(current.opportunity, result.request_id, snapshot.language, texts, self._arm)
            _remember(self._about, result.id, self._about.get(result.id, about))

    def _opportunity(self, question: Question, current: _Current, outcome: str, parses: bool | None) -> None:
        snapshot, offset = question.snapshot, question.offset
        line = snapshot.line_of(offset)
        if not question.place.line_prefix.strip():
            caret = Caret.LINE_START
        elif not snapshot.text[offset : snapshot.line_end(line)].strip():
            caret = Caret.LINE_END
        else:
            caret = Caret.MID_LINE
        key = self.session.encode()[:64]
        document = blake2b(snapshot.uri.encode("utf-8", "surrogatepass"), digest_size=8, key=key).hexdigest()
        self._add(
            Opportunity,
            question.asked_s,
            current.language,
            id=current.opportunity,
            document=document,
            trigger=str(question.trigger),
            caret=caret,
            outcome=_label(outcome),
            parses=parses,
        )

    def _opportunity_of(self, call: Complete[Segment]) -> str | None:
        """The newest question of a call's document, if it was asked of the same text."""
        current = self._current.get(call.document)
        return current.opportunity if current is not None and current.key[0] == call.version else None

    def sent(self, flight: Flight, call: Complete[Segment]) -> None:
        # Its segments hold text, and are not needed any more.
        call = msgspec.structs.replace(call, segments=())
        _remember(self._calls, flight.id, (call, self._opportunity_of(call), self._arm))

    def landed(self, flight: Flight) -> None:
        known = self._calls.pop(flight.id, None)
        if known is None:
            return
        call, opportunity, arm = known
        opportunity = opportunity or self._opportunity_of(call)  # a request may be sent before its question is there
        done, ended_s = flight.done, flight.ended_s if flight.ended_s is not None else self._clock()
        usage = None if done is None else done.usage
        self._add(
            Request,
            flight.sent_s,
            call.language,
            arm,
            id=flight.id,
            opportunity=opportunity,
            request_class=str(call.class_),
            prompt_tokens=(call.prompt_tokens or 0)
            if usage is None or not usage.prompt_tokens
            else usage.prompt_tokens,
            cached_tokens=0 if usage is None else usage.cached_tokens,
            supersedes=call.supersedes,
        )
        error = flight.error
        finish = "dropped" if flight.dropped else "" if done is None else str(done.finish)
        if error is not None:
            finish = str(error.code) if isinstance(error, RequestRefusedError) else "gateway_gone"
        logprob = flight.mean_logprob
        self._add(
            Result,
            ended_s,
            call.language,
            arm,
            id=flight.id,
            first_ms=None if flight.first_s is None else max(0.0, (flight.first_s - flight.sent_s) * 1000),
            last_ms=max(0.0, (ended_s - flight.sent_s) * 1000),
            generated_tokens=flight.tokens if usage is None else usage.generated_tokens,
            tokens_after_cancel=0 if usage is None else usage.tokens_after_cancel,
            characters=len(flight.strand.text),
            finish=_label(finish),
            request_class=str(call.class_),
            logprob=None if logprob is None else min(0.0, max(-1e6, logprob)),
            stages_ms={name: round(max(0.0, ms), 3) for name, ms in flight.timings_ms().items()},
        )

    def told(self, event: FeedbackEvent) -> None:
        about = self._about.get(event.id)
        match event:
            case PartiallyAccepted():
                self._accept(event, str(event.kind), about, reported=not event.inferred)
            case Accepted():
                if not event.late:
                    self._display(event, about, "typed" if event.how is Taken.TYPED else "accepted")
                if event.added_characters:
                    self._accept(event, "full", about, reported=event.how is Taken.REPORTED)
            case Ended():
                self._display(event, about, str(event.reason))
                if event.rejected and (kind := _DISMISSED.get(event.reason)) is not None:
                    language, arm = ("", None) if about is None else (about.language, about.arm)
                    self._add(Dismiss, event.at_s, language, arm, id=event.id, shown=event.session, kind=kind)
            case _:
                pass  # that it was displayed stands in the display's own event
        for graft in self._feedback.grafts():
            self.survival.accepted(graft)
            self._unseen.append(graft)
            self._stirred()
        del self._unseen[:-_REMEMBERED]

    def opened(self, snapshot: Snapshot) -> None:
        self.changed_s: float = self._clock()
        self.survival.opened(snapshot.uri, snapshot.text)

    def changed(self, change: Change) -> None:
        self.changed_s = change.at_s
        self._count(change)
        self.survival.changed(change)

    def closed(self, uri: str) -> None:
        self.survival.closed(uri)
        self._current.pop(uri, None)

    def felt(self, answer: str) -> None:
        """What was answered to the question whether completions feel instant."""
        p50_ms, p95_ms = (round(self.shown.at(share), 3) for share in (0.5, 0.95))
        self._add(Feel, self._clock(), "", answer=answer, p50_ms=p50_ms, p95_ms=p95_ms, suggestions=len(self.shown))

    # What becomes of accepted text

    def unseen(self) -> list[Graft]:
        """Texts that were accepted since the last call."""
        unseen, self._unseen = self._unseen, []
        return unseen

    def due(self) -> list[Due]:
        """Accepted texts to measure now; give the measurements to `survived`. Next edits are measured here."""
        return [one for one in self.survival.due(self._clock()) if not self.next_edits.measured(one)]

    def survived(self, measured: Sequence[SurvivingShare], *, branch_changed: Callable[[Due], bool]) -> None:
        for one in measured:
            graft, about = one.due.graft, self._about.get(one.due.graft.id)
            self._add(
                Survive,
                graft.at_s + one.due.age_s,
                "" if about is None else about.language,
                None if about is None else about.arm,
                id=graft.id,
                shown=graft.session,
                age_s=one.due.age_s,
                characters=len(graft.text),
                length_now=len(one.due.now),
                arc=min(one.due.arc, len(graft.text)),
                levenshtein=one.levenshtein,
                fourgram=one.fourgram,
                branch_changed=branch_changed(one.due),
            )

    # Inside

    def _follow(self, question: Question) -> None:
        """Whose model the events are about from now on: with the first question, or its own request would be nobody's."""
        if question.profile is not None:
            profile = question.profile
            self._arm = _Arm(_name(profile.model), _name(profile.experiment), _name(profile.variant), profile.block)

    def _count(self, change: Change) -> None:
        """Whether a change was a key: by how much longer it makes the text, or a line ending with the indentation after it."""
        text, more = change.edit.text, change.edit.growth
        if more > 2 and not (more <= _INDENTED_MOST and not text.strip() and text.count("\n") == 1):
            return
        typed = self._typed.setdefault(change.after.language, _Typed(change.at_s))
        self._stirred()
        if more < 0:
            typed.deletions += 1
        elif text:
            typed.keys += 1

    def _accept(self, event: PartiallyAccepted | Accepted, kind: str, about: _About | None, *, reported: bool) -> None:
        self._add(
            Accept,
            event.at_s,
            "" if about is None else about.language,
            None if about is None else about.arm,
            id=event.id,
            shown=event.session,
            kind=kind,
            how="reported" if reported else "inferred",
            characters=event.added_characters,
            lines=event.added_lines,
        )

    def _display(self, event: Accepted | Ended, about: _About | None, end: str) -> None:
        visible_ms = max(0.0, event.visible_ms)
        language, arm = ("", None) if about is None else (about.language, about.arm)
        self._add(
            Display,
            event.at_s - visible_ms / 1000,
            language,
            arm,
            id=event.id,
            shown=event.session,
            opportunity=None if about is None else about.opportunity,
            request=(about.request or None) if about is not None else None,
            served_from=_label(str(event.served_from)),
            display_source=str(event.display_source),
            visible_ms=round(visible_ms, 3),
            characters=event.characters,
            lines=event.lines,
            end=end,
        )
        if about is not None and about.texts is not None and self.texts:
            prefix, suffix, suggestion = about.texts
            self._add(
                Sample,
                event.at_s,
                language,
                arm,
                id=event.id,
                shown=event.session,
                prefix=prefix,
                suffix=suffix,
                suggestion=suggestion,
                accepted=end == "accepted",
            )

    def _add(
        self, make: Callable[..., Event], at_s: float, language: str, arm: _Arm | None = None, **fields: Any
    ) -> None:
        at_ms = max(0.0, (at_s - self._began_s) * 1000)
        self._seq += 1
        event = make(
            session=self.session,
            seq=self._seq,
            t_ms=max(0, int(self._wall_ms + at_ms)),
            at_ms=round(at_ms, 3),
            language=_name(language),
            editor=self._editor,
            **(self._arm if arm is None else arm)._asdict(),
            **fields,
        )
        if len(self._events) < _WAITING_MOST:
            self._events.append(event)
            self._stirred()
        else:  # nobody takes them; losing telemetry must cost nothing else
            self.dropped += 1


def _remember(kept: OrderedDict[str, _V], key: str, value: _V) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > _REMEMBERED:
        kept.popitem(last=False)


def _label(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text.lower())[:32]


def _name(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.+#:/-") else "_" for c in text)[:64]
