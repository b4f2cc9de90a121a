"""What the rule that switches guessing off is worth on traffic that turns: time with it beside guessing always, never, and at its best.

The traffic is code, then tables of numbers in the same language, then code again. A table repeats its tokens, so that a lookup always
finds a guess, and the digits are another's. Batches are asked of both engines in turns; then the rule is played over them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

import msgspec
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.fleet.routing.patterns import pattern_of
from foretype_backend.fleet.routing.speculation import SpeculationPolicy
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer

from foretype_lab.fast_tier.asking import hole
from foretype_lab.speculation.bench import Hole, SpeculationOptions, both_sides, holes_of, timed

LANGUAGE: Final = "python"
PHASES: Final = ("code", "numbers", "code again")
_AT_ONCE: Final = 8
_PREFIX_TOKENS: Final = 600
_SUFFIX_TOKENS: Final = 100
_LINES: Final = 60


class Batch(NamedTuple):
    """Requests that were under way together.

    Attributes:
        lines: at the cursor, of each request.
        step_tokens: of each request with guesses: tokens of its decode steps.
        made: guesses, as the engine counts them.
        plain_s, guessed_s: until the last one ended, without guesses and with them.
    """

    phase: str
    lines: tuple[str, ...]
    step_tokens: tuple[tuple[int, ...], ...]
    made: int
    plain_s: float
    guessed_s: float

    @property
    def steps(self) -> int:
        return sum(map(len, self.step_tokens))

    @property
    def accepted(self) -> int:
        return sum(tokens - 1 for steps in self.step_tokens for tokens in steps)


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A phase, in seconds; `best_s` takes the faster side of each batch.

    Attributes:
        accepted_share: of the guesses that the engine counts.
        turned_after: requests of the phase until the rule first said otherwise than at its first one; none where it never did.
    """

    phase: str
    requests: int
    always_s: float
    never_s: float
    rule_s: float
    best_s: float
    accepted_share: float
    guessed_for: int
    turned_after: int | None


async def measure(options: SpeculationOptions, method: str) -> dict[str, Any]:
    """`samples` batches of a phase. Raises EngineUnavailableError, ValueError: the store has too few places."""
    tokenizer = load_tokenizer(options.model / "tokenizer.json")
    count = options.samples * _AT_ONCE
    tokens = _PREFIX_TOKENS, _SUFFIX_TOKENS
    code = holes_of(options, (LANGUAGE,), 2 * count, seed=11, tokens=tokens)[LANGUAGE][: 2 * count]
    draw = random.Random(8)
    numbers = [_numbers(tokenizer, draw) for _ in range(count)]
    async with AsyncExitStack() as ends:
        plain, guessing = await both_sides(ends, options, method)
        batches = [
            await _batch(plain, guessing, phase, asked[_AT_ONCE * number :][:_AT_ONCE], number)
            for phase, asked in zip(PHASES, (code[:count], numbers, code[count:]), strict=True)
            for number in range(options.samples)
        ]
    return {"method": method, "at_once": _AT_ONCE, "phases": [msgspec.to_builtins(one) for one in played(batches)]}


def played(batches: Sequence[Batch]) -> list[Played]:
    """The rule over the batches as they came: of a batch it pays the share of requests that it guesses for."""
    policy: SpeculationPolicy | None = None
    made = steps = 0
    rows: list[Played] = []
    for phase in PHASES:
        asked = [batch for batch in batches if batch.phase == phase]
        verdicts: list[bool] = []
        rule_s = 0.0
        for batch in asked:
            made, steps = made + batch.made, steps + batch.steps
            policy = policy or SpeculationPolicy(max(made / steps, 1e-9))
            policy.counted(max(made / steps, 1e-9))
            on = [policy.decide(LANGUAGE, pattern_of(line, LANGUAGE), 1).on for line in batch.lines]
            for line, tokens, guessed in zip(batch.lines, batch.step_tokens, on, strict=True):
                for many in tokens if guessed else ():
                    policy.note(LANGUAGE, pattern_of(line, LANGUAGE), many)
            share = sum(on) / len(on)
            rule_s += share * batch.guessed_s + (1 - share) * batch.plain_s
            verdicts += on
        rows.append(
            Played(
                phase=phase,
                requests=len(verdicts),
                always_s=round(sum(batch.guessed_s for batch in asked), 2),
                never_s=round(sum(batch.plain_s for batch in asked), 2),
                rule_s=round(rule_s, 2),
                best_s=round(sum(min(batch.guessed_s, batch.plain_s) for batch in asked), 2),
                accepted_share=round(
                    sum(batch.accepted for batch in asked) / max(1, sum(one.made for one in asked)), 3
                ),
                guessed_for=sum(verdicts),
                turned_after=next((n for n, one in enumerate(verdicts) if one != verdicts[0]), None),
            )
        )
    return rows


def _numbers(tokenizer: Tokenizer, draw: random.Random) -> Hole:
    """A table in a Python file; the cursor begins a value in its middle."""

    def line() -> str:
        return "    (" + ", ".join(str(draw.randrange(10_000, 100_000)) for _ in range(4)) + "),\n"

    above = "TABLE = [\n" + "".join(line() for _ in range(_LINES)) + "    ("
    below = "".join(["\n", *(line() for _ in range(_LINES)), "]\n"])
    return Hole(hole(tokenizer, above, below, _PREFIX_TOKENS, _SUFFIX_TOKENS), "    (")


async def _batch(plain: VllmEngine, guessing: VllmEngine, phase: str, places: Sequence[Hole], number: int) -> Batch:
    """Of both engines, the one first that was second before."""
    sides = (plain, guessing) if number % 2 else (guessing, plain)
    took = {engine is guessing: await timed(engine, _AT_ONCE, [place.ids for place in places]) for engine in sides}
    answers, guessed_s, guesses = took[True]
    return Batch(
        phase=phase,
        lines=tuple(place.line for place in places),
        step_tokens=tuple(one.step_tokens[1:] for one in answers),
        made=guesses.made,
        plain_s=took[False][1],
        guessed_s=guessed_s,
    )
