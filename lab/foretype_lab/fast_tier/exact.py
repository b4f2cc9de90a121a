"""Whether engines write the same greedy text from the same weights, where they part, and what of it the file really says.

The embedded engine, with either of its libraries, and llama.cpp's server read the GGUF file; vLLM reads what was exported of it,
computed in float32 and as it comes (bfloat16 on a CPU). How near a token was to another is vLLM's own count in float32: the two best
log-probabilities.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

from foretype_backend.engines.port import GenerationParams
from foretype_backend.engines.vllm.engine import VllmEngine
from foretype_backend.engines.vllm.request import sampling_arguments, without_end
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.healing import HealedText
from foretype_context.prompt.profile import Budgets, Profile
from foretype_context.prompt.templates import encode_prompt, grammar
from foretype_context.syntax.document import Document, Snapshot
from foretype_context.tokens.tokenizer import Tokenizer, load_tokenizer
from foretype_models.artifacts import locate

from foretype_lab.corpus.store import Store
from foretype_lab.errors import LabError
from foretype_lab.fast_tier.asking import ClaimOptions, started
from foretype_lab.processes import environment
from foretype_lab.quality.behave import KINDS, cuts_of

LANGUAGES: Final = ("python", "javascript", "go", "shellscript")
_TOKENS: Final = 32
_PROMPT_TOKENS: Final = 192
_SUFFIX_TOKENS: Final = 48
_AT_ONCE: Final = 8
REFERENCE: Final = "vLLM, float32"


class Written(NamedTuple):
    """An answer, and how far the best token was ahead of the second, in nats, at each place; none where that is not known."""

    ids: tuple[int, ...]
    ahead: tuple[float, ...] = ()


class Place(NamedTuple):
    """A prompt as the client makes it for character `offset` of `snapshot`.

    Attributes:
        healed: what of the line an answer begins with once more.
        wanted: what the file says.
    """

    ids: list[int]
    healed: str
    wanted: str
    snapshot: Snapshot
    offset: int


async def measure(options: ClaimOptions) -> dict[str, Any]:
    """`pairs` of engines and `lines` that are the file's, by engine. Raises EngineUnavailableError, ValueError, LabError."""
    tokenizer = load_tokenizer(options.model / "tokenizer.json")
    ends = ends_of(tokenizer)
    places = places_of(options)
    sides: dict[str, list[Written]] = {}
    for named, other in (
        ("embedded, OpenVINO", "openvino"),
        ("embedded, llama.cpp", "llama.cpp"),
        ("llama.cpp's server", "server"),
    ):
        sides[named] = await asyncio.to_thread(_others, options, places, other, ends)
    for named, dtype in ((REFERENCE, "float32"), ("vLLM, as it comes", "auto")):
        async with started(options.model, dtype=dtype, max_sequences=_AT_ONCE) as engine:
            sides[named] = await written(engine, places, ends)
    reference = sides[REFERENCE]
    lines = {
        named: sum(
            first_line(tokenizer.decode(list(one.ids)).decode("utf-8", "replace"), place.healed)
            == place.wanted.rstrip()
            for one, place in zip(said, places, strict=True)
        )
        for named, said in sides.items()
    }
    return {
        "prompts": len(places),
        "tokens": _TOKENS,
        "ahead_p50": statistics.median(value for one in reference for value in one.ahead),
        "rows": [
            {"pair": f"{one} / {other}"} | compared(sides[one], sides[other], reference)
            for one, other in combinations(sides, 2)
        ],
        "lines": lines,
    }


def ends_of(tokenizer: Tokenizer) -> list[int]:
    """Ids at which the shipped network's answers end."""
    known = tokenizer.controls()
    return sorted(tokenizer.control(one) for one in grammar(locate().grammar).controls() if one in known)


def first_line(text: str, healed: str) -> str:
    """Without what was left out of the prompt."""
    return HealedText(healed).feed(text).split("\n")[0].rstrip()


