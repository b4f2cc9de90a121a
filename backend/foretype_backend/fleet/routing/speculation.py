"""Whether speculation pays, per language, pattern and load: by what was accepted, not by belief. Pure.

A guess that is refused costs the target's time on it, and the more requests are computed at once the less time is left over: measured
(decision 0008), guessing breaks even at a sixth of the guesses accepted for one request, and at 38 % for eight. Half accepted is
therefore enough up to eight, and what lies beyond was not measured. A language switches it off, and so does, within a language, what
stands at the cursor (:mod:`foretype_backend.fleet.routing.patterns`); one language's poor guesses say nothing of another's. What is
switched off is tried now and then, and judged anew by that alone: what was counted before would outvote what got better for hundreds of
requests. A request that is guessed for in vain takes 7 % longer, one that is not guessed for where it pays a quarter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from foretype_backend.fleet.routing.patterns import Pattern


class SpeculationVerdict(StrEnum):
    """Why a request is speculated for or not; also the metric's label."""

    PAYS = "pays"
    UNMEASURED = "unmeasured"
    PROBE = "probe"
    ACCEPTANCE = "acceptance"  # too few guesses are accepted in this language
    PATTERN = "pattern"  # too few are accepted at such places
    BATCH = "batch"  # the engine has better use for its time

    @property
    def on(self) -> bool:
        return self in (SpeculationVerdict.PAYS, SpeculationVerdict.UNMEASURED, SpeculationVerdict.PROBE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationOptions:
    """When speculation is on.

    Attributes:
        off_below, on_above: share of guesses accepted; the gap keeps a language or pattern from flapping.
        batch_max: requests in flight on a replica above which nothing is guessed: as many as it was measured to pay for.
        steps_min: engine steps of a language or pattern before it is judged.
        window_steps: their memory: counts are halved when it is full, so old text does not outvote new.
        probe_every: one request in so many is speculated for although its language or pattern is off.
        probe_steps: steps of such requests after which what is off is judged anew.
    """

    off_below: float = 0.5
    on_above: float = 0.55
    batch_max: int = 8
    steps_min: int = 200
    window_steps: int = 1_000
    probe_every: int = 8
    probe_steps: int = 64

    def __post_init__(self) -> None:
        if not 0 <= self.off_below <= self.on_above <= 1:
            raise ValueError(f"off_below {self.off_below} and on_above {self.on_above}: 0 ≤ off_below ≤ on_above ≤ 1")
        for name in ("batch_max", "steps_min", "window_steps", "probe_every", "probe_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


class SpeculationStanding(NamedTuple):
    """A language or pattern: steps and tokens remembered, the share accepted as it was judged last (None before that), whether it is on."""

    steps: float
    tokens: float
    accepted_share: float | None
    on: bool


@dataclass(slots=True)
class _Kind:
    steps: float = 0.0
    tokens: float = 0.0
    on: bool = True
    asked: int = 0
    judged: float | None = None


class SpeculationPolicy:
    """Counts steps by language, and in each by pattern; says for each request whether to guess: where either is off, no.

    Args:
        guesses: tokens guessed per step in the mean, steps without a guess included.
    """

    def __init__(self, guesses: float, options: SpeculationOptions | None = None) -> None:
        if guesses <= 0:
            raise ValueError(f"guesses must be above 0, not {guesses}; an engine that guesses nothing needs no policy")
        self._guesses = guesses
        self.options = options or SpeculationOptions()
        self._languages: dict[str, _Kind] = {}
        self._patterns: dict[tuple[str, Pattern], _Kind] = {}
        self._verdicts = dict.fromkeys(SpeculationVerdict, 0)

    def counted(self, guesses: float) -> None:
        """The engine guesses so many tokens per step by now."""
        self._guesses = guesses

    def note(self, language: str, pattern: Pattern, tokens: int) -> None:
        """A decode step that was speculated for gave so many tokens: one of the target, the others accepted guesses."""
        for known in self._kinds(language, pattern):
            known.steps += 1
            known.tokens += tokens
            if known.steps > self.options.window_steps:
                known.steps, known.tokens = known.steps / 2, known.tokens / 2
            share = self._share(known)
            if share is None:
                continue
            known.judged = share
            known.on = share >= (self.options.off_below if known.on else self.options.on_above)
            if not known.on:
                known.steps = known.tokens = 0.0

    def decide(self, language: str, pattern: Pattern, in_flight: int) -> SpeculationVerdict:
        """For one request, on a replica with so many others in flight. Counted."""
        verdict = self._decide(language, pattern, in_flight)
        self._verdicts[verdict] += 1
        return verdict

    def _decide(self, language: str, pattern: Pattern, in_flight: int) -> SpeculationVerdict:
        if in_flight > self.options.batch_max:
            return SpeculationVerdict.BATCH
        kinds = self._kinds(language, pattern)
        off = [known for known in kinds if not known.on]
        if not off:
            return (
                SpeculationVerdict.UNMEASURED
                if any(self._share(one) is None for one in kinds)
                else SpeculationVerdict.PAYS
            )
        for known in off:
            known.asked += 1
        if any(known.asked % self.options.probe_every == 0 for known in off):
            return SpeculationVerdict.PROBE
        return SpeculationVerdict.ACCEPTANCE if off[0] is kinds[0] else SpeculationVerdict.PATTERN

    def _kinds(self, language: str, pattern: Pattern) -> tuple[_Kind, _Kind]:
        by_language = self._languages.setdefault(language, _Kind())
        return by_language, self._patterns.setdefault((language, pattern), _Kind())

    def languages(self) -> dict[str, SpeculationStanding]:
        return {name: self._standing(one) for name, one in sorted(self._languages.items())}

    def patterns(self) -> dict[tuple[str, Pattern], SpeculationStanding]:
        """By language and pattern."""
        return {name: self._standing(one) for name, one in sorted(self._patterns.items())}

    def verdicts(self) -> dict[SpeculationVerdict, int]:
        return dict(self._verdicts)

    def _standing(self, known: _Kind) -> SpeculationStanding:
        return SpeculationStanding(known.steps, known.tokens, known.judged, known.on)

    def _share(self, known: _Kind) -> float | None:
        if known.steps < (self.options.steps_min if known.on else self.options.probe_steps):
            return None
        return max(0.0, known.tokens / known.steps - 1) / self._guesses
