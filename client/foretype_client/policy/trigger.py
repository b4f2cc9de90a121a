"""Trigger policy: whether a keystroke becomes a request, and when.

Pure: `decide(state, ask, now)` says `Skip`, `Wait` or `Now`; times are monotonic seconds handed in. Nothing here knows how
long the gateway takes, so a slower server can never cause more requests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from foretype_context.syntax.lexis import Within

from foretype_client.policy.machine import Spared
from foretype_client.policy.switches import Switches

_CLOSERS_RIGHT: Final = re.compile(r"^\s*[)>}\]\"'`]*\s*[:{;,]?\s*$")
"""What may stand right of the cursor without making it the middle of a line (source: Copilot's inline suggestions)."""

_CLOSERS_CHARS_MAX: Final = 200
_REACTIONS_KEPT: Final = 10

_COMPLETES: Final = {Within.COMMENT: True, Within.STRING: False}
"""Where nobody says."""


def closers_only(right_of_cursor: str) -> bool:
    """Whether the rest of a line is only what an editor or the user closes with."""
    return len(right_of_cursor) <= _CLOSERS_CHARS_MAX and _CLOSERS_RIGHT.match(right_of_cursor.strip()) is not None


class Trigger(StrEnum):
    AUTOMATIC = "automatic"
    INVOKED = "invoked"


class SkipReason(StrEnum):
    """Why nothing is asked for; also the metric label."""

    MID_LINE = "mid_line"
    IN_COMMENT = "in_comment"
    IN_STRING = "in_string"
    EXCLUDED = "excluded"
    TOO_LARGE = "too_large"
    DELETION = "deletion"
    PAUSED = "paused"
    SPARED = "spared"

    @property
    def leaves_local(self) -> bool:
        """Whether the local candidate, which costs nothing, is shown all the same."""
        return self in (SkipReason.PAUSED, SkipReason.SPARED)


class EditorRequest(NamedTuple):
    """One request of an editor, as policy sees it.

    Attributes:
        trigger: typed, or asked for by the user.
        left, right: the cursor's line on either side of it.
        changed_s: arrival of the document's last change; None if it never changed.
        characters: length of the document.
        excluded: why this file is never sent (secret, binary, minified …); None if it may be.
        within: what the cursor stands in that is no code; only looked at where `PolicyOptions` cares.
        language: LSP language id.
        deleted: the last change only took text away.
        debounce_ms: of the gateway's profile, in place of the options'; None where it names none.
    """

    trigger: Trigger
    left: str
    right: str
    changed_s: float | None
    characters: int
    excluded: str | None = None
    within: Within | None = None
    language: str = ""
    deleted: bool = False
    debounce_ms: float | None = None


class Skip(NamedTuple):
    reason: SkipReason


class Wait(NamedTuple):
    """Ask at `until_s`, unless something newer comes first."""

    until_s: float


class Now(NamedTuple):
    pass


Decision = Skip | Wait | Now


class Reaction(NamedTuple):
    """What the user did with a suggestion that was displayed, and when."""

    at_s: float
    accepted: bool


class PolicyState(NamedTuple):
    """What policy remembers: the last reactions of this user, and a pause that the gateway asked for."""

    reactions: tuple[Reaction, ...] = ()
    paused_until_s: float = -math.inf


class PolicyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of the trigger policy; every number is configurable.

    Attributes:
        debounce_ms: quiet time after the last change before a request; 0 at the start of a line.
        rejected_factor, accepted_factor: what one reaction multiplies the debounce by, fading with `decay_s` (source of the
            form: Copilot's user interaction monitor). Seven rejections and three acceptances leave it as it is: who takes
            what is usual waits no longer than `debounce_ms` (decision 0010).
        debounce_min_ms, debounce_max_ms: clamp of the result; a plain debounce outside of them stays as it is. Narrow on
            purpose: most suggestions are refused, and a debounce of 150 ms already halves the requests of 75.
        file_chars_max: longer documents are never completed.
        in_comments, in_strings: whether to complete there unasked, by LSP language id, `*` for all others. Of a language
            that neither names: in comments, and not in strings (docs/evaluation.md has what a replay says of it).
        switches: which parts of the policy are on.
    """

    debounce_ms: float = 75.0
    rejected_factor: float = 1.1
    accepted_factor: float = 0.8
    decay_s: float = 600.0
    debounce_min_ms: float = 50.0
    debounce_max_ms: float = 150.0
    file_chars_max: int = 5_000_000
    in_comments: Mapping[str, bool] = {}
    in_strings: Mapping[str, bool] = {}
    switches: Switches = Switches()

    def __post_init__(self) -> None:
        for name in ("debounce_ms", "debounce_min_ms", "debounce_max_ms", "decay_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")
        if self.debounce_min_ms > self.debounce_max_ms:
            raise ValueError(
                f"debounce_min_ms ({self.debounce_min_ms}) is above debounce_max_ms ({self.debounce_max_ms})"
            )

    def completes_within(self, within: Within, language: str) -> bool:
        """Whether to complete unasked in a comment or string of a language."""
        chosen = self.in_comments if within is Within.COMMENT else self.in_strings
        return chosen.get(language, chosen.get("*", _COMPLETES[within]))

    def completes_everywhere(self, language: str) -> bool:
        """Whether where the cursor stands need not be looked at."""
        return all(self.completes_within(within, language) for within in Within)


def _never(_now: float) -> None: ...


class Policy:
    """When a keystroke becomes a request, over injected time.

    Args:
        spared: why the machine that computes is left alone at a time (monotonic seconds); None where it is not.
    """

    def __init__(self, options: PolicyOptions | None = None, spared: Callable[[float], Spared | None] = _never) -> None:
        self.options: PolicyOptions = options or PolicyOptions()
        self._spared = spared

    def spared(self, now: float) -> Spared | None:
        """Why nothing is asked unasked at `now`; None where it may be."""
        return self._spared(now) if self.options.switches.spare else None

    def decide(self, state: PolicyState, ask: EditorRequest, now: float) -> Decision:
        """What to do with `ask` at `now` (monotonic seconds)."""
        if (reason := self._obstacle(state, ask, now)) is not None:
            return Skip(reason)
        if ask.trigger is Trigger.INVOKED or ask.changed_s is None or not ask.left.strip():
            return Now()
        # From the change, not from the request: the editor's own delay is not added to ours.
        until_s = ask.changed_s + self.debounce_ms(state, now, ask.debounce_ms) / 1000
        return Wait(until_s) if until_s > now else Now()

    def debounce_ms(self, state: PolicyState, now: float, given_ms: float | None = None) -> float:
        """The debounce after the user's own reactions, each fading over `decay_s`; of `given_ms`, where it is given."""
        options = self.options
        plain_ms = options.debounce_ms if given_ms is None else given_ms
        factor = 1.0
        for reaction in state.reactions if options.switches.adaptive_debounce else ():
            weight = options.accepted_factor if reaction.accepted else options.rejected_factor
            age_s = max(0.0, now - reaction.at_s)
            factor *= 1 + (weight - 1) * (math.exp(-age_s / options.decay_s) if options.decay_s else 0.0)
        low = min(options.debounce_min_ms, plain_ms)
        high = max(options.debounce_max_ms, plain_ms)
        return min(high, max(low, plain_ms * factor))

    def reacted(self, state: PolicyState, *, accepted: bool, now: float) -> PolicyState:
        """The state after the user took or refused a displayed suggestion."""
        return state._replace(reactions=(*state.reactions, Reaction(now, accepted))[-_REACTIONS_KEPT:])

    def pause(self, state: PolicyState, *, retry_after_ms: float, now: float) -> PolicyState:
        """The state after the gateway asked to be left alone for a while."""
        return state._replace(paused_until_s=max(state.paused_until_s, now + retry_after_ms / 1000))

    def _obstacle(self, state: PolicyState, ask: EditorRequest, now: float) -> SkipReason | None:
        if ask.excluded is not None:
            return SkipReason.EXCLUDED
        if ask.characters > self.options.file_chars_max:
            return SkipReason.TOO_LARGE
        if ask.trigger is Trigger.AUTOMATIC:
            if not closers_only(ask.right):
                return SkipReason.MID_LINE
            if ask.within is not None and not self.options.completes_within(ask.within, ask.language):
                return SkipReason.IN_COMMENT if ask.within is Within.COMMENT else SkipReason.IN_STRING
            if ask.deleted and self.options.switches.skip_deletions:
                return SkipReason.DELETION
        # Last: files that are never completed do not get a local candidate either, a pause does.
        if now < state.paused_until_s:
            return SkipReason.PAUSED
        if ask.trigger is Trigger.AUTOMATIC and self.spared(now) is not None:
            return SkipReason.SPARED
        return None
