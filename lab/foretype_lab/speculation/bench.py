"""Speculative decoding on vLLM: tokens a second, guesses accepted, and the share from which they pay, beside the same requests without it.

Prompts are holes in held-out files in the order that the shipped network has (suffix, then prefix), warm in the prefix cache; answers are
greedy, so that a method changes the time and not the text. A step's price is the time of a step with guesses over that of one without.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from foretype_backend.engines.draft_acceptance import Guesses
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_context.tokens.tokenizer import load_tokenizer
from foretype_models.artifacts import locate
from foretype_models.export import write_folder

from foretype_lab.corpus.store import Store
from foretype_lab.fast_tier.asking import Answered, ask, hole, started
from foretype_lab.quality.behave import cuts_of

DRAFT: Final = "draft_model"
METHODS: Final = ("ngram", "suffix", DRAFT)
ALL: Final = "all"
_WRITTEN_TOKENS: Final = 48
_PREFIX_TOKENS: Final = 900
_SUFFIX_TOKENS: Final = 200


class SpeculationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure.

    Attributes:
        model: a folder as `foretype models export` writes it.
        store: folder with a text store that the model was not trained on.
        at_once: requests in flight.
        samples: places of each language for each of `at_once`.
        guesses: tokens guessed in a step, at most.
        draft_layers: of the shipped network, which are the draft of `draft_model`: no training.
    """

    model: Path
    store: Path
    languages: tuple[str, ...]
    methods: tuple[str, ...]
    at_once: tuple[int, ...]
    samples: int
    guesses: int
    draft_layers: int = 0


class Hole(NamedTuple):
    """A prompt, and the line at its cursor."""

    ids: list[int]
    line: str


class Row(NamedTuple):
    """One method at one load.

    Attributes:
        gain: tokens a second, times those without guesses.
        accepted_share: of the guesses that the engine counts.
        step_ratio: seconds of a step, times those without guesses.
        breaks_even: the share accepted at which a token takes as long as without guesses, as many being made.
        equal: requests whose text is the one without guesses.
    """

    method: str
    at_once: int
    language: str
    requests: int
    tokens_per_s: float
    gain: float
    accepted_share: float
    tokens_per_step: float
    step_ratio: float
    breaks_even: float
    equal: int


class Run(NamedTuple):
    """What the requests of one language at one load came to.

    Attributes:
        answers: token ids, request by request.
        steps: of all requests, each of which writes one token or more.
        made, accepted: guesses, as the engine counts them.
    """

    answers: list[tuple[int, ...]]
    seconds: float
    steps: int
    made: int
    accepted: int

    @property
    def tokens(self) -> int:
        return sum(map(len, self.answers))


async def measure(options: SpeculationOptions) -> list[Row]:
    """Rows by method, load and language, `all` last; both sides in turns. Raises EngineUnavailableError, ValueError."""
    prompts = prompts_of(options)
    rows: list[Row] = []
    for method in options.methods:
        pairs = await _in_turns(options, method, prompts)
        for at_once in options.at_once:
            keys = [(at_once, language) for language in options.languages]
            rows += [row(method, *key, *pairs[key]) for key in keys]
            rows.append(row(method, at_once, ALL, *map(added, zip(*(pairs[key] for key in keys), strict=True))))
    return rows


def prompts_of(options: SpeculationOptions) -> dict[tuple[int, str], list[list[int]]]:
    """For each load and language prompts of its own, as token ids. Raises ValueError where the store has too few places."""
    count = options.samples * len(options.at_once)
    holes = holes_of(options, options.languages, count, seed=5, tokens=(_PREFIX_TOKENS, _SUFFIX_TOKENS))
    return {
        (at_once, language): [one.ids for one in holes[language][number :: len(options.at_once)][: options.samples]]
        for number, at_once in enumerate(options.at_once)
        for language in options.languages
    }


