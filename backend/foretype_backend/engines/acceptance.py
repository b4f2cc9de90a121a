"""What speculation is worth, by language: counted on every decode step, shown at `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from foretype_context.languages import LANGUAGES
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["PAYS_FROM", "Acceptance", "AcceptanceBook", "AcceptanceCollector"]

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

    def share(self, guessed: int) -> float:
        """Accepted guesses of those made, where `guessed` tokens are guessed each step."""
        return max(0.0, self.tokens_per_step - 1) / guessed if guessed else 0.0


class AcceptanceBook:
    """Tokens per decode step by language. Prefill steps give one token and are left out."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()

    def note(self, language: str, tokens: int) -> None:
        """A decode step of a request gave so many tokens. A language that we have no grammar for counts as `other`."""
        name = language if language in LANGUAGES else _OTHER
        self._steps[name] += 1
        self._tokens[name] += tokens

    def clear(self) -> None:
        self._steps.clear()
        self._tokens.clear()

    def languages(self) -> dict[str, Acceptance]:
        return {name: Acceptance(steps, self._tokens[name]) for name, steps in sorted(self._steps.items())}


class AcceptanceCollector(Collector):
    """The book as metrics, with the verdict whether speculation pays for a language.

    Args:
        guessed: tokens guessed in each step; 0 where nothing is.
    """

    def __init__(self, book: AcceptanceBook, guessed: int) -> None:
        self._book = book
        self._guessed = guessed

    def collect(self) -> Iterable[Metric]:
        steps = CounterMetricFamily("foretype_decode_steps", "Decode steps of the engine.", labels=["language"])
        tokens = CounterMetricFamily("foretype_decode_tokens", "Tokens of these steps.", labels=["language"])
        pays = GaugeMetricFamily(
            "foretype_speculation_pays",
            f"1 where at least {PAYS_FROM:.0%} of the guesses are accepted; after {_LEAST_STEPS} steps of the language.",
            labels=["language"],
        )
        for language, found in self._book.languages().items():
            steps.add_metric([language], found.steps)
            tokens.add_metric([language], found.tokens)
            if self._guessed and found.steps >= _LEAST_STEPS:
                pays.add_metric([language], float(found.share(self._guessed) >= PAYS_FROM))
        yield from (steps, tokens, pays)
