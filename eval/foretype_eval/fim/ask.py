"""Asks a model for completions on the product's own path: document, assembler, session, gateway, engine."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec
from foretype_client.flow.planning import call_of
from foretype_client.session.session import Session
from foretype_context.finish.post_processing import finish
from foretype_context.prompt.assemble import Assembler, PlanState
from foretype_context.prompt.healing import HealedText
from foretype_context.prompt.profile import Stop
from foretype_context.syntax.document import Document
from foretype_wire.errors import RequestRefusedError
from foretype_wire.messages import Delta, Done

from foretype_eval.fim.items import Item, StopRule

_DEADLINE_MS: Final = 60_000.0
_FIRST_LINE: Final = re.compile(r"\s*\S[^\n]*")
_EXTENSIONS: Final = {"python": "py", "javascript": "js", "java": "java", "cpp": "cpp", "csharp": "cs"}


class AskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to ask.

    Attributes:
        max_tokens: token limit of one completion.
        post_process: run the product's own finishing (trim, overlap, brackets, repetition) over the answer.
        parallel: requests under way at once.
    """

    max_tokens: int = 192
    post_process: bool = False
    parallel: int = 2


class FimAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back; `error` instead of text where the gateway refused."""

    text: str
    finish: str | None = None
    error: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    mean_logprob: float | None = None
    ttft_ms: float | None = None
    total_ms: float | None = None


def first_line(text: str) -> str:
    """Up to the first newline after a non-blank character, newline excluded (the suffix begins with one)."""
    match = _FIRST_LINE.match(text)
    return match.group() if match else ""


async def ask(session: Session, assembler: Assembler, item: Item, id_: str, options: AskOptions) -> FimAnswer:
    """One completion for one item; greedy, as the gateway is by default."""
    document = Document(
        f"file:///items/{id_}", item.prefix + item.suffix, language=item.language, path=_path(item.language)
    )
    snapshot, offset = document.snapshot(), len(item.prefix)
    whole_line = item.stop is StopRule.FIRST_LINE
    plan, _ = assembler.plan(PlanState.empty(), snapshot, offset, block=not whole_line, now=0.0)
    # A first line that is blank is allowed by the rule, so the line limit is kept here and not at the gateway.
    stop = Stop(max_lines=4 if whole_line else None, repeats=plan.healed)
    call = call_of(plan, snapshot, id=id_, max_tokens=options.max_tokens, stop=stop, deadline_ms=_DEADLINE_MS)
    started = time.perf_counter()
    first: float | None = None
    parts: list[str] = []
    healing = HealedText(plan.healed)
    logprob, tokens = 0.0, 0
    done: Done | None = None
    stream = session.complete(call)
    try:
        async for event in stream:
            if isinstance(event, Delta):
                first = first if first is not None else time.perf_counter()
                parts.append(healing.feed(event.text))
                logprob, tokens = logprob + event.logprob, tokens + event.tokens
                if whole_line and "\n" in "".join(parts).lstrip():
                    stream.cancel()
            else:
                done = event
    except RequestRefusedError as error:
        return FimAnswer(text="", error=str(error.code))
    text = "".join(parts)
    if whole_line:
        stopped = "\n" in text.lstrip()
        text = first_line(text)
        finish_reason = "stop" if stopped or done is None else str(done.finish)
    else:
        finish_reason = None if done is None else str(done.finish)
    if options.post_process:
        text = finish(text, snapshot, offset, kind=plan.kind, final=True).text
    usage = None if done is None else done.usage
    return FimAnswer(
        text=text,
        finish=finish_reason,
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=None if usage is None else usage.cached_tokens,
        generated_tokens=None if usage is None else usage.generated_tokens,
        mean_logprob=round(logprob / tokens, 4) if tokens else None,
        ttft_ms=None if first is None else round((first - started) * 1000, 3),
        total_ms=round((time.perf_counter() - started) * 1000, 3),
    )


def _path(language: str) -> str:
    return f"solution.{_EXTENSIONS.get(language, 'txt')}"


async def ask_all(
    session: Session,
    assembler: Assembler,
    items: Sequence[Item],
    options: AskOptions,
    *,
    advanced: Callable[[], None] = lambda: None,
) -> AsyncIterator[FimAnswer]:
    """Answers in the order of `items`, `options.parallel` under way at once."""
    gate = asyncio.Semaphore(options.parallel)

    async def one(number: int, item: Item) -> FimAnswer:
        async with gate:
            answer = await ask(session, assembler, item, f"item-{number}", options)
        advanced()
        return answer

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number, item)) for number, item in enumerate(items)]
        for task in tasks:
            yield await task