def holes_of(
    options: SpeculationOptions, languages: Sequence[str], count: int, *, seed: int, tokens: tuple[int, int]
) -> dict[str, list[Hole]]:
    """By language, `count` or more of each; `tokens` of prefix and suffix. Raises ValueError where the store has too few places."""
    tokenizer = load_tokenizer(options.model / "tokenizer.json")
    holes: dict[str, list[Hole]] = {language: [] for language in languages}
    for language, cut in cuts_of(Store(options.store), count, seed=seed, languages=languages):
        above, below = cut.text[: cut.start], cut.text[cut.end :]
        holes[language].append(Hole(hole(tokenizer, above, below, *tokens), above[above.rfind("\n") + 1 :]))
    for language, found in holes.items():
        if len(found) < count:
            raise ValueError(f"the store has {len(found)} places in {language}; {count} are needed")
    return holes


async def _in_turns(
    options: SpeculationOptions, method: str, prompts: dict[tuple[int, str], list[list[int]]]
) -> dict[tuple[int, str], tuple[Run, Run]]:
    """Without guesses and with them, one right after the other."""
    async with AsyncExitStack() as ends:
        plain, guessing = await both_sides(ends, options, method)
        return {
            key: (await _run(plain, key[0], asked), await _run(guessing, key[0], asked))
            for key, asked in prompts.items()
        }


async def both_sides(ends: AsyncExitStack, options: SpeculationOptions, method: str) -> tuple[VllmEngine, VllmEngine]:
    """An engine without guesses and one with them, closed with `ends`. Raises EngineUnavailableError, ValueError."""
    guesses: dict[str, object] = {"method": method, "tokens": options.guesses}
    if method == DRAFT:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="foretype-draft-"))) / "draft"
        write_folder(locate().path, folder, layers=options.draft_layers)
        guesses["model"] = folder
    plain = await ends.enter_async_context(started(options.model))
    return plain, await ends.enter_async_context(started(options.model, speculation=guesses))


async def _run(engine: VllmEngine, at_once: int, prompts: Sequence[list[int]]) -> Run:
    answers, seconds, guesses = await timed(engine, at_once, prompts)
    return Run([one.ids for one in answers], seconds, sum(len(one.times_s) for one in answers), *guesses)


async def timed(
    engine: VllmEngine, at_once: int, prompts: Sequence[list[int]]
) -> tuple[list[Answered], float, Guesses]:
    """Answers from warm prompts, so many under way together, the seconds of all, and what was guessed for them."""
    for number, ids in enumerate(prompts):
        await ask(engine, f"warm-{number}", ids)
    free = asyncio.Semaphore(at_once)

    async def answered(number: int, ids: list[int]) -> Answered:
        async with free:
            return await ask(engine, f"{number}", ids, _WRITTEN_TOKENS)

    before, began = engine.guesses(), time.perf_counter()
    answers = await asyncio.gather(*(answered(number, ids) for number, ids in enumerate(prompts)))
    seconds, after = time.perf_counter() - began, engine.guesses()
    return answers, seconds, Guesses(after.made - before.made, after.accepted - before.accepted)


def added(runs: Sequence[Run]) -> Run:
    """Several languages as one."""
    columns = zip(*runs, strict=True)
    answers, *numbers = columns
    return Run([one for part in answers for one in part], *map(sum, numbers))


def row(method: str, at_once: int, language: str, plain: Run, guessed: Run) -> Row:
    """One run with guesses beside the same requests without any."""
    speeds = plain.tokens / plain.seconds, guessed.tokens / guessed.seconds
    ratio = (guessed.seconds / guessed.steps) / (plain.seconds / plain.steps)
    return Row(
        method=method,
        at_once=at_once,
        language=language,
        requests=len(plain.answers),
        tokens_per_s=speeds[1],
        gain=speeds[1] / speeds[0],
        accepted_share=guessed.accepted / guessed.made if guessed.made else 0.0,
        tokens_per_step=guessed.tokens / guessed.steps,
        step_ratio=ratio,
        breaks_even=(ratio - 1) * guessed.steps / guessed.made if guessed.made else 0.0,
        equal=sum(one == other for one, other in zip(plain.answers, guessed.answers, strict=True)),
    )
