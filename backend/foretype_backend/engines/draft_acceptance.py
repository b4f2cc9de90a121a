"""What speculation is worth, by language: counted on every decode step, shown at `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from foretype_context.syntax.languages import LANGUAGES
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PAYS_FROM: Final = 0.5
"""Share of guesses that must be accepted; below it verifying costs more than it gains."""

_LEAST_STEPS: Final = 200
_OTHER: Final = "other"


class Acceptance(NamedTuple):
    """Decode steps, and the tokens that came out of them."""

    steps: int
    tokens: int

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps if self.steps else 0.0

    def share(self, guessed: float) -> float:
        """Accepted guesses of those made, where `guessed` tokens are guessed each step in the mean."""
        return max(0.0, self.tokens_per_step - 1) / guessed if guessed else 0.0


class Guesses(NamedTuple):
    """Tokens that were guessed, and those of them that were right."""

    made: int = 0
    accepted: int = 0


class AcceptanceBook:
    """Tokens per decode step by language, and guesses of all. Prefill steps give one token and are left out."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self.guesses = Guesses()

    def guessed(self, made: int, accepted: int) -> None:
        """The engine's own counts of a step."""
        if made:
            self.guesses = Guesses(self.guesses.made + made, self.guesses.accepted + accepted)

    def guessed_per_step(self) -> float | None:
        """In the mean of all languages, steps in which nothing was guessed included; None before anything was."""
        steps = sum(self._steps.values())
        return self.guesses.made / steps if steps and self.guesses.made else None

    def note(self, language: str, tokens: int) -> None:
        """A decode step of a request gave so many tokens. A language that we have no grammar for counts as `other`."""
        name = language if language in LANGUAGES else _OTHER
        self._steps[name] += 1
        self._tokens[name] += tokens

    def clear(self) -> None:
        self._steps.clear()
        self._tokens.clear()
        self.guesses = Guesses()

    def languages(self) -> dict[str, Acceptance]:
        return {name: Acceptance(steps, self._tokens[name]) for name, steps in sorted(self._steps.items())}


class AcceptanceCollector(Collector):
    """The book as metrics, with the verdict whether speculation pays for a language.

    Args:
        guessed: most tokens guessed in a step; 0 where nothing is. Methods that look up their guesses find fewer, or none: where
            the engine counts them, its mean is what accepted ones are a share of.
    """

    def __init__(self, book: AcceptanceBook, guessed: int) -> None:
        self._book = book
        self._guessed = guessed

    def collect(self) -> Iterable[Metric]:
        steps = CounterMetricFamily("foretype_decode_steps", "Decode steps of the engine `vllm`.", labels=["language"])
        tokens = CounterMetricFamily("foretype_decode_tokens", "Tokens of these steps.", labels=["language"])
        pays = GaugeMetricFamily(
            "foretype_speculation_pays",
            "1 where enough guesses are accepted for speculation to pay (engine `vllm`).",
            labels=["language"],
        )
        made = CounterMetricFamily("foretype_guessed_tokens", "Tokens that speculation guessed.")
        right = CounterMetricFamily("foretype_guessed_tokens_accepted", "Of them, that the model would have said.")
        made.add_metric([], self._book.guesses.made)
        right.add_metric([], self._book.guesses.accepted)
        per_step = self._book.guessed_per_step() or self._guessed
        for language, found in self._book.languages().items():
            steps.add_metric([language], found.steps)
            tokens.add_metric([language], found.tokens)
            if self._guessed and found.steps >= _LEAST_STEPS:
                pays.add_metric([language], float(found.share(per_step) >= PAYS_FROM))
        yield from (steps, tokens, made, right, pays)
