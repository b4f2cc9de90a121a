"""What the client's own candidate would be worth as a draft: steps of greedy answers with it, beside prompt lookup and beside nothing.

No engine of ours takes a text as a proposal, so the network's answers are asked for once, and what each way would have guessed of them is
counted. A step verifies any number of guesses; the first token of an answer comes from the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from foretype_client.adaptive.model import AdaptiveModel
from foretype_client.adaptive.table import shipped_table
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer

from foretype_lab.fast_tier.asking import ClaimOptions, started
from foretype_lab.fast_tier.exact import Place, agreed, ends_of, places_of, written

_GUESSES: Final = 4
_LOOKUP: Final = (4, 3, 2)
_AT_ONCE: Final = 8

Proposer = Callable[[Sequence[int]], Sequence[int]]
"""Guesses of what follows the tokens of an answer so far."""


async def measure(options: ClaimOptions) -> dict[str, Any]:
    """Steps of all answers by what guesses, at all places and at those with a candidate. Raises EngineUnavailableError, ValueError."""
    tokenizer = load_tokenizer(options.model / "tokenizer.json")
    places = places_of(options)
    async with started(options.model, max_sequences=_AT_ONCE) as engine:
        answers = [one.ids for one in await written(engine, places, ends_of(tokenizer))]
    candidates = [candidate_of(place, tokenizer) for place in places]
    right = [agreed(guess, answer) for guess, answer in zip(candidates, answers, strict=True)]
    known = [at for at, guess in enumerate(candidates) if guess]
    every = range(len(places))

    def counted(chosen: Sequence[int]) -> dict[str, int]:
        sides: dict[str, Callable[[int], Proposer]] = {
            "nothing": lambda _: nothing,
            "lookup": lambda at: lookup(places[at].ids),
            "candidate": lambda at: draft(candidates[at], nothing),
            "candidate, then lookup": lambda at: draft(candidates[at], lookup(places[at].ids)),
        }
        return {name: sum(steps(answers[at], side(at)) for at in chosen) for name, side in sides.items()}

    return {
        "places": len(places),
        "tokens": sum(map(len, answers)),
        "with_candidate": len(known),
        "candidate_tokens": sum(len(candidates[at]) for at in known),
        "right_tokens": sum(right),
        "wholly_right": sum(right[at] == len(candidates[at]) for at in known),
        "steps": counted(every),
        "steps_with_candidate": counted(known),
        "tokens_with_candidate": sum(len(answers[at]) for at in known),
    }


def candidate_of(place: Place, tokenizer: Tokenizer) -> list[int]:
    """As the answer would have it, so with what the prompt left out of the line; empty where the client has none."""
    model = AdaptiveModel(shipped_table())
    model.prepare(place.snapshot.uri)
    found = model.suggest(place.snapshot, place.offset)
    while found is None and model.unfinished:  # it has some milliseconds for each try
        found = model.suggest(place.snapshot, place.offset)
    return [] if found is None or not found.text else list(tokenizer.encode(place.healed + found.text))


def steps(answer: Sequence[int], propose: Proposer) -> int:
    """Steps until all of `answer` is written; each gives the guesses that are right, and a token."""
    done, taken = min(1, len(answer)), min(1, len(answer))
    while done < len(answer):
        done += agreed(propose(answer[:done]), answer[done:]) + 1
        taken += 1
    return taken


def nothing(_: Sequence[int]) -> Sequence[int]:
    return ()


def draft(candidate: Sequence[int], otherwise: Proposer) -> Proposer:
    """The rest of `candidate` for as long as the answer says the same."""

    def propose(answer: Sequence[int]) -> Sequence[int]:
        is_same = len(answer) < len(candidate) and list(candidate[: len(answer)]) == list(answer)
        return candidate[len(answer) :] if is_same else otherwise(answer)

    return propose


def lookup(prompt: Sequence[int]) -> Proposer:
    """What followed the last tokens where they stood first, the longest run of two to four: vLLM's `ngram`."""

    def propose(answer: Sequence[int]) -> Sequence[int]:
        text = [*prompt, *answer]
        for size in _LOOKUP:
            last = text[-size:]
            for at in range(len(text) - size):
                if text[at : at + size] == last:
                    return text[at + size :][:_GUESSES]
        return ()

    return propose
