"""What simulated developers type: real files, assembled into prompts beforehand, so that the generator stays light."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final, NamedTuple

from foretype_context.prompt.assemble import Assembler
from foretype_context.prompt.plan import PlanState
from foretype_context.prompt.segments import STABLE_KINDS, Kind, Scope, Segment, Source, digest_of
from foretype_context.syntax.document import Document, Edit
from foretype_wire.messages import RequestClass, WireSegment

from foretype_eval.latency.workload import sites
from foretype_eval.replay.typist import gap_s, next_key

Mix = Mapping[RequestClass, float]
"""Share of the requests by class."""

TYPING: Final[Mix] = {RequestClass.INTERACTIVE: 0.9, RequestClass.BLOCK: 0.05, RequestClass.SPECULATIVE: 0.05}
"""What developers ask who type."""


class ReadySegment(NamedTuple):
    """A segment ready to travel: as text, or as digest where the other end has it already."""

    kind: Kind
    digest: bytes | None
    text_form: WireSegment
    digest_form: WireSegment


class ScriptedRequest(NamedTuple):
    """One request of a script."""

    document: str
    version: int
    language: str
    parts: tuple[ReadySegment, ...]
    prompt_tokens: int
    class_: RequestClass


def make_scripts(
    assembler: Assembler, *, count: int, steps: int, seed: int, prompt_tokens: int, mix: Mix = TYPING
) -> list[tuple[ScriptedRequest, ...]]:
    """`count` developers' files, each typed for up to `steps` requests, of classes as `mix` has them.

    Raises:
        EvalError: there is no code on this machine to type.
    """
    rng = Random(seed)
    found: list[tuple[ScriptedRequest, ...]] = []
    shared: dict[Segment, ReadySegment] = {}
    while len(found) < count:
        for site in sites(seed + len(found), chars_above=prompt_tokens * 3, chars_below=1500):
            if len(found) == count:
                break
            found.append(_script(assembler, site.path, site.text, site.offset, site.typed, steps, rng, shared, mix))
    return found


def arrivals_s(rng: Random, *, requests: int) -> list[float]:
    """Moments at which one developer asks, in a mean gap of 1: bursts and pauses as measured."""
    gaps = [gap_s(rng, after_newline=rng.random() < 0.08) for _ in range(requests)]
    mean = sum(gaps) / len(gaps)
    at = rng.random()
    moments: list[float] = []
    for gap in gaps:
        moments.append(at)
        at += gap / mean
    return moments


def _script(
    assembler: Assembler,
    path: str,
    text: str,
    offset: int,
    typed: str,
    steps: int,
    rng: Random,
    shared: dict[Segment, ReadySegment],
    mix: Mix,
) -> tuple[ScriptedRequest, ...]:
    uri = f"file:///load/{path}"
    state, made = PlanState.empty(), list[ScriptedRequest]()
    document = Document(uri, text, language="python", path=path, version=0)
    rest, done = typed, 0
    while rest and len(made) < steps:
        key = next_key(rest)
        rest, done = rest[len(key) :], done + len(key)
        document.apply([Edit(offset + done - len(key), offset + done - len(key), key)], done)
        if not typed[:done].strip():
            continue
        plan, state = assembler.plan(state, document.snapshot(), offset + done, now=0.0)
        parts: list[ReadySegment] = []
        for placed in plan.segments:
            segment = placed.segment
            part = shared.get(segment)
            if part is None:
                part = shared[segment] = _part(segment.kind, segment.scope, segment.source, segment.text)
            parts.append(part)
        class_ = rng.choices(list(mix), list(mix.values()))[0]
        made.append(ScriptedRequest(uri, done, "python", tuple(parts), plan.prompt_tokens, class_))
    return tuple(made)


def _part(kind: Kind, scope: Scope, source: Source, text: str) -> ReadySegment:
    digest = digest_of(text) if kind in STABLE_KINDS else None
    return ReadySegment(
        kind,
        digest,
        WireSegment(kind=kind, scope=scope, source=source, text=text),
        WireSegment(kind=kind, scope=scope, source=source, digest=digest),
    )
