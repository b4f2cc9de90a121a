"""`foretype complete FILE:LINE:COL`: one suggestion."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from foretype_context.terminal import console, say, say_json
from rich.live import Live
from rich.text import Text

from foretype_client.asking import FinishedCompletion, ask, plan_at
from foretype_client.client import ClientOptions, open_client
from foretype_client.commands.gathering import DependenciesOption, RetrievalOption, gather_at
from foretype_client.commands.shared import (
    GatewayOption,
    ModelOption,
    StateDirOption,
    TokenFileOption,
    client_options,
    errors_told,
)
from foretype_client.locations import Location, open_location, parse_location

_INDEX_WAIT_S = 2.0


def complete(
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
    """Complete at one place of a file: the suggestion on stdout, its figures on stderr."""
    with errors_told():
        options = client_options("complete", gateway, token_file, model, state_dir)
        location = parse_location(place)
        answer = asyncio.run(
            _complete(location, options, show=not json, retrieval=retrieval, dependencies=dependencies)
        )
        if json:
            say_json(_as_object(answer))
            return
        say(answer.text)
        _figures(answer)


async def _complete(
    location: Location, options: ClientOptions, *, show: bool, retrieval: bool, dependencies: bool
) -> FinishedCompletion:
    snapshot, offset = await asyncio.to_thread(open_location, location)
    async with open_client(options) as client:
        assembler = await client.ready(options.start_timeout_s)
        gathered = await gather_at(
            location.path, snapshot, offset, retrieval=retrieval, dependencies=dependencies, wait_s=_INDEX_WAIT_S
        )
        plan, assemble_ms = plan_at(assembler, snapshot, offset, gathered.snippets)
        screen = console(stderr=True)
        if not (show and screen.is_terminal):
            return await ask(client.session, plan, snapshot, offset, assemble_ms=assemble_ms)
        with Live(console=screen, transient=True) as live:
            return await ask(
                client.session,
                plan,
                snapshot,
                offset,
                assemble_ms=assemble_ms,
                on_text=lambda text: live.update(Text(text, style="dim italic")),
            )


def _as_object(answer: FinishedCompletion) -> dict[str, object]:
    usage = answer.done.usage
    return {
        "text": answer.text,
        "request_id": answer.request_id,
        "finish": answer.done.finish,
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "cached_source": usage.cached_source,
        "timings_ms": answer.timings_ms,
    }


def _figures(answer: FinishedCompletion) -> None:
    usage, ttft_ms = answer.done.usage, answer.timings_ms["ttft"]
    parts = [
        "no text" if ttft_ms is None else f"first text after {ttft_ms:.0f} ms",
        f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens cached",
        f"{usage.generated_tokens} generated",
        f"ended by {answer.done.finish}",
    ]
    if answer.reason:
        parts.append(f"nothing left: {answer.reason}")
    if answer.replaces:
        parts.append(f"replaces {answer.replaces} characters right of the cursor")
    say(" · ".join(parts), err=True)
