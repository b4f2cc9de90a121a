"""Whether speculation pays, per language and load: by what was accepted, not by belief. Pure.

A guess that is refused costs the target's time on it, and the more requests are computed at once the less time is left over: measured
(decision 0008), guessing breaks even at a sixth of the guesses accepted for one request, and at 38 % for eight. Half accepted is
therefore enough up to eight, and what lies beyond was not measured. What is switched off is tried now and then, so that a language
that got better is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

__all__ = ["SpeculationOptions", "SpeculationPolicy", "SpeculationStanding", "Verdict"]


class Verdict(StrEnum):
    """Why a request is speculated for or not; also the metric's label."""

    PAYS = "pays"
    UNMEASURED = "unmeasured"
    PROBE = "probe"
    ACCEPTANCE = "acceptance"  # too few guesses are accepted in this language
    BATCH = "batch"  # the engine has better use for its time

    @property
    def on(self) -> bool:
        return self in (Verdict.PAYS, Verdict.UNMEASURED, Verdict.PROBE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationOptions:
    """When speculation is on.

    Attributes:
        off_below, on_above: share of guesses accepted; the gap keeps a language from flapping.
        batch_max: requests in flight on a replica above which nothing is guessed: as many as it was measured to pay for.
        steps_min: engine steps of a language before it is judged.
        window_steps: a language's memory: counts are halved when it is full, so old text does not outvote new.
        probe_every: one request in so many is speculated for although its language is off.
    """

    off_below: float = 0.5
    on_above: float = 0.55
    batch_max: int = 8
    steps_min: int = 200
    window_steps: int = 4_000
    probe_every: int = 32

    def __post_init__(self) -> None:
        if not 0 <= self.off_below <= self.on_above <= 1:
            raise ValueError(f"off_below {self.off_below} and on_above {self.on_above}: 0 ≤ off_below ≤ on_above ≤ 1")
        for name in ("batch_max", "steps_min", "window_steps", "probe_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


class SpeculationStanding(NamedTuple):
    """A language: steps and tokens remembered, the share accepted (None before it is judged), whether it is on."""

    steps: float
    tokens: float
    accepted_share: float | None
    on: bool


@dataclass(slots=True)
class _Language:
    steps: float = 0.0
    tokens: float = 0.0
    on: bool = True
    asked: int = 0


class SpeculationPolicy:
    """Counts steps by language, and says for each request whether to guess.

    Args:
        guesses: tokens guessed per step in the mean, steps without a guess included; changes as the engine counts.
    """

    def __init__(self, guesses: float, options: SpeculationOptions | None = None) -> None:
        if guesses <= 0:
            raise ValueError(f"guesses must be above 0, not {guesses}; an engine that guesses nothing needs no policy")
        self.guesses = guesses
        self.options = options or SpeculationOptions()
        self._languages: dict[str, _Language] = {}
        self._verdicts = dict.fromkeys(Verdict, 0)

    def note(self, language: str, tokens: int) -> None:
        """A decode step that was speculated for gave so many tokens: one of the target, the others accepted guesses."""
        known = self._languages.setdefault(language, _Language())
        known.steps += 1
        known.tokens += tokens
        if known.steps > self.options.window_steps:
            known.steps, known.tokens = known.steps / 2, known.tokens / 2
        share = self._share(known)
        if share is not None:
            known.on = share >= (self.options.off_below if known.on else self.options.on_above)

    def decide(self, language: str, in_flight: int) -> Verdict:
        """For one request, on a replica with so many others in flight. Counted."""
        verdict = self._decide(language, in_flight)
        self._verdicts[verdict] += 1
        return verdict

    def _decide(self, language: str, in_flight: int) -> Verdict:
        if in_flight > self.options.batch_max:
            return Verdict.BATCH
        known = self._languages.setdefault(language, _Language())
        if known.on:
            return Verdict.UNMEASURED if self._share(known) is None else Verdict.PAYS
        known.asked += 1
        return Verdict.PROBE if known.asked % self.options.probe_every == 0 else Verdict.ACCEPTANCE

    def languages(self) -> dict[str, SpeculationStanding]:
        return {
            name: SpeculationStanding(one.steps, one.tokens, self._share(one), one.on)
            for name, one in sorted(self._languages.items())
        }

    def verdicts(self) -> dict[Verdict, int]:
        return dict(self._verdicts)

    def __repr__(self) -> str:
        off = [name for name, one in self._languages.items() if not one.on]
        return f"<SpeculationPolicy of {self.guesses:.1f}: {len(self._languages)} languages, off for {off}>"

    def _share(self, known: _Language) -> float | None:
        if known.steps < self.options.steps_min:
            return None
        return max(0.0, known.tokens / known.steps - 1) / self.guesses
