"""Asks a real gateway, phase after phase, and keeps what was sent and what came back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foretype_backend.prefix.chain import ChainMaker
from foretype_context.grammars.grammar import grammar
from foretype_context.prompt.segments import Segment
from foretype_context.prompt.templates import encode_prompt
from foretype_context.tokens.tokenizer import tokenizer_from_bytes
from foretype_eval.gateway import GatewayOptions, connected
from foretype_eval.load.crowd import Crowd, LoadOptions, scripts_of
from foretype_eval.load.gateway import GatewayUnderLoad
from foretype_eval.load.scripts import ScriptedRequest
from foretype_eval.load.sent_request import SentRequest
from foretype_wire.messages import RequestClass

from foretype_plan.simulation.engine import BLOCK_TOKENS
from foretype_plan.simulation.runs import Progress
from foretype_plan.simulation.traces import Answered, Sent


class Phase(NamedTuple):
    """So many requests a second, for so long; the next one begins when all have their answers."""

    name: str
    rate: float
    seconds: float


class Asking(NamedTuple):
    """All that was sent, and when each phase began; seconds since the first request was due."""

    sent: list[Sent]
    begin_s: dict[str, float]


async def ask(
    found: GatewayUnderLoad, load: LoadOptions, phases: Sequence[Phase], progress: Progress, *, blocks: bool = False
) -> Asking:
    """Arrivals as of very many people who wait for every answer.

    Args:
        blocks: also find out which blocks of tokens each prompt consists of.

    Raises:
        GatewayGoneError: connections were refused, or broke.
    """
    scripts = await scripts_of(found, load)
    keys = await _keys(found, scripts) if blocks else {}
    crowd = Crowd(found, scripts, load)
    kept: list[SentRequest] = []
    starts: dict[str, int] = {}
    try:
        await crowd.connect(progress)
        crowd.book().kept = kept
        for phase in phases:
            starts[phase.name] = len(kept)
            await crowd.steady(phase.rate, phase.seconds, phase.name, progress)
            await crowd.drain()
    finally:
        crowd.close()
    first_s = kept[0].planned_s
    return Asking(
        [_sent(one, first_s, keys) for one in kept], {name: kept[at].planned_s - first_s for name, at in starts.items()}
    )


async def _keys(
    found: GatewayUnderLoad, scripts: Sequence[tuple[ScriptedRequest, ...]]
) -> dict[int, tuple[int, tuple[bytes, ...]]]:
    """Of each step: the tokens of its prompt as the gateway renders it, and the keys of its whole blocks."""
    async with connected(GatewayOptions(url=found.endpoint.url, token=found.endpoint.token)) as gateway:
        tokenizer, spoken = tokenizer_from_bytes(gateway.tokenizer_json), grammar(gateway.profile.grammar)
    chains = ChainMaker(BLOCK_TOKENS)
    made: dict[int, tuple[int, tuple[bytes, ...]]] = {}
    for number, script in enumerate(scripts):
        for step in script:
            wire = [part.text_form for part in step.parts]
            segments = [Segment(kind=one.kind, scope=one.scope, source=one.source, text=one.text or "") for one in wire]
            ids = encode_prompt(tokenizer, spoken, segments).ids
            made[id(step)] = len(ids), tuple(chains.keys(str(number), ids, ""))
    return made


def _sent(one: SentRequest, first_s: float, keys: dict[int, tuple[int, tuple[bytes, ...]]]) -> Sent:
    tokens, blocks = keys.get(id(one.step), (one.step.prompt_tokens, ()))
    answered = None
    if one.ended_s and not one.refused and one.usage is not None:
        answered = Answered(
            (one.first_s or one.ended_s) - one.planned_s,
            one.ended_s - one.planned_s,
            one.usage.cached_tokens,
            one.usage.generated_tokens,
        )
    return Sent(one.planned_s - first_s, one.number, RequestClass(one.class_), tokens, blocks, answered, one.refused)
