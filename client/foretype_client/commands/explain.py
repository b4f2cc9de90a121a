"""`foretype explain FILE:LINE:COL`: what the prompt would be, piece by piece, and what was left out of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated

import msgspec
import typer
from foretype_context.prompt.plan import Plan
from foretype_context.terminal import console, say_json
from foretype_wire.errors import RequestRefusedError
from foretype_wire.messages import Profile, RequestClass
from rich.table import Table

from foretype_client.asking import ask, plan_at
from foretype_client.client import ClientOptions, open_client
from foretype_client.commands.gathering import DependenciesOption, RetrievalOption, gather_at, sources_as_objects
from foretype_client.commands.shared import (
    GatewayOption,
    ModelOption,
    StateDirOption,
    TokenFileOption,
    client_options,
    errors_told,
)
from foretype_client.flow.explaining import cached_of, plan_as_object, scopes_of
from foretype_client.locations import Location, open_location, parse_location
from foretype_client.sources.all_sources import Gathered

_INDEX_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class _Explanation:
    profile: Profile
    plan: Plan
    timings_ms: dict[str, float]
    cached_tokens: int | None
    cached_source: str
    gathered: Gathered


def explain(
    place: Annotated[
        str, typer.Argument(metavar="FILE:LINE:COL", help="Line and column count from 1, columns in characters.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    gateway: GatewayOption = None,
    token_file: TokenFileOption = None,
    model: ModelOption = None,
    state_dir: StateDirOption = None,
    retrieval: RetrievalOption = True,
    dependencies: DependenciesOption = False,
) -> None:
    """Explain the prompt for one place of a file: segments with their token ranges, and everything that was dropped.

    `cached` is how much of each segment the engine had cached, asked for with a request for a single token.
    """
    with errors_told():
        options = client_options("explain", gateway, token_file, model, state_dir)
        location = parse_location(place)
        explanation = asyncio.run(_explain(location, options, retrieval=retrieval, dependencies=dependencies))
        if json:
            say_json(_as_object(explanation))
        else:
            _print(explanation)


async def _explain(location: Location, options: ClientOptions, *, retrieval: bool, dependencies: bool) -> _Explanation:
    snapshot, offset = await asyncio.to_thread(open_location, location)
    async with open_client(options) as client:
        assembler = await client.ready(options.start_timeout_s)
        profile = client.session.profile
        if profile is None:
            raise RuntimeError("a client is ready without a profile")
        gathered = await gather_at(
            location.path, snapshot, offset, retrieval=retrieval, dependencies=dependencies, wait_s=_INDEX_WAIT_S
        )
        plan, assemble_ms = plan_at(assembler, snapshot, offset, gathered.snippets)
        cached_tokens, cached_source = None, "unknown"
        try:
            probe = await ask(client.session, plan, snapshot, offset, class_=RequestClass.SPECULATIVE, max_tokens=1)
        except RequestRefusedError as error:
            cached_source = f"unknown: {error}"
        else:
            usage = probe.done.usage
            if usage.cached_source:
                cached_tokens, cached_source = usage.cached_tokens, usage.cached_source
        timings_ms = {**plan.timings_ms, "assemble": assemble_ms}
        return _Explanation(profile, plan, timings_ms, cached_tokens, cached_source, gathered)


def _as_object(explanation: _Explanation) -> dict[str, object]:
    plan = explanation.plan
    return {
        "profile": msgspec.to_builtins(explanation.profile),
        **plan_as_object(plan, explanation.cached_tokens),
        "cached_source": explanation.cached_source,
        "sources": sources_as_objects(explanation.gathered),
        "timings_ms": {name: round(value, 3) for name, value in explanation.timings_ms.items()},
    }


def _print(explanation: _Explanation) -> None:
    plan, profile, screen = explanation.plan, explanation.profile, console()
    cached = (
        f"cached: {explanation.cached_source}"
        if explanation.cached_tokens is None
        else f"{explanation.cached_tokens} cached ({explanation.cached_source})"
    )
    screen.print(
        f"{profile.model} · grammar {profile.grammar} · layout {plan.layout} · {plan.kind}\n"
        f"{plan.prompt_tokens} of {plan.budget_tokens} tokens · {cached} · "
        f"assembled in {explanation.timings_ms['assemble']:.1f} ms",
    )
    table = Table(box=None, padding=(0, 1, 0, 0), expand=screen.is_terminal)
    for name in ("start", "end", "tokens", "cached"):
        table.add_column(name, justify="right", min_width=len(name))
    for name in ("kind", "scope", "from"):
        table.add_column(name, no_wrap=True)
    table.add_column("text", no_wrap=True, overflow="ellipsis", ratio=1)
    own = plan.segments[-1].segment.source.document if plan.segments else ""
    for placed in plan.segments:
        source = placed.segment.source
        cached_tokens = cached_of(placed.start, placed.end, explanation.cached_tokens)
        table.add_row(
            str(placed.start),
            str(placed.end),
            str(placed.tokens),
            "?" if cached_tokens is None else str(cached_tokens),
            placed.segment.kind,
            placed.segment.scope,
            f"{'' if source.document == own else PurePath(source.path).name + ' '}{source.start}–{source.end}",
            _short(placed.segment.text),
        )
    screen.print(table)
    scopes = (
        f"{scope} {'?' if one['cached'] is None else one['cached']}/{one['tokens']}"
        for scope, one in scopes_of(plan, explanation.cached_tokens).items()
        if one["tokens"]
    )
    screen.print(f"cached by scope: {', '.join(scopes)} · strategy {plan.strategy}")
    for text in plan.notes:
        screen.print(text)
    for note in explanation.gathered.notes:
        reason = f" · {note.reason}" if note.reason else ""
        screen.print(f"{note.name}: {note.found} found in {note.took_ms:.1f} ms{reason}")
    if not plan.dropped:
        screen.print("nothing was dropped")
        return
    dropped = Table("kind", "tokens", "reason", "from", title="dropped")
    for drop in plan.dropped:
        dropped.add_row(drop.kind, str(drop.tokens), drop.reason, drop.source.path or drop.source.document)
    screen.print(dropped)


def _short(text: str, limit: int = 40) -> str:
    if len(text) <= limit:
        return repr(text)
    return f"{text[: limit // 2]!r} … {text[-limit // 2 :]!r}"
