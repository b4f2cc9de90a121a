"""From generated text to a suggestion, or to the reason why there is none. Reads the live document, never the prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from foretype_context.finish.foreign_text import foreign_text
from foretype_context.finish.in_place import parses_in_place
from foretype_context.finish.post_processing import Finished, finish
from foretype_context.prompt.profile import MinMeanLogprob
from foretype_context.syntax.blocks import SuggestionKind, within
from foretype_context.syntax.lexis import Within
from foretype_wire.messages import Finish, Usage

from foretype_client.feedback.feedback import Feedback
from foretype_client.flow.question import Question
from foretype_client.flow.suggestion import Origin, Outcome, Suggestion
from foretype_client.policy.trigger import Trigger

_LEAST_CHARS: Final = 3
"""Of a line that is worth a look."""
_NEAR_CHARS: Final = 32_000
"""On either side of a suggestion's end, more than is ever parsed: in a file of any size it is looked at, not copied."""


class SyntaxFilter:
    """What of a text adds no error of syntax to the file.

    Remembers its last answer: one text is judged several times at a place, and where it is typed through the same stands in the
    file in the end.
    """

    def __init__(self) -> None:
        self._last: tuple[tuple[str, str, int, bool], int, bool | None] | None = None

    def __call__(self, question: Question, text: str, replaces: int) -> tuple[str, bool | None]:
        """The part of `text` to show, and whether all of it parses; None where nobody can tell."""
        file, offset = question.snapshot.text, question.offset
        end, behind = offset + len(text), offset + replaces
        near = f"{file[max(0, end - _NEAR_CHARS) : offset]}{text}{file[behind : behind + _NEAR_CHARS]}"
        asked = question.snapshot.uri, near, end, question.drop_broken
        if self._last is None or self._last[0] != asked:
            kept, parses = self._filtered(question, text, replaces)
            self._last = asked, len(text) - len(kept), parses
        _, dropped, parses = self._last
        return text[: max(0, len(text) - dropped)], parses

    def _filtered(self, question: Question, text: str, replaces: int) -> tuple[str, bool | None]:
        snapshot, offset = question.snapshot, question.offset
        parses = parses_in_place(snapshot, offset, text, replaces)
        if parses is not False or not question.drop_broken:
            return text, parses
        # What goes wrong most often is the end of a block; what is left must at least be a line.
        lines = text.split("\n")
        for kept in dict.fromkeys((len(lines) - 1, 1)):
            part = "\n".join(lines[:kept]).rstrip()
            if kept < len(lines) and part.strip() and parses_in_place(snapshot, offset, part, replaces):
                return part, False
        return "", False


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Generated text with what is known about it.

    Attributes:
        logprob, total_logprob: mean over the tokens that the model wrote; sum over those of `text` and its end.
        replaces: where the text was finished before: characters right of the cursor that it takes the place of.
        settled: the text was judged before, and its beginning typed since: the same stands in the file in the end.
    """

    id: str
    text: str
    kind: SuggestionKind
    final: bool
    source: Origin
    request_id: str = ""
    finish: Finish | None = None
    usage: Usage | None = None
    timings_ms: dict[str, float] | None = None
    logprob: float | None = None
    total_logprob: float | None = None
    replaces: int | None = None
    settled: bool = False


def judge(
    candidate: Candidate, question: Question, feedback: Feedback, now: float, syntax: SyntaxFilter
) -> Suggestion | Outcome:
    """The suggestion that a candidate becomes at the place asked about, or why it becomes none."""
    if not candidate.text.strip():
        return Outcome.EMPTY
    if not _sure(candidate, question):
        if candidate.kind is not SuggestionKind.OPENED or question.line_chance.least > 0:
            return Outcome.LOW_CONFIDENCE
        # The block is not worth showing; the line that opened it may be, as it would have been alone.
        line = replace(candidate, kind=SuggestionKind.LINE, text=candidate.text.partition("\n")[0])
        return judge(line, question, feedback, now, syntax)
    finished = Finished(candidate.text, candidate.replaces or 0)
    if candidate.replaces is None:
        where, kind = question.snapshot, candidate.kind
        finished = finish(candidate.text, where, question.offset, kind=kind, final=candidate.final)
    if not finished.text:
        return Outcome.FILTERED
    text, parses = finished.text, None
    # What this machine learned is the user's own text, and what was judged before is not looked through at each key.
    known = candidate.source is Origin.LOCAL or candidate.settled
    if not known and foreign_text(question.place.line_prefix, text, question.snapshot.text) is not None:
        return Outcome.FOREIGN
    if not candidate.settled:
        text, parses = syntax(question, text, finished.replaces)
    if not text:
        return Outcome.BROKEN
    if not known and question.line_chance.least > 0 and len(text.strip()) < _LEAST_CHARS:
        return Outcome.LOW_CONFIDENCE
    if question.selected is not None:
        rest = question.selected_rest()
        if rest is None or not text.startswith(rest):
            return Outcome.SELECTED_MISMATCH
    if question.trigger is Trigger.AUTOMATIC and feedback.refused(question.place, text, now):
        return Outcome.REFUSED_BEFORE
    return Suggestion(
        id=candidate.id,
        text=text,
        replaces=finished.replaces,
        source=candidate.source,
        request_id=candidate.request_id,
        finish=candidate.finish,
        usage=candidate.usage,
        timings_ms={**(candidate.timings_ms or {}), "shown": (now - question.asked_s) * 1000},
        logprob=candidate.logprob,
        parses=parses,
    )


def _sure(candidate: Candidate, question: Question) -> bool:
    least = question.least
    if least is None or candidate.logprob is None:
        return True
    if candidate.kind in (SuggestionKind.LINE, SuggestionKind.MID_LINE):
        if candidate.finish is Finish.LENGTH:
            return False  # cut where it became unlikely: how sure its beginning was says nothing about the line
        if _chance(candidate, question) < question.line_chance.least:
            return False
    return candidate.logprob >= _least_logprob(least, candidate.kind)


def _chance(candidate: Candidate, question: Question) -> float:
    chance = question.line_chance
    if candidate.total_logprob is None or chance.least == 0:
        return 1.0
    return chance.of(
        candidate.total_logprob,
        len(candidate.text.rstrip()),
        went_on=candidate.finish is Finish.STOP,
        in_comment=chance.in_comment != 0 and within(question.snapshot, question.offset) is Within.COMMENT,
    )


def _least_logprob(least: MinMeanLogprob, kind: SuggestionKind) -> float:
    match kind:
        case SuggestionKind.MID_LINE:
            return least.mid_line
        case SuggestionKind.LINE:
            return least.line
        case SuggestionKind.BLOCK | SuggestionKind.OPENED:
            return least.block