def places_of(options: ClaimOptions) -> list[Place]:
    """So many in each language, half of them where a line begins and half inside of one. Raises ValueError: the store has fewer."""
    tokenizer = load_tokenizer(options.model / "tokenizer.json")
    spoken = grammar(locate().grammar)
    budgets = Budgets(prompt_tokens=_PROMPT_TOKENS, suffix_tokens=_SUFFIX_TOKENS)
    profile = Profile(
        model="", grammar=spoken.id, tokenizer_digest=tokenizer.digest, layout=spoken.layout(), budgets=budgets
    )
    assembler = Assembler(tokenizer, profile, timer=lambda: 0.0)
    count = -(-options.samples // len(KINDS))
    found: list[Place] = []
    for number, (_, cut) in enumerate(cuts_of(Store(options.store), count, seed=7, languages=LANGUAGES)):
        text = cut.text[: cut.start] + cut.text[cut.end :]
        snapshot = Document(f"file:///{number}/{cut.path}", text, path=cut.path).snapshot()
        plan, _ = assembler.plan(PlanState.empty(), snapshot, cut.start, block=False, now=0.0)
        ids = encode_prompt(tokenizer, spoken, [placed.segment for placed in plan.segments]).ids
        found.append(Place(list(ids), plan.healed, cut.text[cut.start : cut.end], snapshot, cut.start))
    if len(found) < (wanted := count * len(KINDS) * len(LANGUAGES)):
        raise ValueError(f"the store has {len(found)} places in {', '.join(LANGUAGES)}; {wanted} are needed")
    return found


def agreed(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens until they part, or one of them ends."""
    parted = (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(parted, min(len(one), len(other)))


def compared(left: Sequence[Written], right: Sequence[Written], reference: Sequence[Written]) -> dict[str, Any]:
    """How many are equal; of the others the token at which they part, and how far the reference's best was ahead there.

    Where the reference itself had left both by then, nothing is known of it.
    """
    parted: list[int] = []
    ahead: list[float] = []
    for one, other, known in zip(left, right, reference, strict=True):
        if one.ids == other.ids:
            continue
        at = agreed(one.ids, other.ids)
        parted.append(at)
        if known.ids[:at] == one.ids[:at] and at < len(known.ahead):
            ahead.append(known.ahead[at])
    return {
        "equal": len(left) - len(parted),
        "parted_p50": statistics.median(parted) if parted else None,
        "ahead_p50": round(statistics.median(ahead), 3) if ahead else None,
        "ahead_most": round(max(ahead), 3) if ahead else None,
    }


def _others(options: ClaimOptions, places: Sequence[Place], engine: str, ends: Sequence[int]) -> list[Written]:
    module = "foretype_lab.fast_tier.other_answers"
    done = subprocess.run(
        [str(options.python), "-P", "-m", module, str(options.gguf), str(_TOKENS), engine, *map(str, ends)],
        input=json.dumps([place.ids for place in places]),
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
        text=True,
        check=False,
        env=environment(),
    )
    if done.returncode:
        raise LabError(f"{options.python} has no engine that answers as {engine}; its words are above")
    return [Written(tuple(ids)) for ids in json.loads(done.stdout.splitlines()[-1])]


async def written(engine: VllmEngine, places: Sequence[Place], ends: Sequence[int]) -> list[Written]:
    """Greedy, so many at once."""
    llm, library = engine.library()
    params = GenerationParams(max_tokens=_TOKENS, end_token_ids=frozenset(ends))
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int, place: Place) -> Written:
        ids: list[int] = []
        ahead: list[float] = []
        sampling = library.sampling(**sampling_arguments(params, _TOKENS) | {"logprobs": 2})
        async with free:
            async for output in llm.generate(library.prompt(place.ids), sampling, f"exact-{number}"):
                made = output.outputs[0]
                ids += without_end(made.token_ids, made.finish_reason, params.end_token_ids)
                for row in made.logprobs or ():
                    best, second = sorted((told.logprob for told in row.values()), reverse=True)[:2]
                    ahead.append(best - second)
        return Written(tuple(ids), tuple(ahead))

    return list(await asyncio.gather(*(one(number, place) for number, place in enumerate(places))))
